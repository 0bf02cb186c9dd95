"""The publish has one owner, below jobs and server: nothing else moves a seam, or commits to the Iceberg catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import frostline

SOURCE = Path(frostline.__file__).parent
OWNERS = {
    "lake/publish.py": {"seams.move", "pointers.swap", "pointers.swap_copies"},
    "lake/lake_publish.py": {"lake_tables.commit", "lake_tables.define"},
    "catalog/lake_tables.py": {"pointers.swap_lake"},
}
"""Who moves seams and pointers, and by what."""


def called(text: str) -> Iterator[str]:
    """What a module takes from others, by their own names, whatever it calls them."""
    known = dict[str, str]()
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = str(node.module).rpartition(".")[2]
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
            yield from (f"{module}.{alias.name}" for alias in node.names)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{known.get(node.value.id, node.value.id)}.{node.attr}"


@pytest.mark.parametrize("owner", OWNERS)
def test_nothing_else_moves_a_seam_or_a_pointer(owner: str) -> None:
    files = {str(file.relative_to(SOURCE)): set(called(file.read_text("utf-8"))) for file in SOURCE.rglob("*.py")}
    assert {file for file, used in files.items() if OWNERS[owner] & used} == {owner}
    assert files[owner] >= OWNERS[owner]


@pytest.mark.parametrize(
    "text",
    [
        "from frostline.catalog import lake_tables\nlake_tables.commit(x)",
        "from frostline.catalog import lake_tables as catalog\ncatalog.commit(x)",
        "from frostline.catalog.lake_tables import commit as done\ndone(x)",
    ],
)
def test_another_name_does_not_hide_who_does(text: str) -> None:
    assert "lake_tables.commit" in set(called(text))
