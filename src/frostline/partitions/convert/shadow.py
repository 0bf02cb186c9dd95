"""The shadow of a table that is being converted: a partitioned table like it, and the trigger that keeps it equal.

docs/design/conversion.md has the steps and why they are safe.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from frostline import failpoints, sqlfiles
from frostline.catalog import conversions
from frostline.catalog import facts as catalog_facts
from frostline.catalog.connect import Connection, only_row
from frostline.catalog.conversions import Running
from frostline.catalog.patience import patiently
from frostline.errors import ConflictError, UsageError
from frostline.failpoints import Failpoint
from frostline.model.conversion import NOT_NULL, Conversion, ConversionFacts, Extent, NewPartition, State
from frostline.model.names import Name
from frostline.model.tiers import TierKind, from_text, to_text
from frostline.partitions.new_partition import free_name
from frostline.relation import clock, names
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "shadow")


def _rows(connection: Connection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(_statement(name), values).fetchall()


def schema(running: Running) -> str:
    """Where the shadow is."""
    return f"frostline_convert_{running.id}"


def name(running: Running) -> Name:
    """The shadow: called like the table, in a schema of its own."""
    return Name(schema(running), running.name.table)


def function(running: Running) -> sql.Identifier:
    """The trigger function that keeps it equal."""
    return sql.Identifier(schema(running), "follow")


def extent(connection: Connection, facts: ConversionFacts, kind: TierKind) -> Extent:
    """What the tier key holds. Reads the whole table where it has no index by that column; no lock but a reader's."""
    parts = {"tier_key": sql.Identifier(facts.tier_key), "original": identifier(facts.heap.name)}
    *ends, has_null = only_row(connection.execute(_statement("extent").format(**parts)))
    lowest, highest = (None if text is None else from_text(kind, text) for text in ends)
    return Extent(lowest, highest, clock.time(connection, kind) if kind.is_time else 0, has_null=has_null)


@dataclass(frozen=True)
class Made:
    """A shadow as it was made."""

    running: Running
    statements: tuple[str, ...]


def make(
    connection: Connection, request: Conversion, facts: ConversionFacts, kind: TierKind, partitions: list[NewPartition]
) -> Made:
    """Make the empty shadow, its partitions, indexes and constraints. Inside the caller's transaction."""
    _hold_still(connection, facts)
    running = conversions.start(connection, request, facts.heap.oid)
    done: list[str] = []
    for statement in _statements(connection, running, facts, kind, partitions):
        connection.execute(statement)
        done.append(statement.as_string(connection))
    return Made(running, tuple(done))


def _hold_still(connection: Connection, facts: ConversionFacts) -> None:
    """Nobody alters the table before the transaction ends; ConflictError if somebody has since the facts were read."""
    connection.execute(_statement("hold_still").format(original=identifier(facts.heap.name)))
    if conversions.facts(connection, facts.heap.name, facts.tier_key) != facts:
        raise ConflictError(f"{facts.heap.name} was altered at this moment", hint="run the command again")


def _statements(
    connection: Connection, running: Running, facts: ConversionFacts, kind: TierKind, partitions: list[NewPartition]
) -> Iterator[sql.Composed]:
    oid, shadow, owner = facts.heap.oid, identifier(name(running)), sql.Identifier(facts.heap.owner)
    yield _statement("schema").format(schema=sql.Identifier(schema(running)), owner=owner)
    yield _statement("table").format(
        shadow=shadow,
        original=identifier(running.name),
        tier_key=sql.Identifier(facts.tier_key),
        tablespace=_tablespace(connection, oid),
        owner=owner,
    )
    yield from _partitions(connection, running, facts, kind, partitions)
    yield from _indexes(connection, running, facts)
    for query, values in (("settings", {"oid": oid}), ("surplus_grants", {})):
        for (text,) in _rows(connection, query, shadow=shadow.as_string(connection), **values):
            yield sql.Composed([trusted(text)])
    yield sync_function(running, facts)
    # Last, because they lock other tables.
    yield from _constraints(connection, running, oid, "f")


def _indexes(connection: Connection, running: Running, facts: ConversionFacts) -> Iterator[sql.Composed]:
    oid, shadow = facts.heap.oid, identifier(name(running))
    key_name = sql.Identifier(conversions.key_name(connection, oid))
    yield _statement("key").format(shadow=shadow, name=key_name, key=names.columns(None, facts.new_key))
    yield from _constraints(connection, running, oid, "u")
    for own, unique, definition in _rows(connection, "indexes", oid=oid):
        kept = sql.SQL("unique " if unique else "")
        parts = {"shadow": shadow, "name": sql.Identifier(own), "definition": trusted(definition)}
        yield _statement("index").format(unique=kept, **parts)


def _constraints(connection: Connection, running: Running, oid: int, kind: str) -> Iterator[sql.Composed]:
    """Those of this kind, as in `pg_constraint`."""
    for own, definition in _rows(connection, "constraints", oid=oid, kind=kind):
        parts = {"shadow": identifier(name(running)), "name": sql.Identifier(own)}
        yield _statement("constraint").format(definition=trusted(definition), **parts)


