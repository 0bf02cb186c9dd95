"""A batch whose cold rows become files of the lake: its table, and the claims on the keys."""

import secrets
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import batches
from frostline.catalog.connect import Connection, only_row, only_value
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.relation import columns, names, renewal, staging
from frostline.relation.staging import Stage

_statement = sqlfiles.statements(__name__, "loading")


def _value(connection: Connection, statement: sql.Composed) -> Any:
    return only_value(connection.execute(statement))


def may_publish(connection: Connection, table: Table) -> bool:
    """Whether this role may put files into the lake of the table."""
    overlay = sql.Literal(names.overlay(table).as_string(connection))
    return _value(connection, _statement("may_publish").format(overlay=overlay))


def obstacle(connection: Connection, table: Table) -> str | None:
    """Why rows of this table cannot go into the lake as files, if so."""
    reason: str | None = _value(connection, _statement("obstacle").format(**_literals(connection, table)))
    if reason is None and not renewal.is_current(connection, table):
        return "its marking function is of an older version: frostline init renews it"
    if reason is None and columns.difference(connection, table):
        return f"its heap has other columns than its relation: frostline table sync {table.name}"
    return reason


def cold_rows(connection: Connection, stage: Stage, attempts: Sequence[int], table: Table, line: int) -> int:
    """How many rows of these attempts lie below the line."""
    key = sql.Identifier(stage.staged(table.tier_key))
    parts = {"tier_key": key, "line": _line(table, line), "won": staging.won(stage, attempts)}
    return _value(connection, _statement("cold_rows").format(**parts))


@contextmanager
def made(
    connection: Connection, stage: Stage, attempts: Sequence[int], table: Table, line: int
) -> Generator["Loading"]:
    """The rows of these attempts in a table of the heap's shape. It is dropped as a stage is."""
    with empty(connection, table) as load:
        load.fill(stage, attempts, line)
        yield load


@contextmanager
def empty(connection: Connection, table: Table) -> Generator["Loading"]:
    """The same without a row yet."""
    load = Loading(connection, table, f"batch_{secrets.token_hex(12)}")
    try:
        with connection.transaction():
            load.create()
            batches.hold(connection, load.name.table)
        yield load
    finally:
        if not connection.closed:
            staging.drop(connection, load.name.table)


