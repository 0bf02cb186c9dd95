"""Adds a column in steps where ALTER TABLE cannot, because each old row, cold ones too, needs a value of its own.

`pipeline.fill_columns` goes through them, with folds in between. Each step is a transaction and may be done again: what
is not done is in the catalog, and in rows that have NULL. docs/design/added-columns.md says why it is right.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString

import postgast
import psycopg
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, fillings, tables, trust
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.catalog.fillings import Filling
from frostline.catalog.patience import patiently
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tables import Table
from frostline.relation import altering, names
from frostline.relation.names import trusted
from frostline.relation.views import line

_statement = sqlfiles.statements(__name__, "filling")
_KINDS = {"a": "always", "d": "by default"}
_COUNTED_BY = {"increment", "minvalue", "maxvalue", "start", "cache", "cycle"}
_GENERATED = {"s": "stored", "v": "virtual"}
_TRIES = 10
_UNFILLED = "_unfilled"
"""What a generated column has behind its name while cold rows lack its value."""


@dataclass(frozen=True)
class NewColumn:
    """A column that a change would add."""

    name: str
    type: str
    collated: str | None
    default_value: str | None
    is_not_null: bool
    identity: str
    generated: str
    """As `pg_attribute.attgenerated`: '' if it is none."""
    has_sequence: bool
    """It brings one along: serial, or identity."""
    options: str
    """Those of its sequence, as CREATE SEQUENCE takes them; '' if they are the usual ones."""

    @property
    def can_be_filled(self) -> bool:
        """Whether there is an expression that gives old rows values."""
        return self.default_value is not None or self.has_sequence


def planned(connection: Connection, table: Table, change: str) -> Sequence[NewColumn]:
    """The columns that a change adds; none if it does anything else, or what steps cannot do. Nothing stays of it."""
    if not _only_adds(change):
        return ()
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(_statement("trial").format(heap=names.identifier(table.heap)))
            known = only_value(connection.execute(_statement("known")))
            connection.execute(_statement("tried").format(change=trusted(change)))
            connection.execute(_statement("in_full"))
            if only_value(connection.execute(_statement("has_more"))):
                return ()
            added = fetch(connection, NewColumn, _statement("added").format(known=sql.Literal(known)))
    except psycopg.Error:
        return ()
    return added if all(column.can_be_filled for column in added) else ()


def _only_adds(change: str) -> bool:
    """Whether it adds columns and does nothing else: not even say how one is stored, or what its sequence is called."""
    try:
        statements = postgast.parse(f"alter table t {change}").stmts
    except postgast.PgQueryError:
        return False
    if len(statements) != 1 or statements[0].stmt.WhichOneof("node") != "alter_table_stmt":
        return False
    commands = [command.alter_table_cmd for command in statements[0].stmt.alter_table_stmt.cmds]
    return all(command.subtype == pb.AT_AddColumn and _is_plain(command) for command in commands)


def _is_plain(command: pb.AlterTableCmd) -> bool:
    definition: pb.Node = getattr(command, "def")
    column = definition.column_def
    constraints = [each.constraint for each in column.constraints]
    options = {option.def_elem.defname for each in constraints for option in each.options}
    return not (column.storage_name or column.compression or column.fdwoptions or options - _COUNTED_BY)


def begin(connection: Connection, table: Table, change: str, columns: Sequence[NewColumn]) -> None:
    """Add the columns, NULL in all rows, and generated ones as Postgres does in the heap. One transaction.

    ACCESS EXCLUSIVE on relation and heap, for a moment, or while Postgres writes the heap anew.
    """

    def add() -> None:
        for column in columns:
            (_add_generated if column.generated else _add)(connection, table, change, column)

    patiently(connection, table.name, add)


def _add(connection: Connection, table: Table, change: str, column: NewColumn) -> None:
    sequence = _sequence(table, column) if column.has_sequence else None
    value = f"nextval({_literal(sequence)})" if sequence else column.default_value
    assert value is not None
    if sequence:
        owner = sql.Identifier(_owner(connection, table))
        made = {"sequence": trusted(sequence), "type": trusted(column.type), "owner": owner}
        connection.execute(_statement("make_sequence").format(options=trusted(column.options), **made))
    typed = f"{_quoted(column.name)} {column.type} {column.collated or ''}"
    altering.alter_inside(connection, table, f"add column {typed}")
    filling = Filling(column.name, change, value, sequence, column.is_not_null, column.identity)
    if sequence:
        connection.execute(_statement("own_sequence").format(**_parts(table, filling)))
    fillings.begin(connection, table, filling)


def _add_generated(connection: Connection, table: Table, change: str, column: NewColumn) -> None:
    """Under a name that says that it is not done; what the heap has of the lake's rows is marked."""
    _require_sight(connection, table)
    name = cut(column.name, MAX_BYTES - len(_UNFILLED)) + _UNFILLED
    value = column.default_value
    assert value is not None
    filling = Filling(name, change, value, None, column.is_not_null, "", becomes=column.name)
    fillings.begin(connection, table, filling)
    typed = f"{_quoted(name)} {column.type} {column.collated or ''}"
    altering.alter_inside(
        connection, table, f"add column {typed} generated always as ({value}) {_GENERATED[column.generated]}"
    )
    trust.require(connection, table)
    statement = _statement("mark_waiting").format(
        columns=names.columns(None, [known.name for known in tables.by_id(connection, table.id).columns]),
        line=line(table),
        **_parts(table, filling),
    )
    connection.execute(statement)


