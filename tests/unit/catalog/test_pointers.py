"""The Iceberg catalog's table has one owner: whoever commits goes through it."""

from pathlib import Path

import frostline

SOURCE = Path(frostline.__file__).parent
OWNER = {"pointers.py", "pointer.sql"}
ELSEWHERE = {"migrations", "doctor"}
"""Folders that make the table, or look whether its triggers are on, and read no row of it."""


def test_no_other_file_has_a_statement_on_the_pointers() -> None:
    files = [file for end in ("py", "sql") for file in SOURCE.rglob(f"*.{end}") if not ELSEWHERE & set(file.parts)]
    assert {file.name for file in files if "iceberg_tables" in file.read_text(encoding="utf-8")} == OWNER


def test_no_other_module_sends_them() -> None:
    naming = [file.name for file in SOURCE.rglob("*.py") if '/pointer"' in file.read_text(encoding="utf-8")]
    assert naming == ["pointers.py"]
