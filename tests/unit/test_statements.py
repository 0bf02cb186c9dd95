"""Named statements: each name that a module uses is in its file, and each in a file is used."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import frostline
from frostline import sqlfiles

SOURCE = Path(frostline.__file__).parent


@dataclass(frozen=True)
class Loader:
    """`name = sqlfiles.statements(__name__, noun)` in a module."""

    file: Path
    name: str
    noun: str

    @property
    def statements(self) -> set[str]:
        """What its file has."""
        package = ".".join(("frostline", *self.file.parent.relative_to(SOURCE).parts))
        return set(sqlfiles.load(package, self.noun))


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


FILES = sorted(SOURCE.rglob("*.py"))


def _loaders() -> Iterator[Loader]:
    for file in FILES:
        for node in _tree(file).body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Attribute(attr="statements"), args=[_, ast.Constant(value=str(noun))]),
                ):
                    yield Loader(file, name, noun)
                case _:
                    pass


LOADERS = list(_loaders())


@cache
def _all_calls() -> dict[tuple[Path | None, str], list[ast.Call]]:
    """By what is called: in its own module as `name`, in others as `module.name`."""
    calls: defaultdict[tuple[Path | None, str], list[ast.Call]] = defaultdict(list)
    for file in FILES:
        for node in ast.walk(_tree(file)):
            match node:
                case ast.Call(func=ast.Name(id=name)):
                    calls[file, name].append(node)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                    calls[None, f"{module}.{name}"].append(node)
                case _:
                    pass
    return calls


def _calls(file: Path, name: str) -> list[ast.Call]:
    return _all_calls().get((file, name), []) + _all_calls().get((None, f"{file.stem}.{name}"), [])


def _used(loader: Loader) -> Iterator[str]:
    """The names it is called with, also by way of a function that hands one of its parameters on."""
    yield from (_text(call.args[0]) for call in _calls(loader.file, loader.name))
    for function in _tree(loader.file).body:
        if isinstance(function, ast.FunctionDef):
            for position, parameter in enumerate(function.args.args):
                if f"{loader.name}({parameter.arg})" in ast.unparse(function):
                    yield from (_text(call.args[position]) for call in _calls(loader.file, function.name))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize(
    "loader", LOADERS, ids=lambda loaded: f"{loaded.file.parent.name}/{loaded.file.stem}-{loaded.noun}"
)
def test_every_name_is_in_the_file(loader: Loader) -> None:
    assert {name for name in _used(loader) if name} <= loader.statements


def test_every_statement_is_used() -> None:
    texts = {_text(node) for file in FILES for node in ast.walk(_tree(file)) if isinstance(node, ast.Constant)}
    assert {f"{loader.noun}.{name}" for loader in LOADERS for name in loader.statements if name not in texts} == set()