def _partitions(
    connection: Connection, running: Running, facts: ConversionFacts, kind: TierKind, partitions: list[NewPartition]
) -> Iterator[sql.Composed]:
    same = {
        "shadow": identifier(name(running)),
        "owner": sql.Identifier(facts.heap.owner),
        "options": _options(connection, facts.heap.oid),
    }
    for partition in partitions:
        upper = sql.SQL("maxvalue") if partition.upper is None else sql.Literal(to_text(kind, partition.upper))
        yield _statement("partition").format(
            partition=identifier(free_name(connection, partition.name)),
            lower=sql.Literal(to_text(kind, partition.lower)),
            upper=upper,
            **same,
        )
    own = identifier(free_name(connection, running.name.default_partition()))
    yield _statement("default_partition").format(partition=own, **same)


def _tablespace(connection: Connection, oid: int) -> sql.Composable:
    for (tablespace,) in _rows(connection, "tablespace", oid=oid):
        return sql.SQL(" tablespace {}").format(sql.Identifier(tablespace))
    return sql.SQL("")


def _options(connection: Connection, oid: int) -> sql.Composable:
    options = _rows(connection, "options", oid=oid)[0][0]
    return sql.SQL(" with ({})").format(sql.SQL(", ").join(map(trusted, options))) if options else sql.SQL("")


def columns(facts: ConversionFacts) -> list[str]:
    """The columns that are written; Postgres computes the others."""
    return [column.name for column in facts.heap.columns if not column.generated]


def sync_function(running: Running, facts: ConversionFacts) -> sql.Composed:
    """The function that makes the shadow follow a change."""
    written, key = columns(facts), facts.new_key
    assignments = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(column), names.column("excluded", column)) for column in written
    )
    texts = [running.name.schema, running.name.table, *(column.name for column in facts.heap.columns)]
    return _statement("sync_function").format(
        function=function(running),
        owner=sql.Identifier(facts.heap.owner),
        body=names.dollar_quote(texts),
        shadow=identifier(name(running)),
        original=identifier(running.name),
        key=names.columns(None, key),
        columns=names.columns(None, written),
        old_columns=names.columns("old", written),
        original_columns=names.columns("o", written),
        old_key=names.columns("old", key),
        new_key=names.columns("new", key),
        shadow_is_old=names.equal("s", "old", key),
        original_is_old=names.equal("o", "old", key),
        original_is_new=names.equal("o", "new", key),
        assignments=assignments,
    )


def sync(connection: Connection, running: Running, facts: ConversionFacts) -> None:
    """From now on no row gets a NULL tier key, and every change reaches the shadow. Harmless to repeat.

    Moments of ACCESS EXCLUSIVE and of SHARE ROW EXCLUSIVE on the original, in short tries.
    """
    column = facts.column
    assert column is not None
    if not column.not_null:
        _forbid_null(connection, running)

    def follow() -> None:
        parts = {"original": identifier(running.name), "function": function(running)}
        connection.execute(_statement("sync_triggers").format(**parts))
        conversions.move(connection, running, State.SYNCED)

    patiently(connection, running.name, follow)


def _forbid_null(connection: Connection, running: Running) -> None:
    """Only when that has been checked can no change be refused by the shadow."""
    parts = {"original": identifier(running.name), "name": sql.Identifier(NOT_NULL)}
    known = _rows(connection, "is_forbidden", oid=running.original, constraint=NOT_NULL)
    if not known:
        statement = _statement("forbid_null").format(tier_key=sql.Identifier(running.tier_key), **parts)
        patiently(connection, running.name, lambda: connection.execute(statement))
        failpoints.reached(Failpoint.CONVERT_FORBADE_NULL)
    if not known or not known[0][0]:
        _validate(connection, running, parts)


def _validate(connection: Connection, running: Running, parts: Mapping[str, sql.Composable]) -> None:
    try:
        connection.execute(_statement("validate").format(**parts))
    except psycopg.errors.CheckViolation:
        undo(connection, running)
        hint = f"update or delete them: where {running.tier_key} is null"
        raise UsageError(f"{running.tier_key} is NULL in some rows of {running.name}", hint=hint) from None
    failpoints.reached(Failpoint.CONVERT_VALIDATED)


def stop(connection: Connection, running: Running) -> None:
    """The original goes its way alone again. ACCESS EXCLUSIVE on it, inside the caller's transaction."""
    original = identifier(running.name)
    connection.execute(_statement("unsync").format(original=original, function=function(running)))
    connection.execute(_statement("allow_null").format(original=original, name=sql.Identifier(NOT_NULL)))


def undo(connection: Connection, running: Running) -> None:
    """Leave the original as it was before the conversion began. ACCESS EXCLUSIVE on it, in short tries."""

    def drop() -> None:
        relation = catalog_facts.relation(connection, running.name)
        if relation is not None and relation.oid == running.original:
            stop(connection, running)
        parts = {"shadow": identifier(name(running)), "schema": sql.Identifier(schema(running))}
        connection.execute(_statement("drop").format(function=function(running), **parts))
        conversions.move(connection, running, State.ABANDONED)

    patiently(connection, running.name, drop)
