"""The moment in which a converted table changes places with its shadow, and all that belongs to it changes hands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from frostline import failpoints, sqlfiles
from frostline.catalog import conversions
from frostline.catalog.connect import Connection, first_line, only_row
from frostline.catalog.conversions import Running
from frostline.catalog.patience import patiently
from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.model import conversion as rules
from frostline.model.conversion import State
from frostline.model.names import Name
from frostline.partitions.convert import shadow
from frostline.relation import dependents
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "swap")


def _rows(connection: Connection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(_statement(name), values).fetchall()


def old(running: Running) -> Name:
    """Where the table is after the swap: called as ever, in a schema of its own."""
    return Name(f"frostline_old_{running.id}", running.name.table)


@dataclass(frozen=True)
class _Sequence:
    """A sequence that a column of the table owns."""

    name: sql.SQL
    column: sql.Identifier
    identity: str
    """As in `pg_attribute`; empty for a serial column."""
    options: sql.SQL
    increment: int
    grants: tuple[str, ...]


@dataclass(frozen=True)
class _Belongings:
    """What must be at the new table when the old one has gone: read while it still has its name."""

    owner: str
    statements: tuple[str, ...]
    statistics: tuple[str, ...]
    sequences: tuple[_Sequence, ...]
    dependents: dependents.Dependents


def swap(connection: Connection, running: Running) -> None:
    """Give the shadow the table's name and what belongs to it. All or nothing.

    ACCESS EXCLUSIVE on the table and on the views that read it, in short tries: nobody queues behind us for longer.
    """
    try:
        patiently(connection, running.name, lambda: _swap(connection, running))
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.InternalError) as error:
        raise UsageError(
            f"{running.name} cannot change places with its copy: {first_line(error)}",
            hint=f"correct that and run it again, or: frostline table convert {running.name} --abandon",
        ) from error


def _swap(connection: Connection, running: Running) -> None:
    connection.execute(_statement("lock").format(original=identifier(running.name)))
    check_unchanged(connection, running)
    belongings = _read(connection, running)
    shadow.stop(connection, running)
    for statement in _statements(connection, running, belongings):
        connection.execute(statement)
    conversions.move(connection, running, State.SWAPPED)
    failpoints.reached(Failpoint.CONVERT_BEFORE_COMMIT)


def check_unchanged(connection: Connection, running: Running) -> None:
    """Refuse to go on with a copy of what is not there any more."""
    facts = conversions.facts(connection, running.name, running.tier_key)
    again = f"frostline table convert {running.name} --abandon, then convert it again"
    if facts.heap.oid != running.original or conversions.shape(connection, running.original) != running.shape:
        raise UsageError(f"{running.name} was altered while it was converted", hint=again)
    reasons = rules.refusals(facts)
    if reasons:
        reason = "; ".join(refusal.reason for refusal in reasons)
        raise UsageError(
            f"cannot convert {running.name}: {reason}", hint="\n".join(refusal.hint for refusal in reasons)
        )


def _read(connection: Connection, running: Running) -> _Belongings:
    oid = running.original
    return _Belongings(
        owner=conversions.facts(connection, running.name, running.tier_key).heap.owner,
        statements=tuple(text for (text,) in _rows(connection, "belongings", oid=oid)),
        statistics=tuple(text for (text,) in _rows(connection, "statistics", oid=oid)),
        sequences=tuple(_sequence(connection, row) for row in _rows(connection, "sequences", oid=oid)),
        dependents=dependents.read(connection, oid),
    )


def _sequence(connection: Connection, row: tuple[Any, ...]) -> _Sequence:
    name, column, identity, options, increment = row
    grants = tuple(text for (text,) in _rows(connection, "sequence_grants", sequence=name))
    return _Sequence(trusted(name), sql.Identifier(column), identity, trusted(options), increment, grants)


def _statements(connection: Connection, running: Running, belongings: _Belongings) -> Iterator[sql.Composed]:
    after = [statement for sequence in belongings.sequences for statement in _hand_over(connection, running, sequence)]
    old_schema = sql.Identifier(old(running).schema)
    owner, original = sql.Identifier(belongings.owner), identifier(running.name)
    yield _statement("step_aside").format(old_schema=old_schema, owner=owner, original=original)
    for statistics in belongings.statistics:
        yield _statement("move_statistics").format(statistics=trusted(statistics), schema=old_schema)
    yield _statement("step_in").format(
        shadow=identifier(shadow.name(running)),
        schema=sql.Identifier(running.name.schema),
        shadow_schema=sql.Identifier(shadow.schema(running)),
    )
    yield from after
    yield from (sql.Composed([trusted(text)]) for text in belongings.statements)
    yield from dependents.statements(belongings.dependents)


def _hand_over(connection: Connection, running: Running, sequence: _Sequence) -> Iterator[sql.Composed]:
    """Take the sequence from the old table at once; yields what gives it to the new one, its next value kept."""
    table, parts = identifier(running.name), {"sequence": sequence.name, "column": sequence.column}
    if not sequence.identity:
        connection.execute(_statement("disown").format(**parts))
        yield _statement("own").format(table=table, old=identifier(old(running)), **parts)
        return
    connection.execute(_statement("freeze_sequence").format(increment=sql.Literal(sequence.increment), **parts))
    value, is_called = only_row(connection.execute(_statement("sequence_value").format(**parts)))
    connection.execute(_statement("drop_identity").format(original=table, **parts))
    how = sql.SQL("always" if sequence.identity == "a" else "by default")
    yield _statement("add_identity").format(table=table, how=how, options=sequence.options, **parts)
    name = sql.Literal(sequence.name.as_string(connection))
    yield _statement("set_sequence").format(sequence=name, value=value, is_called=is_called)
    yield from (sql.Composed([trusted(text)]) for text in sequence.grants)


def drop_old(connection: Connection, running: Running) -> bool:
    """Drop the table that has stepped aside, and say whether it is gone. It stays while something depends on it."""
    parts = {"old": identifier(old(running)), "old_schema": sql.Identifier(old(running).schema)}
    try:
        patiently(connection, old(running), lambda: connection.execute(_statement("drop_old").format(**parts)))
    except psycopg.errors.DependentObjectsStillExist:
        return False
    return True
