"""The foreign table through which Postgres reads and writes a lake table.

Rights are those of the foreign table. Every role has the way to the lake server by one mapping for PUBLIC, whose
options Postgres shows to nobody but the owner of the foreign server; a role without rights on a foreign table has
nothing to send there, and one that may not use the server cannot make one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, tables
from frostline.catalog.connect import Connection, first_value
from frostline.errors import UsageError
from frostline.model.lake_tables import UNCHECKED, Check, RemoteLakeTable, remote_schema
from frostline.model.names import Name
from frostline.model.registration import HeapColumn
from frostline.model.tables import Column
from frostline.model.types import encoding
from frostline.relation import foreign_server, registration
from frostline.relation.names import identifier, trusted

_statement = sqlfiles.statements(__name__, "lake_table")
_WITH_COLUMNS = "rpfvm"


@dataclass(frozen=True)
class TakenOver:
    """What a lake table has of a table that it is to be like."""

    definitions: Sequence[tuple[str, str]] = ()
    checks: Sequence[Check] = ()
    comments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of columns, by their names."""
    comment: str | None = None
    left_behind: Sequence[str] = ()
    """What it does not have of it, in words."""


@dataclass(frozen=True)
class Made:
    """A foreign table, as Postgres has made it."""

    columns: tuple[Column, ...]
    checks: tuple[Check, ...]


NOTHING = TakenOver()


def create(
    connection: Connection,
    name: Name,
    definitions: Sequence[tuple[str, str]],
    key: Sequence[str] = (),
    like: TakenOver = NOTHING,
) -> Made:
    """In a transaction: make the foreign table, of columns by name and definition, and say what Postgres made of them.

    It asks for no table yet (`point_to`). A definition is SQL of whoever runs the command, with that role's rights.
    The columns of the key become NOT NULL.
    """
    foreign_server.require(connection)
    parts = [sql.SQL("{} {}").format(sql.Identifier(column), trusted(rest)) for column, rest in definitions]
    constraint = sql.SQL("constraint {} check ({})")
    parts += [constraint.format(sql.Identifier(check.name), trusted(check.expression)) for check in like.checks]
    statement = _statement("create").format(table=identifier(name), columns=sql.SQL(", ").join(parts))
    connection.execute(statement)
    for column in key:
        connection.execute(_statement("set_not_null").format(table=identifier(name), column=sql.Identifier(column)))
    _comment(connection, name, like)
    made = facts.relation(connection, name)
    assert made is not None
    return Made(columns(connection, made.oid), _held(connection, made.oid))


def _comment(connection: Connection, name: Name, like: TakenOver) -> None:
    if like.comment is not None:
        comment = sql.Literal(like.comment)
        connection.execute(_statement("comment_on_table").format(table=identifier(name), comment=comment))
    for column, text in like.comments.items():
        place = sql.Identifier(name.schema, name.table, column)
        connection.execute(_statement("comment_on_column").format(column=place, comment=sql.Literal(text)))


def _held(connection: Connection, oid: int) -> tuple[Check, ...]:
    """The CHECKs of a foreign table, all of which the lake server can hold; UsageError for one that it cannot."""
    checks = list[Check]()
    for name, expression, strange in _checks(connection, oid):
        if strange is not None:
            raise UsageError(
                f"CHECK {name} uses {strange}",
                hint="CHECKs are of built-in types and immutable functions; leave it out and add a row trigger",
            )
        checks.append(Check(name, expression))
    return tuple(checks)


def _checks(connection: Connection, oid: int) -> list[tuple[str, str, str | None]]:
    return connection.execute(_statement("checks").format(oid=sql.Literal(oid))).fetchall()  # pyright: ignore[reportReturnType]


def like(connection: Connection, name: Name) -> TakenOver:
    """What a lake table can have of this table. Of a managed one it is the heap that is looked at."""
    managed = tables.find(connection, name)
    source = facts.relation(connection, managed.heap if managed else name)
    if source is None:
        raise UsageError(f"table {name} does not exist", hint="check the schema")
    if source.relkind not in _WITH_COLUMNS:
        raise UsageError(f"{name} is no table", hint="--like takes a table, a view or a foreign table")
    read = facts.read_columns(connection, source.oid)
    checks = _checks(connection, source.oid)
    oid = sql.Literal(source.oid)
    left = [str(what) for (what,) in connection.execute(_statement("left_behind").format(oid=oid)).fetchall()]
    left += [f"constraint {check}: it uses {strange}" for check, _, strange in checks if strange is not None]
    return TakenOver(
        definitions=[(column.name, _definition(column)) for column in read],
        checks=[Check(check, expression) for check, expression, strange in checks if strange is None],
        comments={column.name: column.comment for column in read if column.comment is not None},
        comment=first_value(connection.execute(_statement("table_comment").format(oid=oid))),
        left_behind=left,
    )


def rights(
    connection: Connection, source: facts.Relation, name: Name, *, of_others: bool = True
) -> Iterator[sql.Composed]:
    """Statements that give the roles their rights on this relation on the foreign table, too, and its owner the use."""
    if source.owner != connection.info.user:
        yield _statement("grant_use").format(table=identifier(name), role=sql.Identifier(source.owner))
    if of_others:
        yield from registration.grants(connection, source.oid, identifier(name))


def declared(column: Column | HeapColumn) -> str:
    """What stands behind the name of such a column in its definition. All of it was printed by Postgres."""
    collate = f" collate {column.collation_name}" if column.collation_name is not None else ""
    return f"{column.pg_type.formatted}{collate}{' not null' if column.not_null else ''}"


def _definition(column: HeapColumn) -> str:
    default = f" default {column.default}" if column.default is not None and not column.identity else ""
    return declared(column) + default


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


def point_to(connection: Connection, name: Name, lake_table_id: int, schema_id: int | None = None) -> None:
    """Once, in the transaction that made it: let it ask for this lake table, with the columns of this schema of it.

    Without a schema, nobody looks whether its columns still are those of the lake table.
    """
    remote = sql.Literal(str(RemoteLakeTable(lake_table_id)))
    schema = sql.Literal(UNCHECKED if schema_id is None else remote_schema(schema_id))
    connection.execute(_statement("set_remote").format(table=identifier(name), schema=schema, remote=remote))


def asked_for(connection: Connection, name: Name) -> int | None:
    """The lake table that the foreign table of this name asks for; None when there is none."""
    statement = _statement("asked_for").format(schema=sql.Literal(name.schema), name=sql.Literal(name.table))
    asked = RemoteLakeTable.find(str(first_value(connection.execute(statement))))
    return None if asked is None else asked.lake_table_id


def foreign_tables(connection: Connection, lake_table_id: int) -> list[Name]:
    """Those of this database that ask for the lake table."""
    statement = _statement("foreign_tables").format(remote=sql.Literal(str(RemoteLakeTable(lake_table_id))))
    return [Name(*row) for row in connection.execute(statement).fetchall()]


def drop(connection: Connection, lake_table_id: int) -> None:
    """In a transaction: drop them. What depends on one of them is an error."""
    for name in foreign_tables(connection, lake_table_id):
        connection.execute(_statement("drop").format(table=identifier(name)))


def let_every_role_in(connection: Connection) -> None:
    """Let every role have a way to the lake server: the one that all of them share."""
    foreign_server.open_to_all(connection)