def set_default(connection: Connection, table: Table, filling: Filling) -> None:
    """New rows have a value from now on. ACCESS EXCLUSIVE on relation and heap, for a moment; harmless to repeat."""
    change = f"alter column {_quoted(filling.name)} set default {filling.default_value}"
    patiently(connection, table.name, lambda: altering.alter_inside(connection, table, change))


def fill(connection: Connection, table: Table, filling: Filling, inside: sql.Composable) -> int:
    """Give rows that lack one, and hold the condition, a value; returns how many. One transaction.

    It is tried again when somebody writes such a row meanwhile; ConflictError when that happens each time.
    """
    for _ in range(_TRIES):
        with suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return _fill(connection, table, filling, inside)
    raise ConflictError(
        f"rows of {table.name} keep being written, and column {filling.name} is not filled yet",
        hint="run the command again: it goes on where it stopped",
    )


def _fill(connection: Connection, table: Table, filling: Filling, inside: sql.Composable) -> int:
    statement = _statement("fill" if filling.becomes is None else "bring")
    with connection.transaction():
        connection.execute(_statement("as_owner").format(owner=sql.Identifier(_owner(connection, table))))
        return connection.execute(statement.format(inside=inside, **_parts(table, filling))).rowcount


def finish(connection: Connection, table: Table, filling: Filling) -> None:
    """When all rows have a value: NOT NULL, identity, and a generated column's name. Nobody is kept out meanwhile."""
    if filling.becomes is not None:
        _require_filled(connection, table, filling)
    check = cut(filling.name, MAX_BYTES - len("_is_there")) + "_is_there"
    if filling.is_not_null:
        _have_check(connection, table, filling, check)
        named = {"heap": names.identifier(table.heap), "constraint": sql.Identifier(check)}
        connection.execute(_statement("validate").format(**named))
    patiently(connection, table.name, lambda: _last_step(connection, table, filling, check))


def _require_filled(connection: Connection, table: Table, filling: Filling) -> None:
    """UsageError while a row has another value than Postgres computes: a trigger may have kept it as it is.

    What holds for a row once goes on to hold: all that is written later comes through the heap.
    """
    _require_sight(connection, table)
    if _asked(connection, table, "is_lacking", **_parts(table, filling)):
        give_up = f"alter table {names.identifier(table.heap).as_string()} drop column {_quoted(filling.name)}"
        raise UsageError(
            f"column {filling.name} of {table.heap} cannot become {filling.becomes}: some rows lack its value",
            hint=f"look for triggers that keep rows as they are, then run the command again; to give it up: {give_up}",
        )


