"""The foreign tables of a node: of another Postgres than the catalog's, which reads and writes its lake tables.

All that a node needs to know of a lake table is in the table's metadata file, so here are the steps that make its
foreign table what that file says. Everything happens in the caller's transaction. docs/design/many-nodes.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection, first_value, only_value
from frostline.errors import UsageError
from frostline.model.lake_tables import RemoteLakeTable, remote_schema
from frostline.model.names import MAX_BYTES, Name, quoted
from frostline.model.registration import HeapColumn
from frostline.model.tables import Column
from frostline.model.types import Collation
from frostline.relation import foreign_columns, foreign_server
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "node_tables")
_BYTES = 'pg_catalog."C"'
_SYSTEM_COLUMNS = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")


@dataclass(frozen=True)
class Attached:
    """A foreign table of a lake table."""

    oid: int
    name: Name
    lake_table_id: int


def lock(connection: Connection) -> None:
    """Until the transaction ends, nobody else attaches or detaches here."""
    connection.execute(_statement("lock"))


def require_catalog(connection: Connection, identity: str) -> None:
    """Refuse a node of another catalog: the numbers in its foreign tables would be those of other tables."""
    known = first_value(connection.execute(_statement("catalog").format()))
    if known not in (None, identity):
        raise UsageError(
            f"database {connection.info.dbname} is a node of another catalog: {known}, not {identity}",
            hint="name that one, or give up what was attached: frostline lake detach",
        )


def set_catalog(connection: Connection, identity: str) -> None:
    """Write down whose node it is, where everybody may read it."""
    connection.execute(_statement("set_catalog").format(identity=sql.Literal(identity)))


def attached(connection: Connection) -> list[Attached]:
    """Those that this database has."""
    listed = connection.execute(_statement("attached")).fetchall()
    known = ((oid, Name(schema, table), RemoteLakeTable.find(asked)) for oid, schema, table, asked in listed)
    return [Attached(oid, name, asked.lake_table_id) for oid, name, asked in known if asked is not None]


def types(connection: Connection, columns: Sequence[Column]) -> dict[str, str | None]:
    """What the types of these columns consist of that are not Postgres' own; None for one that is not there."""
    listed = sorted({column.pg_type.formatted for column in columns if not column.pg_type.builtin})
    return dict(connection.execute(_statement("types"), {"types": listed}).fetchall())


def require_names(table: Name, columns: Sequence[Column]) -> None:
    """Refuse a table that another engine has given names which Postgres cuts, or has for itself."""
    called = [table.table, *(column.name for column in columns)]
    wrong = [name for name in called if not 0 < len(name.encode()) <= MAX_BYTES]
    wrong += [column.name for column in columns if column.name in _SYSTEM_COLUMNS]
    if wrong:
        raise UsageError(
            f"{table} has the name {quoted(wrong[0])} in it, which Postgres does not take",
            hint=f"rename it with the engine that made it: 1 to {MAX_BYTES} bytes, and none of "
            + ", ".join(_SYSTEM_COLUMNS),
        )


def create(connection: Connection, name: Name, lake_table_id: int, columns: Sequence[Column], schema_id: int) -> None:
    """Make the foreign table for this schema of the lake table, and its own schema if it is not there."""
    require_names(name, columns)
    schema = sql.Identifier(name.schema)
    if not only_value(connection.execute(_statement("has_schema"), {"schema": name.schema})):
        connection.execute(_statement("create_schema").format(schema=schema))
    definitions = [_definition(column) for column in columns]
    statement = _statement("create").format(
        table=identifier(name),
        columns=sql.SQL(", ").join(definitions),
        schema=sql.Literal(remote_schema(schema_id)),
        remote=sql.Literal(str(RemoteLakeTable(lake_table_id))),
    )
    try:
        connection.execute(statement)
    except psycopg.errors.DuplicateTable:
        raise UsageError(f"there is another {name} here", hint="--schema SCHEMA, or rename it") from None
    _agree(connection, name, columns)


def _definition(column: Column) -> sql.Composed:
    not_null = sql.SQL(" not null" if column.not_null else "")
    return sql.SQL("{} {}{}").format(sql.Identifier(column.name), _type(column), not_null)


def _type(column: Column) -> sql.Composed:
    collation = trusted(f" collate {column.collation_name}" if column.collation_name else "")
    return sql.SQL("{}{}").format(trusted(column.pg_type.formatted), collation)


