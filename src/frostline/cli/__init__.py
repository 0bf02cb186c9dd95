"""The `frostline` command: one module a noun, each command parses, calls one function and prints."""
