"""CHECKs of lake tables: no row is taken for which one of them is false. docs/design/lake-tables.md has the choice.

Postgres itself holds none on a foreign table. The expressions are in the table's metadata, which others can write, so
each is read like a query of a client: columns of Postgres' own types, functions and operators of pg_catalog, nothing
that could see or change anything else. Then the lake server's own session evaluates them on the texts of new rows.
"""

import threading
from collections.abc import Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache

import psycopg
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline import sqlfiles
from frostline.errors import UsageError
from frostline.model.lake_tables import Check
from frostline.model.tables import Column
from frostline.relation import names
from frostline.server import fallback
from frostline.server.own_session import explained
from frostline.server.translate import plan, statements, tree
from frostline.server.translate.statements import NotServed

_statement = sqlfiles.statements(__name__, "checks")
_AT_ONCE = 10_000
"""Rows that are sent in one statement."""
_KEPT = 4
"""Sessions that wait for the next rows; more are opened while more transactions write at the same moment."""

Texts = Sequence[str | None]


class CheckRefused(UsageError):
    """A row for which a CHECK is false."""

    sqlstate = "23514"


@dataclass(frozen=True)
class Compiled:
    """The CHECKs of a table as one query, which says which of them the first bad row breaks."""

    query: str
    places: tuple[int, ...]
    """Of the columns whose texts it wants."""
    names: tuple[str, ...]
    functions: frozenset[str]


@lru_cache(maxsize=256)
def compiled(columns: tuple[Column, ...], checks: tuple[Check, ...]) -> Compiled:
    """NotServed for an expression that is not to be evaluated here."""
    by_name = {column.name: (place, column) for place, column in enumerate(columns) if column.pg_type.builtin}
    used, functions = set[str](), set[str]()
    for check in checks:
        nodes = _nodes(check)
        for node in nodes:
            if isinstance(node, tree.ColumnRef):
                used.add(_column(check, node, by_name.keys()))
        functions |= plan.functions_named(nodes)
    chosen = sorted(by_name[name] for name in used)
    places = tuple(place for place, _ in chosen) or (0,)
    query = _statement("first_broken").format(
        cases=sql.SQL(" ").join(_case(number, check) for number, check in enumerate(checks)),
        columns=sql.SQL(", ").join(_typed(number, column) for number, (_, column) in enumerate(chosen)),
        arrays=sql.SQL(", ").join(names.trusted(f"${number}::text[]") for number in range(1, len(places) + 1)),
        names=sql.SQL(", ").join(map(_given, range(len(places)))),
    )
    return Compiled(query.as_string(None), places, tuple(check.name for check in checks), frozenset(functions))


def _case(number: int, check: Check) -> sql.Composed:
    # A line break ends a comment in an expression; its brackets were seen to be its own.
    return sql.SQL("when ({}\n) is false then {}").format(names.trusted(check.expression), number)


def _given(number: int) -> sql.Identifier:
    return sql.Identifier(f"c{number}")


def _typed(number: int, column: Column) -> sql.Composed:
    # Type and collation are what Postgres printed, and were seen to be nothing else when they were read.
    collate = f" collate {column.collation_name}" if column.collation_name else ""
    kind = names.trusted(f"{column.pg_type.formatted}{collate}")
    return sql.SQL("{}::{} as {}").format(_given(number), kind, sql.Identifier(column.name))


def _nodes(check: Check) -> tree.Nodes:
    """The nodes of an expression, seen to be one that a query of a client could have as its only condition."""
    try:
        (query,) = statements.parse(f"select from lake.lake_0 where ({check.expression}\n) is false")
    except ValueError:
        raise _refused(check) from None
    if not isinstance(query, statements.Select):
        raise _refused(check)
    condition = query.node.where_clause
    is_alone = isinstance(condition, tree.BooleanTest) and condition.booltesttype == pb.IS_FALSE
    alone = tree.SelectStmt(from_clause=query.node.from_clause, where_clause=condition)
    others = [part for part in query.nodes if isinstance(part, (tree.SelectStmt, tree.RangeVar, tree.ParamRef))]
    if not is_alone or len(others) != 2 or len(query.nodes) != len(tuple(tree.walk(alone))):
        raise _refused(check)
    plan.refuse_unserved(query.nodes)
    return query.nodes


def _column(check: Check, node: tree.ColumnRef, known: AbstractSet[str]) -> str:
    fields = node.fields or ()
    name = str(fields[0].sval) if len(fields) == 1 and isinstance(fields[0], tree.String) else None
    if name is None or name not in known:
        raise _refused(check)
    return name


def _refused(check: Check) -> NotServed:
    return NotServed(
        f"the lake server does not evaluate CHECK {check.name!r}",
        hint="make the table without it, and add a row trigger",
    )


class Checker:
    """Evaluates CHECKs in sessions of its own. For many threads."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._immutable: set[frozenset[str]] = set()

    def refuse_broken(self, table: str, checks: Compiled, texts: Sequence[Texts]) -> None:
        """CheckRefused when one of the rows, given by the columns that are looked at, breaks a CHECK."""
        for start in range(0, len(texts[0]), _AT_ONCE):
            broken = self._first_broken(checks, [column[start : start + _AT_ONCE] for column in texts])
            if broken is not None:
                raise CheckRefused(f'new row for relation "{table}" violates check constraint "{checks.names[broken]}"')

    def _first_broken(self, checks: Compiled, texts: Sequence[Texts]) -> int | None:
        with self._session() as connection:
            cursor = psycopg.RawCursor(connection)
            if checks.functions not in self._immutable:
                fallback.refuse_volatile(cursor, checks.functions)
                self._immutable.add(checks.functions)
            row = cursor.execute(checks.query.encode(), texts).fetchone()
        return None if row is None else int(row[0])

    @contextmanager
    def _session(self) -> Generator[psycopg.Connection]:
        connection = self._taken()
        try:
            yield connection
        except psycopg.Error as error:
            raise explained(error, connection, was_cancelled=False) from error
        finally:
            self._give_back(connection)

    def _give_back(self, connection: psycopg.Connection) -> None:
        with self._lock:
            if len(self._idle) < _KEPT and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _taken(self) -> psycopg.Connection:
        """One that waits and is still good, or a new one."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = fallback.connected(self._dsn)
                connection.autocommit = True
                connection.read_only = True
                return connection
            with suppress(psycopg.Error):
                connection.execute("")
                return connection
            connection.close()

    def close(self) -> None:
        """Give the sessions back."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