def _require_sight(connection: Connection, table: Table) -> None:
    """UsageError when row security could keep rows from the owner, who fills them and looks for those that are not."""
    heap = names.identifier(table.heap).as_string()
    if _asked(connection, table, "is_kept", heap_text=sql.Literal(heap)):
        raise UsageError(
            f"row security of {table.heap} is forced upon its owner, who must see all rows",
            hint=f"alter table {heap} no force row level security; then run the command again",
        )


def _asked(connection: Connection, table: Table, question: LiteralString, **parts: sql.Composable) -> bool:
    """The answer that the table's owner gets."""
    with connection.transaction(force_rollback=True):
        connection.execute(_statement("as_owner").format(owner=sql.Identifier(_owner(connection, table))))
        return only_value(connection.execute(_statement(question).format(**parts)))


def _have_check(connection: Connection, table: Table, filling: Filling, check: str) -> None:
    values = {"heap_oid": sql.Literal(tables.heap_oid(connection, table)), "constraint_name": sql.Literal(check)}
    if not only_value(connection.execute(_statement("is_checked").format(**values))):
        change = f"add constraint {_quoted(check)} check ({_quoted(filling.name)} is not null) not valid"
        patiently(connection, table.name, lambda: altering.alter_inside(connection, table, change))


def _last_step(connection: Connection, table: Table, filling: Filling, check: str) -> None:
    column = f"alter column {_quoted(filling.name)}"
    if filling.is_not_null:
        altering.alter_inside(connection, table, f"{column} set not null")
        altering.alter_inside(connection, table, f"drop constraint {_quoted(check)}")
    if filling.identity:
        altering.alter_inside(connection, table, f"{column} drop default")
        connection.execute(_statement("disown_sequence").format(**_parts(table, filling)))
        options = only_value(connection.execute(_statement("options").format(**_parts(table, filling))))
        generated = f"generated {_KINDS[filling.identity]} as identity {options}"
        altering.alter_inside(connection, table, f"{column} add {generated}")
        connection.execute(_statement("go_on").format(**_parts(table, filling)))
    fillings.forget(connection, table, filling)
    if filling.becomes is not None:
        renamed = f"rename column {_quoted(filling.name)} to {_quoted(filling.becomes)}"
        altering.alter_inside(connection, table, renamed)


def _owner(connection: Connection, table: Table) -> str:
    heap = facts.relation(connection, table.heap)
    if heap is None:
        raise CorruptionError(f"the heap {table.heap} is gone", hint=f"frostline table adopt {table.name}")
    return heap.owner


def _sequence(table: Table, column: NewColumn) -> str:
    """As Postgres calls one; not the name that it gives the identity's in the end."""
    stem = f"{table.name.table}_{column.name}"
    return names.identifier(Name(table.name.schema, cut(stem, MAX_BYTES - len("_numbers")) + "_numbers")).as_string()


def _parts(table: Table, filling: Filling) -> dict[str, sql.Composable]:
    heap, sequence = names.identifier(table.heap), filling.sequence_name or ""
    compared = {"column": sql.Identifier(filling.name), "value": trusted(filling.default_value)}
    return {
        **compared,
        "is_unlike": _statement("is_unlike").format(**compared),
        "overlay": names.overlay(table),
        "tier_key": sql.Identifier(table.tier_key),
        "relation": names.identifier(table.relation),
        "heap": heap,
        "heap_text": sql.Literal(heap.as_string()),
        "column_text": sql.Literal(filling.name),
        "sequence": trusted(sequence),
        "sequence_text": sql.Literal(sequence),
    }


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def _literal(text: str) -> str:
    return sql.Literal(text).as_string()
