"""What is private in PyIceberg is used in one module: a new release is read against that one."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import frostline
from frostline.lake import pyiceberg_compat

SOURCE = Path(frostline.__file__).parent
COMPAT = Path(pyiceberg_compat.__file__)
PRIVATE = re.compile(r"_[a-z]\w*", re.IGNORECASE)
DEFINED = re.compile(r"(?:\bself\.|\bdef |^    )(_[a-z]\w*)", re.MULTILINE)
"""How a class of PyIceberg has a private name."""


def _uses(file: Path) -> Iterator[str]:
    """Private names of PyIceberg in a module: imported, looked up in something else, or inherited."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _is_theirs(node.module)]
    yield from (name.name for node in imported for name in node.names if PRIVATE.fullmatch(name.name))
    if imported or "pyiceberg_compat" in ast.unparse(tree):
        yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_foreign(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            inherited = _inherited(file, node.name)
            yield from (name for name in _own_names(node) if name in inherited)


def _is_theirs(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "pyiceberg"


def _is_foreign(node: ast.Attribute) -> bool:
    """Whether the private name is somebody else's: our own are looked up in `self` and `cls`."""
    return bool(PRIVATE.fullmatch(node.attr)) and ast.unparse(node.value) not in ("self", "cls")


def _own_names(node: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef) and PRIVATE.fullmatch(part.name):
            yield part.name
        if isinstance(part, ast.Attribute) and PRIVATE.fullmatch(part.attr):
            yield part.attr


def _inherited(file: Path, name: str) -> set[str]:
    """The private names that the classes above it in PyIceberg have, those of their objects included."""
    module = import_module(".".join(("frostline", *file.relative_to(SOURCE).with_suffix("").parts)))
    kind = getattr(module, name, object)
    theirs = {base.__module__ for base in inspect.getmro(kind) if _is_theirs(base.__module__)}
    return {
        text for name_of_module in theirs for text in DEFINED.findall(inspect.getsource(import_module(name_of_module)))
    }


def _files() -> list[Path]:
    return [file for file in SOURCE.rglob("*.py") if "pyiceberg" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("file", [file for file in _files() if file != COMPAT], ids=lambda file: file.stem)
def test_no_other_module_uses_what_is_private(file: Path) -> None:
    assert list(_uses(file)) == []


def test_the_one_that_does_is_seen_to() -> None:
    used = set(_uses(COMPAT))
    assert {"_OverwriteFiles", "_SnapshotProducer", "_apply", "_updates", "_existing_manifests", "_session"} <= used
