"""Every statement in the SQL files outside of `catalog` is one that Postgres accepts for an example table.

`test_catalog.py` has the catalog's own. Here the gaps of a statement are filled as for the table of `fixtures/example.py`. What
can be prepared is prepared; what cannot (DDL, LOCK, SET, COPY) is run and rolled back. The objects of a relation are compared
with golden files by `test_definition.py`, and a statement that stands in one of them is not tried again.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import LiteralString, cast

import postgast
import psycopg
import pytest
from tests.fixtures.example import BEFORE, DEFAULTS, OWN, WORLD
from tests.fixtures.golden import GOLDEN
from tests.fixtures.statements import run, value

import frostline
from frostline import sqlfiles
from frostline.catalog.connect import connect as open_connection
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.relation import foreign_server, guard, registration
from frostline.relation.registration import Request

PACKAGES = (
    "relation",
    "partitions",
    "partitions.convert",
    "tiers",
    "pipeline",
    "server",
    "server.writes",
    "runtime",
    "observe.doctor",
)
PARSED = {
    "dropping.detach_concurrently": "cannot be rolled back; test_partition_mode.py runs it",
    "dropping.finalize": "needs a DETACH that was interrupted; test_partition_mode.py has one",
    "doctor.look_up": "needs a prepared statement; test_doctor.py has one",
}
"""Of these only Postgres' grammar is asked, and why."""
FRAGMENTS = {
    "staging.won": "select * from {} as w",
    "target.is_called": "select {}",
    "target.is_of_type": "select {}",
    "objects.no_generated": "select {}",
    "filling.is_unlike": "select from public._events where {}",
    "demo.explain": "{} select 1",
}
"""Parts of other statements, and something around them that makes one."""
_PREPARABLE = ("select", "insert", "update", "delete", "with")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_NAME = re.compile(r"\{(\w+)\}(?=::(?:regclass|oid)\b(?!\[))")
"""A gap for the name of a table as text."""
_TELLING = 30
"""A piece of text that is so long stands in a golden file for its statement only."""


def _nouns(package: str) -> list[str]:
    folder = resources.files(f"frostline.{package}").joinpath("sql")
    return sorted(path.name.removesuffix(".sql") for path in folder.iterdir() if path.name.endswith(".sql"))


STATEMENTS = {
    f"{noun}.{name}": re.sub(r"\A(?:--.*\n)+", "", text)
    for package in PACKAGES
    for noun in _nouns(package)
    for name, text in sqlfiles.load(f"frostline.{package}", noun).items()
}


def _is_golden(text: str) -> bool:
    """Whether all that stands between the gaps is in a golden file, and enough of it to tell."""
    pieces = [piece.strip() for piece, *_ in string.Formatter().parse(text)]
    files = [file.read_text(encoding="utf-8") for file in (GOLDEN / "relation").glob("*.sql")]
    return max(map(len, pieces)) >= _TELLING and all(any(piece in file for file in files) for piece in pieces)


TRIED = [
    name for name, text in STATEMENTS.items() if not (name.startswith(("objects.", "writes.")) and _is_golden(text))
]


@dataclass(frozen=True)
class World:
    """A session in which everything is rolled back, and how the registered table's own objects are called."""

    connection: psycopg.Connection
    names: dict[str, str]

    def filled(self, name: str) -> str:
        """The statement without gaps, its parameters numbered."""
        parts = DEFAULTS | OWN.get(name.partition(".")[0], {}) | OWN.get(name, {})
        known = {gap: self._named(text) for gap, text in parts.items()}
        text = _NAME.sub(lambda gap: _quoted(known[gap[1]]), STATEMENTS[name])
        return FRAGMENTS.get(name, "{}").format(_numbered(text.format_map(known)))

    def before(self, name: str) -> str:
        """What is there before it."""
        return self._named(BEFORE.get(name, BEFORE.get(name.partition(".")[0], "")))

    def _named(self, text: str) -> str:
        for gap, own in self.names.items():
            text = text.replace(f"{{{gap}}}", own)
        return text


def _quoted(text: str) -> str:
    return text if text.startswith("'") else "'" + text.replace("'", "''") + "'"


def _numbered(text: str) -> str:
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text)
    return numbered.replace("%%", "%") if names else text


@pytest.fixture(scope="module")
def made_world(shared_database: str) -> Iterator[World]:
    """The example table, registered, in a database with everything that `init` installs."""
    with (
        open_connection(shared_database, purpose="tests") as connection,
        psycopg.connect(shared_database) as exporting,
    ):
        foreign_server.ensure(connection, host="127.0.0.1", port=1, user="frostline", password="none")
        guard.ensure(connection)
        run(connection, WORLD)
        table = registration.add(connection, Request(Name("public", "events"), Policy("1 month"))).table
        names = {"id": str(table.id), "internal": table.internal}
        exporting.execute("set transaction isolation level repeatable read")
        names["snapshot"] = value(exporting, "select pg_export_snapshot()")
        for schema in ("overlay", "lake"):
            names[schema] = f'frostline_{schema}."{table.internal}"'
        yield World(connection, names)


@pytest.fixture
def world(made_world: World) -> Iterator[World]:
    run(made_world.connection, "begin isolation level repeatable read")
    yield made_world
    run(made_world.connection, "rollback")


def test_no_package_with_statements_is_left_out() -> None:
    source = Path(frostline.__file__).parent
    folders = {file.parent.parent.relative_to(source) for file in source.rglob("sql/*.sql")}
    assert {".".join(folder.parts) for folder in folders} == set(PACKAGES)


@pytest.mark.parametrize("name", [tried for tried in TRIED if tried not in PARSED])
def test_postgres_accepts_it(world: World, name: str) -> None:
    if before := world.before(name):
        run(world.connection, before)
    text = world.filled(name)
    if text.startswith(_PREPARABLE) and ";\n" not in text:
        run(world.connection, f"prepare statement as {text}")
        run(world.connection, "deallocate statement")
    elif text.startswith("copy "):
        with world.connection.cursor().copy(cast(LiteralString, text)) as copy:
            if " to stdout " in text:
                assert not list(copy)
            # No row is enough.
    else:
        run(world.connection, text)


@pytest.mark.parametrize("name", PARSED)
def test_the_grammar_accepts_it(made_world: World, name: str) -> None:
    assert postgast.parse(made_world.filled(name)).stmts


def test_the_rest_stands_in_golden_files() -> None:
    assert len(STATEMENTS) - len(TRIED) > 30


def test_nothing_is_filled_in_that_no_statement_needs() -> None:
    gaps = {gap for text in STATEMENTS.values() for _, gap, *_ in string.Formatter().parse(text)}
    nouns = {name.partition(".")[0] for name in STATEMENTS}
    assert set(DEFAULTS) <= gaps
    assert set(PARSED) | set(FRAGMENTS) <= set(TRIED)
    assert set(BEFORE) | set(OWN) <= set(TRIED) | nouns
