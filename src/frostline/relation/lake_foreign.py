"""The foreign table through which Postgres reads and writes a lake table.

Rights are those of the foreign table. Every role has the way to the lake server by a mapping for PUBLIC, whose options
Postgres shows to nobody but the owner of the foreign server; who has no rights on a foreign table has nothing to send
there, and who may not use the server cannot make one.
"""

from collections.abc import Sequence

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection, only_value
from frostline.errors import UsageError
from frostline.model.lake_tables import remote_name
from frostline.model.names import Name
from frostline.model.tables import Column
from frostline.model.types import encoding
from frostline.relation import foreign_server
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "lake_table")


def create(connection: Connection, name: Name, definitions: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    """In a transaction: make the foreign table, of columns by name and definition, and say what Postgres made of them.

    It asks for no table yet (`point_to`). A definition is SQL of whoever runs the command, with that role's rights.
    """
    foreign_server.require(connection)
    listed = [sql.SQL("{} {}").format(sql.Identifier(column), trusted(rest)) for column, rest in definitions]
    statement = _statement("create").format(
        table=identifier(name), columns=sql.SQL(", ").join(listed), remote=sql.Literal(remote_name(0))
    )
    connection.execute(statement)
    made = facts.relation(connection, name)
    assert made is not None
    return columns(connection, made.oid)


def columns(connection: Connection, oid: int) -> tuple[Column, ...]:
    """The columns of a table as a lake table has them."""
    read = facts.read_columns(connection, oid)
    generated = [column.name for column in read if column.generated]
    if generated:
        raise UsageError(f"column {generated[0]} is generated", hint="a lake table has plain columns only")
    return tuple(
        Column(
            name=column.name,
            attnum=place,
            field_id=place,
            pg_type=column.pg_type,
            encoding=encoding(column.pg_type, column.collation),
            collation=column.collation,
            collation_name=column.collation_name,
            not_null=column.not_null,
        )
        for place, column in enumerate(read, 1)
    )


def point_to(connection: Connection, name: Name, lake_table_id: int) -> None:
    """In the transaction that made it: let it ask for this lake table."""
    remote = sql.Literal(remote_name(lake_table_id))
    connection.execute(_statement("set_remote").format(table=identifier(name), remote=remote))


def foreign_tables(connection: Connection, lake_table_id: int) -> list[Name]:
    """Those of this database that ask for the lake table."""
    statement = _statement("foreign_tables").format(remote=sql.Literal(remote_name(lake_table_id)))
    return [Name(*row) for row in connection.execute(statement).fetchall()]


def drop(connection: Connection, lake_table_id: int) -> None:
    """In a transaction: drop them. What depends on one of them is an error."""
    for name in foreign_tables(connection, lake_table_id):
        connection.execute(_statement("drop").format(table=identifier(name)))


def let_every_role_in(connection: Connection) -> None:
    """Make the mapping for PUBLIC, with the credentials of the connected role's own."""
    if only_value(connection.execute(_statement("public_mapping").format())):
        return
    _, mapping = foreign_server.options(connection)
    if not mapping or "password" not in mapping:
        return
    literals = {key: sql.Literal(mapping[key]) for key in ("user", "password")}
    connection.execute(_statement("create_public_mapping").format(**literals))
