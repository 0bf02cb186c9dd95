"""Brings a table's objects in Postgres to what this version makes of the heap as it is now."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import generator, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.patience import patiently
from frostline.errors import FrostlineError
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.relation import names, objects
from frostline.relation.objects import DatabaseObject, SequenceRight

_statement = sqlfiles.statements(__name__, "plans")

WRITING = ("update", "delete")
"""The functions that keep one plan for all rows they write into the heap, where Postgres prunes it well.

Not the marking function: it asks the lake, and a plan for known values may ask less of it.
"""
PRUNED_SINCE = 18_00_00
"""Before, the executor prepares every partition that a kept plan may write. With many that costs more than planning."""
_log = logging.getLogger(__name__)
_LOOK_S = 5.0
"""How long it is tried to see what is there: a start does not wait for somebody who rewrites a table."""


def renew(connection: Connection) -> list[Name]:
    """Renew what is not of this version, or not of the heap as it is, and return whose it was.

    A table that is broken, stays in use or is another role's keeps its objects; Frostline must start all the same.
    """
    return [name for name in tables.names(connection) if _tried(connection, name)]


def _tried(connection: Connection, name: Name) -> bool:
    try:
        # What it is made of is printed under ACCESS SHARE, which somebody's DDL may keep from us for long.
        table = patiently(connection, name, lambda: tables.get(connection, name), patience_s=_LOOK_S)
        return table.has_lake and renew_table(connection, table)
    except (FrostlineError, psycopg.Error) as error:
        _log.warning("%s", logs.fields(stage="renew", table=str(name), warning=first_line(error)))
        return False


def renew_table(connection: Connection, table: Table) -> bool:
    """Renew the objects of one table that are not current; says whether there were any.

    For a function no table is locked. For a view, a rule or a trigger it is ACCESS EXCLUSIVE on that view, for the one
    trigger on the heap, and on the overlay, SHARE ROW EXCLUSIVE on that, tried for a moment at a time.
    """
    if patiently(connection, table.name, lambda: is_current(connection, table), patience_s=_LOOK_S):
        return False
    patiently(connection, table.name, lambda: replace_objects(connection, table))
    return True


def replace_objects(connection: Connection, table: Table) -> None:
    """Inside a transaction: put the objects of this version, for the heap as it is now, in the place of the others."""
    let_guard_pass(connection)
    generator.lock_objects(connection, table.id)
    for statement in _changes(connection, table):
        connection.execute(statement)
    for statement in kept_plans(connection, table):
        connection.execute(statement)
    generator.follow_keys(connection, table.id)
    record(connection, table)


def _changes(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """What differs is made anew, each after what it needs; then goes what is not wanted, before what it needs."""
    state = _State.read(connection, table)
    ours = [database_object for database_object in state.objects if not database_object.holds_keys]
    for database_object in ours:
        if database_object.is_wanted and (database_object.follows or not state.is_current(database_object)):
            yield from database_object.create
    for database_object in reversed(ours):
        if database_object.drop is not None and not database_object.is_wanted and not state.is_current(database_object):
            yield database_object.drop


def kept_plans(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """What makes the table's functions keep their plans; nothing for those that do."""
    if connection.info.server_version < PRUNED_SINCE:
        return
    for verb in WRITING:
        function = names.function(table, verb)
        literal = sql.Literal(function.as_string(connection) + "()")
        if connection.execute(_statement("plans_anew").format(function=literal)).fetchone() is not None:
            yield _statement("keep_plan").format(function=function)


def let_guard_pass(connection: Connection) -> None:
    """For the rest of the transaction: the event trigger on row security knows that it is us."""
    connection.execute(sql.SQL("set local frostline.renewing = 'on'"))


def record(connection: Connection, table: Table, granted: Iterable[SequenceRight] = ()) -> None:
    """Say of which version the objects are that this transaction has made, and which rights it has given."""
    state = _State.read(connection, table)
    rights = [*objects.recorded_rights(state.recorded), *granted]
    digests = {**dict.fromkeys((right.key for right in rights), ""), **state.digests}
    generator.set_object_digests(connection, table.id, digests)


def is_current(connection: Connection, table: Table) -> bool:
    """Whether the table's objects are of this version, and still what it made. Waits for whoever keeps readers out."""
    state = _State.read(connection, table)
    return all(map(state.is_current, state.objects))


@dataclass(frozen=True)
class _State:
    """The objects of a table as they are there, beside what was written down when they were made."""

    objects: tuple[DatabaseObject, ...]
    present: frozenset[str]
    """The keys of those that are there, or of which a part is."""
    digests: Mapping[str, str]
    """What stands for the statements of this version, for the server, and for the object as Postgres has it."""
    recorded: Mapping[str, str]

    @classmethod
    def read(cls, connection: Connection, table: Table) -> "_State":
        states = [(objects.described(**state.object), state) for state in generator.state(connection, table.id)]
        return cls(
            tuple(database_object for database_object, _ in states),
            frozenset(state.key for _, state in states if state.is_present),
            {state.key: state.digest for database_object, state in states if database_object.is_wanted},
            generator.object_digests(connection, table.id),
        )

    def is_current(self, database_object: DatabaseObject) -> bool:
        """Whether nothing is to be done for this one."""
        if not database_object.is_wanted:
            return database_object.key not in self.present
        return (
            database_object.key in self.present
            and self.recorded.get(database_object.key) == self.digests[database_object.key]
        )
