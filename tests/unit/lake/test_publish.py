"""The publish has one owner, below jobs and server: nothing else moves a seam, or commits to the Iceberg catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

import frostline

SOURCE = Path(frostline.__file__).parent
MOVES = {"seams.move", "pointers.swap", "pointers.swap_copies"}


def called(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def test_nothing_else_moves_a_seam_or_a_pointer() -> None:
    moving = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if MOVES & set(called(file))}
    assert moving == {"lake/publish.py"}


def test_all_of_them_are_its_own() -> None:
    assert set(called(SOURCE / "lake" / "publish.py")) >= MOVES