class Loading:
    """The table with the rows of one batch as the heap would have them."""

    def __init__(self, connection: Connection, table: Table, name: str) -> None:
        self._connection = connection
        self._table = table
        self._written = [column.name for column in table.columns if not column.generated]
        self.name = Name(batches.SCHEMA, name)
        self.live = 0
        """How many rows go into files."""
        self._shape = self._current_shape()
        self._parts: dict[str, sql.Composable] = {
            "load": names.identifier(self.name),
            "heap": names.identifier(table.heap),
            "relation": names.identifier(table.relation),
            "overlay": names.overlay(table),
            "key": names.columns(None, table.key),
            "tier_key": sql.Identifier(table.tier_key),
            "written": names.columns(None, self._written),
            "marked": names.columns(None, names.marked(table)),
        }

    def _run(self, name: str, **more: sql.Composable) -> int:
        return self._connection.execute(_statement(name).format(**self._parts, **more)).rowcount

    def create(self) -> None:
        """Make the table."""
        self._run("create")

    def fill(self, stage: Stage, attempts: Sequence[int], line: int) -> None:
        """Bring in the rows of these attempts; an error when one breaks a constraint, or a key is there twice."""
        with self._connection.transaction():
            tier_key = sql.Identifier(stage.staged(self._table.tier_key))
            parts = {
                "values": self._values(stage),
                "won": staging.won(stage, attempts),
                "line": _line(self._table, line),
            }
            self._connection.execute(_statement("fill").format(**self._parts | parts | {"tier_key": tier_key}))
            self._settle()
        self.live = _value(self._connection, _statement("live_rows").format(**self._parts))

    def copy(self, lines: Iterable[memoryview]) -> int:
        """Bring in rows as lines of COPY's text, inside a transaction; returns how many they are.

        An error when one breaks a constraint.
        """
        with self._connection.cursor() as cursor:
            with cursor.copy(_statement("copy").format(**self._parts)) as copy:
                for line in lines:
                    copy.write(line)
            return cursor.rowcount

    def settle(self, line: int, left: Sequence[tuple[int | None, int]] = ()) -> None:
        """Say which of the copied rows go into files: those below the line, in none of these ranges, without a mark.

        An error when a key is there twice.
        """
        with self._connection.transaction():
            self._run("leave_hot", line=_line(self._table, line))
            for lower, upper in left:
                self._run("leave_range", inside=names.within(self._table, lower, upper))
            self._settle()
        self.live = _value(self._connection, _statement("live_rows").format(**self._parts))

    def _settle(self) -> None:
        self._run("index")
        self._run("index_tier")
        self._run("analyze")
        self._run("leave_marked", mark_is_row=names.equal("m", "l", self._table.key))
        self._run("analyze")

    def _values(self, stage: Stage) -> sql.Composed:
        """For each column what the batch has, else what the relation would put there."""
        text = _statement("defaults").format(**_literals(self._connection, self._table))
        defaults = dict(self._connection.execute(text).fetchall())
        given = {column.name for column in stage.columns}
        return sql.SQL(", ").join(
            names.column("s", stage.staged(name)) if name in given else names.trusted(defaults.get(name) or "null")
            for name in self._written
        )

    def has_row(self, lower: int | None, upper: int | None) -> bool:
        """Whether a row that goes into a file lies in [lower, upper)."""
        inside = names.within(self._table, lower, upper)
        return _value(self._connection, _statement("has_row").format(**self._parts, inside=inside))

    def key_of(self, hash_expression: sql.Composable, key_hash: int) -> tuple[str, ...]:
        """The key that has the hash, as Postgres writes it."""
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(names.column("l", name)) for name in self._table.key)
        more = {"key_texts": texts, "key_hash": hash_expression, "hash": sql.Literal(key_hash)}
        return only_row(self._connection.execute(_statement("key_of").format(**self._parts, **more)))

    def is_known(self, key: Sequence[str]) -> bool:
        """Whether the relation has a row with that key."""
        pairs = zip(map(sql.Identifier, self._table.key), map(sql.Literal, key), strict=True)
        same = sql.SQL(" and ").join(sql.SQL("{} = {}").format(name, text) for name, text in pairs)
        return _value(self._connection, _statement("is_known").format(**self._parts, key_is_same=same))

    def claim(self) -> bool:
        """In the publishing transaction: nobody else can mark one of the keys before it ends. False: somebody has.

        The heap keeps the shape that it had when the rows were brought in; False if it has another one.
        """
        self._run("lock_heap")
        if self._current_shape() != self._shape or obstacle(self._connection, self._table):
            return False
        return self._run("claim") == self.live

    def insert_rest(self) -> int:
        """Write the rows that do not go into files through the relation, and say how many they are."""
        return self._run("rest")

    def unclaim(self) -> None:
        """Take the claims away again. Whoever waits for one goes on when the transaction has ended."""
        self._run("unclaim", mark_is_row=names.equal("o", "l", self._table.key))

    def _current_shape(self) -> list[str]:
        return _value(self._connection, _statement("shape").format(**_literals(self._connection, self._table)))


def _literals(connection: Connection, table: Table) -> dict[str, sql.Composable]:
    """Heap and relation as names for `regclass`."""
    named = {"heap": table.heap, "relation": table.relation}
    return {part: sql.Literal(names.identifier(name).as_string(connection)) for part, name in named.items()}


def _line(table: Table, line: int) -> sql.Literal:
    return sql.Literal(to_text(table.tier_kind, line))
