"""Copies a table into its shadow in the order of the primary key, a few rows at a time, each time in a transaction."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import failpoints, sqlfiles
from frostline.catalog import conversions, patience
from frostline.catalog.connect import Connection
from frostline.catalog.conversions import Running
from frostline.errors import UnavailableError
from frostline.failpoints import Failpoint
from frostline.model.conversion import ConversionFacts
from frostline.partitions.convert import shadow
from frostline.relation import names
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "conversion")

FIRST_BATCH_ROWS = 500
MAX_BATCH_ROWS = 10_000
BATCH_S = 0.05
"""A writer may have to wait for one batch, so batches are made to take about this long."""


@dataclass(frozen=True)
class Batch:
    """Rows that were copied together, and the key of the last of them."""

    position: tuple[str, ...]
    rows: int


def fill(connection: Connection, running: Running, facts: ConversionFacts, report: Callable[[int], None]) -> None:
    """Copy what is not copied yet, and write down that it is done; `report` hears how many rows are there."""
    size, rows = FIRST_BATCH_ROWS, running.rows
    position = running.position
    while True:
        began = time.monotonic()
        batch, size = _patiently(connection, running, facts, position, size)
        if batch is None:
            break
        failpoints.reached(Failpoint.CONVERT_COPIED_ONE)
        position, rows = batch.position, rows + batch.rows
        report(rows)
        size = _next_size(size, time.monotonic() - began)
    conversions.filled(connection, running)


def _patiently(
    connection: Connection, running: Running, facts: ConversionFacts, position: Sequence[str] | None, size: int
) -> tuple[Batch | None, int]:
    """The next batch, and of which size it was: where a row is locked, smaller and smaller ones are tried.

    What we have locked ourselves must not make others wait for whoever has that row.
    """
    deadline = time.monotonic() + patience.PATIENCE_S
    while True:
        try:
            return _copy(connection, running, facts, position, size), size
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"a row of {running.name} is still locked",
                    hint="end the transaction that holds it, then run the command again: it goes on where it stopped",
                ) from None
            size = max(size // 8, 1)


def _next_size(size: int, took_s: float) -> int:
    if took_s > BATCH_S * 2:
        return max(size // 2, 1)
    return min(size * 2, MAX_BATCH_ROWS) if took_s < BATCH_S else size


def _copy(
    connection: Connection, running: Running, facts: ConversionFacts, position: Sequence[str] | None, size: int
) -> Batch | None:
    with connection.transaction():
        patience.set_lock_timeout(connection)
        connection.execute(_statement("by_index"))
        after = sql.SQL("true") if position is None else _compared(facts, sql.SQL(">"), position)
        end = connection.execute(_batch_end(running, facts, after, size)).fetchone()
        if end is None:
            return None
        until = _compared(facts, sql.SQL("<="), end[0])
        connection.execute(_statement("as_owner").format(owner=sql.Identifier(facts.heap.owner)))
        rows = connection.execute(_copied(running, facts, after, until)).rowcount
        connection.execute(_statement("as_ourselves"))
        conversions.copied(connection, running, end[0], rows)
    return Batch(tuple(end[0]), rows)


def _batch_end(running: Running, facts: ConversionFacts, after: sql.Composable, size: int) -> sql.Composed:
    key = facts.heap.primary_key
    texts = (sql.SQL("{}::text").format(names.column("batch", column)) for column in key)
    descending = (sql.SQL("{} desc").format(names.column("batch", column)) for column in key)
    return _statement("batch_end").format(
        texts=sql.SQL(", ").join(texts),
        key=names.columns("o", key),
        original=identifier(running.name),
        after=after,
        size=size,
        descending=sql.SQL(", ").join(descending),
    )


def _copied(running: Running, facts: ConversionFacts, after: sql.Composable, until: sql.Composable) -> sql.Composed:
    written = shadow.columns(facts)
    return _statement("copy").format(
        shadow=identifier(shadow.name(running)),
        columns=names.columns(None, written),
        original_columns=names.columns("o", written),
        original=identifier(running.name),
        after=after,
        until=until,
        new_key=names.columns(None, facts.new_key),
    )


def _compared(facts: ConversionFacts, operator: sql.SQL, position: Sequence[str]) -> sql.Composed:
    """The condition that a row's key lies after the position, or not."""
    types = {column.name: column.pg_type.formatted for column in facts.heap.columns}
    key = facts.heap.primary_key
    values = [
        sql.SQL("{}::{}").format(sql.Literal(text), trusted(types[column]))
        for column, text in zip(key, position, strict=True)
    ]
    return sql.SQL("({}) {} ({})").format(names.columns("o", key), operator, sql.SQL(", ").join(values))
