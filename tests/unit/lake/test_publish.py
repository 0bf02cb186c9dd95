"""The publish has one owner, below jobs and server: nothing else moves a seam, or commits to the Iceberg catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import frostline

SOURCE = Path(frostline.__file__).parent
MANAGED = {"lake/publish.py"}
LAKE_TABLES = {"catalog/lake_tables.py"}
COMMIT = {"lake/lake_publish.py"}
OWNERS = {
    "catalog.seams.move": MANAGED,
    "catalog.pointers.swap": MANAGED,
    "catalog.pointers.put": MANAGED,
    "catalog.pointers.swap_copies": MANAGED,
    "catalog.pointers.drop_copies": MANAGED,
    "catalog.pointers.drop": MANAGED | LAKE_TABLES,
    "catalog.pointers.add_lake": LAKE_TABLES,
    "catalog.pointers.swap_lake": LAKE_TABLES,
    "catalog.pointers.rename_lake": LAKE_TABLES,
    "catalog.lake_tables.commit": COMMIT,
    "catalog.lake_tables.define": COMMIT,
    # These three make a table or take one away in a transaction that does more, and stage nothing that could be lost.
    "catalog.lake_tables.create": {
        "pipeline/lake_tables.py",  # with its foreign table
        "server/rest/writing.py",  # with the other tables of a client's commit
    },
    "catalog.lake_tables.drop": {
        "pipeline/lake_tables.py",  # with its foreign tables, whose locks come first
        "server/rest/writing.py",  # once its owner is known
    },
    "catalog.lake_tables.adopt": {"pipeline/lake_register.py"},  # with its foreign table
    "catalog.lake_tables.rename": {"server/rest/writing.py"},  # under the lock of the namespaces
}
"""Who moves, makes and drops pointers, and who moves seams."""


def called(text: str) -> Iterator[str]:
    """What a module takes from others, by their own names, whatever it calls them."""
    known = dict[str, str]()
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = str(node.module).removeprefix("frostline.")
            names = {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
            known |= names
            yield from names.values()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{known.get(node.value.id, node.value.id)}.{node.attr}"


@pytest.mark.parametrize("call", OWNERS)
def test_nothing_else_moves_a_seam_or_a_pointer(call: str) -> None:
    files = {str(file.relative_to(SOURCE)): set(called(file.read_text("utf-8"))) for file in SOURCE.rglob("*.py")}
    assert {file for file, used in files.items() if call in used} == OWNERS[call]


def test_whatever_writes_pointers_is_in_the_list() -> None:
    """A public function of `catalog/pointers` that is not in it only reads or locks."""
    tree = ast.parse((SOURCE / "catalog/pointers.py").read_text("utf-8"))
    public = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    reading = {"standing", "find", "other_names", "lake_tables", "lock_lake", "locked", "lead_into"}
    assert {f"catalog.pointers.{name}" for name in public - reading} == {
        call for call in OWNERS if call.startswith("catalog.pointers.")
    }


@pytest.mark.parametrize(
    "text",
    [
        "from frostline.catalog import lake_tables\nlake_tables.commit(x)",
        "from frostline.catalog import lake_tables as catalog\ncatalog.commit(x)",
        "from frostline.catalog.lake_tables import commit as done\ndone(x)",
    ],
)
def test_another_name_does_not_hide_who_does(text: str) -> None:
    assert "catalog.lake_tables.commit" in set(called(text))
