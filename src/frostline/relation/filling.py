"""Adds a column in steps where ALTER TABLE cannot, because each old row, cold ones too, needs a value of its own.

`pipeline.fill_columns` goes through them, with folds in between. Each step is a transaction and may be done again: what
is not done is in the catalog, and in rows that have NULL. docs/design/added-columns.md says why it is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import postgast
import psycopg
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, fillings, tables
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.catalog.fillings import Filling
from frostline.catalog.patience import patiently
from frostline.errors import CorruptionError
from frostline.model.names import MAX_BYTES, Name, cut
from frostline.model.tables import Table
from frostline.relation import altering, names
from frostline.relation.names import trusted

_statement = sqlfiles.statements(__name__, "filling")
_KINDS = {"a": "always", "d": "by default"}


@dataclass(frozen=True)
class NewColumn:
    """A column that a change would add."""

    name: str
    type: str
    collated: str | None
    default_value: str | None
    is_not_null: bool
    identity: str
    is_generated: bool
    has_sequence: bool
    """It brings one along: serial, or identity."""

    @property
    def can_be_filled(self) -> bool:
        """Whether there is an expression that gives old rows values."""
        return not self.is_generated and (self.default_value is not None or self.has_sequence)


def planned(connection: Connection, change: str) -> Sequence[NewColumn]:
    """The columns that a change adds; none if it does anything else, or what steps cannot do. Nothing stays of it."""
    if not _only_adds(change):
        return ()
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(_statement("trial"))
            connection.execute(_statement("tried").format(change=trusted(change)))
            if only_value(connection.execute(_statement("has_more"))):
                return ()
            added = fetch(connection, NewColumn, _statement("added"))
    except psycopg.Error:
        return ()
    return added if all(column.can_be_filled for column in added) else ()


def _only_adds(change: str) -> bool:
    """Whether it adds columns and does nothing else, not even choose how one is stored or counted."""
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
    has_options = any(each.contype == pb.CONSTR_IDENTITY and len(each.options) for each in constraints)
    return not (column.storage_name or column.compression or column.fdwoptions or has_options)


def begin(connection: Connection, table: Table, change: str, columns: Sequence[NewColumn]) -> None:
    """Add the columns, NULL in all rows. One transaction; ACCESS EXCLUSIVE on relation and heap, for a moment."""

    def add() -> None:
        for column in columns:
            sequence = _sequence(table, column) if column.has_sequence else None
            value = f"nextval({_literal(sequence)})" if sequence else column.default_value
            assert value is not None
            if sequence:
                owner = sql.Identifier(_owner(connection, table))
                made = {"sequence": trusted(sequence), "type": trusted(column.type), "owner": owner}
                connection.execute(_statement("make_sequence").format(**made))
            typed = f"{_quoted(column.name)} {column.type} {column.collated or ''}"
            altering.alter_inside(connection, table, f"add column {typed}")
            filling = Filling(column.name, change, value, sequence, column.is_not_null, column.identity)
            if sequence:
                connection.execute(_statement("own_sequence").format(**_parts(table, filling)))
            fillings.begin(connection, table, filling)

    patiently(connection, table.name, add)


def set_default(connection: Connection, table: Table, filling: Filling) -> None:
    """New rows have a value from now on. ACCESS EXCLUSIVE on relation and heap, for a moment; harmless to repeat."""
    change = f"alter column {_quoted(filling.name)} set default {filling.default_value}"
    patiently(connection, table.name, lambda: altering.alter_inside(connection, table, change))


def fill(connection: Connection, table: Table, filling: Filling, inside: sql.Composable) -> int:
    """Give rows that have NULL, and hold the condition, a value; returns how many. One transaction."""
    with connection.transaction():
        connection.execute(_statement("as_owner").format(owner=sql.Identifier(_owner(connection, table))))
        return connection.execute(_statement("fill").format(inside=inside, **_parts(table, filling))).rowcount


def finish(connection: Connection, table: Table, filling: Filling) -> None:
    """When all rows have a value: NOT NULL, and identity. Nobody is kept out while rows are looked at."""
    check = cut(filling.name, MAX_BYTES - len("_is_there")) + "_is_there"
    if filling.is_not_null:
        _have_check(connection, table, filling, check)
        named = {"heap": names.identifier(table.heap), "constraint": sql.Identifier(check)}
        connection.execute(_statement("validate").format(**named))
    patiently(connection, table.name, lambda: _last_step(connection, table, filling, check))


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
        altering.alter_inside(connection, table, f"{column} add generated {_KINDS[filling.identity]} as identity")
        connection.execute(_statement("go_on").format(**_parts(table, filling)))
    fillings.forget(connection, table, filling)


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
    return {
        "relation": names.identifier(table.relation),
        "heap": heap,
        "heap_text": sql.Literal(heap.as_string()),
        "column": sql.Identifier(filling.name),
        "column_text": sql.Literal(filling.name),
        "value": trusted(filling.default_value),
        "sequence": trusted(sequence),
        "sequence_text": sql.Literal(sequence),
    }


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def _literal(text: str) -> str:
    return sql.Literal(text).as_string()
