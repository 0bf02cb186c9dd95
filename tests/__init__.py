"""The tests. Each name is a sentence."""
