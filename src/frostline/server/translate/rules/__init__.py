"""The forms of condition that are known to mean the same in DuckDB, one file each."""