def _bytewise(column: Column) -> sql.Composed:
    return _type(replace(column, collation_name=_BYTES))


def _agree(connection: Connection, name: Name, columns: Sequence[Column]) -> None:
    """Text that the catalog's Postgres compares by its bytes has to be compared so here, whatever the default is."""
    present = {column.name: column for column in _present(connection, name)}
    for column in columns:
        here = present[column.name].collation
        if column.collation is Collation.BYTES and column.collation_name is None and here is not Collation.BYTES:
            called = sql.Identifier(column.name)
            statement = _statement("set_type").format(table=identifier(name), column=called, type=_bytewise(column))
            connection.execute(statement)
        elif not column.collation.holds_of(here):
            raise UsageError(
                f"column {quoted(column.name)} of {name} has a collation that compares otherwise here",
                hint=f"make the type or collation {column.collation_name or column.pg_type.formatted} as it is in the "
                "catalog's database",
            )


def _present(connection: Connection, name: Name) -> tuple[HeapColumn, ...]:
    made = facts.relation(connection, name)
    assert made is not None
    return facts.read_columns(connection, made.oid)


def follow(
    connection: Connection,
    table: Attached,
    known: Mapping[str, Mapping[str, int]],
    columns: Sequence[Column],
    schema_id: int,
) -> list[str]:
    """Give a foreign table the columns that the lake table has now, by their ids, and say what was changed.

    `known` has the names that they have or had, as `foreign_columns.changes` wants them.
    """
    before = _present(connection, table.name)
    require_names(table.name, columns)
    try:
        wanted = _as_here(before, columns)
        for statement in foreign_columns.changes(connection, table.name, known, wanted, schema_id):
            connection.execute(statement)
    except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.FeatureNotSupported) as error:
        raise UsageError(  # the second is for a column in a view that would get another type
            f"cannot bring {table.name} up to date: {error.diag.message_primary}",
            hint=f"drop what depends on it first: {error.diag.message_detail}",
        ) from None
    done = list(_differences(before, _present(connection, table.name)))
    if done:
        _agree(connection, table.name, columns)
    return done


def _as_here(present: Sequence[HeapColumn], columns: Sequence[Column]) -> list[Column]:
    """The columns with the collations that they have here, where those are right for them."""
    here = {column.name: column.collation_name for column in present}
    return [
        replace(column, collation_name=_BYTES)
        if column.collation_name is None and column.collation is Collation.BYTES and here.get(column.name) == _BYTES
        else column
        for column in columns
    ]


def _differences(before: Sequence[HeapColumn], after: Sequence[HeapColumn]) -> Iterator[str]:
    then, now = {column.name: column for column in before}, {column.name: column for column in after}
    yield from (f"-{quoted(name)}" for name in sorted(then.keys() - now.keys()))
    for name, column in now.items():
        if name not in then:
            yield f"+{quoted(name)}"
        elif column != then[name]:
            yield f"~{quoted(name)}"


def drop(connection: Connection, table: Attached) -> None:
    """Take a foreign table away. What depends on it is an error."""
    try:
        connection.execute(_statement("drop").format(table=identifier(table.name)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise UsageError(
            f"cannot drop {table.name}: {error.diag.message_primary}",
            hint=f"drop what depends on it first: {error.diag.message_detail}",
        ) from None


def drop_all(connection: Connection) -> list[Name]:
    """Take away what attach has made: foreign tables, mapping, server, and schemas if nothing else is in them."""
    gone = attached(connection)
    for table in gone:
        drop(connection, table)
    if foreign_server.options(connection)[0] is not None:
        connection.execute(_statement("drop_server"))
    for (schema,) in connection.execute(_statement("own_schemas")).fetchall():
        connection.execute(_statement("drop_schema").format(schema=sql.Identifier(schema)))
    return [table.name for table in gone]


def missing_types(here: Mapping[str, str | None], there: Mapping[str, str | None]) -> dict[str, str]:
    """What is wrong with types, by their names: not here, or made of something else than in the catalog's database."""
    wrong = dict[str, str]()
    for name, definition in here.items():
        if definition is None:
            wrong[name] = "is not in this database"
        elif there.get(name) not in (None, definition):
            wrong[name] = f"is {definition} here and {there[name]} in the catalog's database"
    return wrong
