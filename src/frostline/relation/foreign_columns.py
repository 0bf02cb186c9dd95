"""Brings the columns of a foreign table in line with its lake table's, which another engine may have changed.

Columns are matched by their Iceberg ids, so one that was renamed keeps its place, its default, its rights and the views
upon it. From then on the foreign table names the schema that it was made for, and the lake server refuses it as soon as
its columns mean something else: docs/design/lake-tables.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection, first_value
from frostline.errors import UsageError
from frostline.model.lake_tables import UNCHECKED, remote_schema
from frostline.model.names import Name
from frostline.model.registration import HeapColumn
from frostline.model.tables import Column
from frostline.model.types import PgType
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "lake_table")
_ASIDE = "frostline_column_{}"
"""What a column is called for a moment, so that two can exchange their names."""


@dataclass(frozen=True)
class Present:
    """A column of a foreign table, and what it is called in the lake table."""

    column: HeapColumn
    remote: str

    @property
    def has_own_name(self) -> bool:
        """Whether somebody has given it another name in Postgres."""
        return self.column.name != self.remote


def changes(
    connection: Connection,
    name: Name,
    known: Mapping[str, Mapping[str, int]],
    wanted: Sequence[Column],
    schema_id: int,
) -> list[sql.Composed]:
    """The statements that bring a foreign table in line, in their order. Changes nothing.

    `known` has the names of the columns and their ids, by the schema that a foreign table names.
    """
    stated = first_value(connection.execute(_statement("remote_schema").format(table=_literal(name))))
    present = _present(connection, name, known.get(stated or UNCHECKED, known[UNCHECKED]))
    by_id = {column.field_id: column for column in wanted}
    kept = {number: foreign for number, foreign in present.items() if number in by_id}
    gone = [foreign for number, foreign in present.items() if number not in by_id]
    renamed = {
        n: foreign for n, foreign in kept.items() if foreign.remote != by_id[n].name and not foreign.has_own_name
    }
    statements = [_made("drop_column", name, column=sql.Identifier(foreign.column.name)) for foreign in gone]
    statements += [_renamed(name, foreign.column.name, _ASIDE.format(number)) for number, foreign in renamed.items()]
    statements += [_renamed(name, _ASIDE.format(number), by_id[number].name) for number in renamed]
    statements += _altered(name, kept, by_id)
    if stated != remote_schema(schema_id):
        statement = "set_schema" if stated is not None else "add_schema"
        statements.append(_made(statement, name, schema=sql.Literal(remote_schema(schema_id))))
    return statements


def _present(connection: Connection, name: Name, ids: Mapping[str, int]) -> dict[int, Present]:
    """The columns of the foreign table by the ids of the lake table's; one that it never had is left alone."""
    relation = facts.relation(connection, name)
    if relation is None:
        raise UsageError(f"there is no foreign table {name}", hint="frostline lake list")
    statement = _statement("remote_names").format(table=_literal(name))
    remote: dict[str, str] = dict(connection.execute(statement).fetchall())
    columns = [Present(column, remote[column.name]) for column in facts.read_columns(connection, relation.oid)]
    return {ids[foreign.remote]: foreign for foreign in columns if foreign.remote in ids}


def _altered(name: Name, kept: Mapping[int, Present], wanted: Mapping[int, Column]) -> Iterator[sql.Composed]:
    """What is to be altered once the columns have their names."""
    for number, column in wanted.items():
        foreign = kept.get(number)
        local = sql.Identifier(foreign.column.name if foreign is not None and foreign.has_own_name else column.name)
        if foreign is None:
            yield _made("add_column", name, column=local, type=_type(column))
        elif foreign.has_own_name and foreign.remote != column.name:
            yield _made("point_column", name, column=local, remote=sql.Literal(column.name))
        if foreign is not None and _kind(foreign.column) != _kind(column):
            yield _made("retype_column", name, column=local, type=_type(column))
        if column.not_null != (foreign is not None and foreign.column.not_null):
            yield _made("require_column" if column.not_null else "relax_column", name, column=local)


def _kind(column: HeapColumn | Column) -> tuple[PgType, str | None]:
    return column.pg_type, column.collation_name


def _type(column: Column) -> sql.Composed:
    collation = f" collate {column.collation_name}" if column.collation_name else ""
    return trusted(column.pg_type.formatted) + trusted(collation)


def _renamed(name: Name, old: str, new: str) -> sql.Composed:
    return _made("rename_column", name, old=sql.Identifier(old), new=sql.Identifier(new))


def _made(statement: str, name: Name, **gaps: sql.Composable) -> sql.Composed:
    return _statement(statement).format(table=identifier(name), **gaps)


def _literal(name: Name) -> sql.Literal:
    return sql.Literal(str(name))
