"""Named SQL statements kept in files of the package, one file a noun."""

import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import LiteralString, cast

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load(package: str, noun: str) -> dict[str, LiteralString]:
    """The statements of `sql/<noun>.sql` in that package, by name."""
    text = resources.files(package).joinpath(f"sql/{noun}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    # The files ship with the package, so their text is as literal as a string in the source.
    return {name: cast(LiteralString, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def statements(module: str, noun: str) -> Callable[[str], sql.SQL]:
    """What gives a statement of `sql/<noun>.sql` beside the module by its name.

    The file is read when the module is imported, so a wrong noun fails then; a test looks up each name that is used.
    """
    texts = load(module.rpartition(".")[0], noun)
    return {name: sql.SQL(text) for name, text in texts.items()}.__getitem__


def load_all(package: str, folder: str) -> dict[str, LiteralString]:
    """All statements of a folder below `sql/`, by `noun.name`: a test prepares each of them."""
    entries = resources.files(package).joinpath("sql", folder).iterdir()
    nouns = sorted(entry.name.removesuffix(".sql") for entry in entries)
    return {f"{noun}.{name}": text for noun in nouns for name, text in load(package, f"{folder}/{noun}").items()}
