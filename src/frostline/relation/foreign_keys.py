"""Foreign keys of a managed table hold for the rows that only the lake has: docs/design/foreign-keys.md.

Triggers on the tables that the heap references ask the lake. What they do is decided by functions of the catalog when
they fire, from the constraints as they are then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection
from frostline.errors import CorruptionError
from frostline.model.names import Name, quoted
from frostline.model.policy import ForeignKeys
from frostline.model.registration import Refusal
from frostline.model.tables import Table
from frostline.relation import names, objects
from frostline.relation.objects import Address, DatabaseObject, Kind

_statement = sqlfiles.statements(__name__, "foreign_keys")
_ACTIONS = {"a": "no action", "r": "restrict", "c": "cascade", "n": "set null", "d": "set default"}


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of a managed table."""

    constraint: str
    columns: tuple[str, ...]
    parent: Name
    on_delete: str
    on_update: str
    deferrable: bool
    obstacle: str | None
    """Why it cannot be held for rows in the lake, if so."""
    parent_is_managed: bool
    is_looked_up: bool = True
    """Whether the lake server can look for the rows of a key; if not, it reads all of them."""

    def __str__(self) -> str:
        actions = f"on delete {self.on_delete}, on update {self.on_update}"
        deferrable = ", deferrable" if self.deferrable else ""
        listed = ", ".join(map(quoted, self.columns))
        return f"{quoted(self.constraint)} ({listed}) references {self.parent} {actions}{deferrable}"

    def told(self, mode: ForeignKeys) -> str:
        """What it means for rows in the lake, and what it costs."""
        if mode is ForeignKeys.IGNORE:
            return f"{self}: ignored, rows in the lake stay when what they reference goes"
        if self.obstacle is not None:
            return f"{self}: cannot be held for rows in the lake, because {self.obstacle}"
        cost = "one look-up in the lake" if self.is_looked_up else "the lake read as a whole"
        rest = "; for rows of it that are not cold themselves" if self.parent_is_managed else ""
        return f"{self}: held, each DELETE of {self.parent} and UPDATE of its key costs {cost}{rest}"


def read(connection: Connection, table: Table) -> list[ForeignKey]:
    """The foreign keys of the heap."""
    pushable = {column.name for column in table.columns if column.encoding.pushable}
    rows = connection.execute(_statement("read").format(heap=_heap(connection, table))).fetchall()
    return [
        ForeignKey(
            constraint,
            tuple(columns),
            Name(schema, parent),
            _ACTIONS[on_delete],
            _ACTIONS[on_update],
            deferrable,
            obstacle,
            is_managed,
            not pushable.isdisjoint(columns),
        )
        for constraint, columns, schema, parent, on_delete, on_update, deferrable, obstacle, is_managed in rows
    ]


def refusals(connection: Connection, heap: Name) -> Iterator[Refusal]:
    """Why the foreign keys of a table that is to be managed cannot be held."""
    literal = sql.Literal(names.identifier(heap).as_string(connection))
    for schema, parent, me in connection.execute(_statement("forbidden").format(heap=literal)).fetchall():
        referenced = Name(schema, parent)
        hint = f"grant trigger on {referenced} to {quoted(me)}, or --foreign-keys ignore"
        yield Refusal(f"it references {referenced}, and {quoted(me)} may not put a trigger there", hint)


def told(connection: Connection, table: Table) -> list[str]:
    """What there is to say of the table's foreign keys, a line for each."""
    return [foreign_key.told(table.foreign_keys) for foreign_key in read(connection, table)]


def strayed(connection: Connection) -> list[Name]:
    """The tables that hold their foreign keys, and of which a trigger is missing or in a wrong place."""
    return [Name(*row) for row in connection.execute(_statement("strayed")).fetchall()]


def listed(connection: Connection, table: Table) -> list[DatabaseObject]:
    """The objects that hold the table's foreign keys, each after what it needs; not wanted where they are ignored."""
    heap = facts.relation(connection, table.heap)
    if heap is None:
        raise CorruptionError(f"the heap {table.heap} is gone", hint=f"frostline table adopt {table.name}")
    parents = _parents(connection, table)
    is_wanted = table.foreign_keys is ForeignKeys.HOLD and bool(parents)
    return [
        _door(table, heap.owner, is_wanted=is_wanted),
        _function(table, heap.owner, is_wanted=is_wanted),
        *(_triggers(table, parent) for parent in parents if is_wanted),
    ]


def unwanted(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """Drops triggers that stand where no foreign key leads any more."""
    function = sql.Literal(names.function(table, _VERB).as_string(connection))
    query = _statement("unwanted").format(function=function, heap=_heap(connection, table))
    for trigger, schema, parent in connection.execute(query).fetchall():
        yield _statement("drop_trigger").format(trigger=sql.Identifier(trigger), parent=sql.Identifier(schema, parent))


def statements(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """Makes the objects that are wanted."""
    for database_object in listed(connection, table):
        if database_object.is_wanted:
            yield from database_object.create


def drops(table: Table) -> Iterator[sql.Composed]:
    """Drops all of them, whatever is there."""
    yield objects.template("drop_function").format(function=names.function(table, _VERB))
    yield _statement("drop_door").format(door=_door_name(table))


_VERB = "children"


def _door_name(table: Table) -> sql.Identifier:
    return names.door(table, "foreign keys")


def _heap(connection: Connection, table: Table) -> sql.Literal:
    return sql.Literal(names.identifier(table.heap).as_string(connection))


def _parents(connection: Connection, table: Table) -> list[Name]:
    rows = connection.execute(_statement("parents").format(heap=_heap(connection, table))).fetchall()
    return [Name(*row) for row in rows]


def _door(table: Table, owner: str, *, is_wanted: bool) -> DatabaseObject:
    """What the lake's rows are written through, with columns called by the heap's attribute numbers."""
    door = _door_name(table)
    columns = names.COMMA.join(
        sql.SQL("{} as {}").format(names.column("i", column.name), sql.Identifier(f"c{column.attnum}"))
        for column in table.columns
    )
    create = _statement("door").format(
        door=door, columns=columns, inner=names.inner(table), owner=sql.Identifier(owner)
    )
    drop = _statement("drop_door").format(door=door)
    return DatabaseObject((Address(Kind.VIEW, door.as_string()),), (create,), drop, is_wanted=is_wanted)


def _function(table: Table, owner: str, *, is_wanted: bool) -> DatabaseObject:
    function = names.function(table, _VERB)
    hint = f"frostline up, or frostline serve; without the lake: frostline table set {table.name} --foreign-keys ignore"
    create = _statement("function").format(
        function=function,
        body=names.dollar_quote([str(table.name), str(table.heap)]),
        table_id=sql.Literal(table.id),
        heap=names.identifier(table.heap),
        hint=sql.Literal(hint),
    )
    signature = sql.Literal(function.as_string() + "()")
    own = _statement("own").format(signature=signature, owner=sql.Literal(owner))
    drop = objects.template("drop_function").format(function=function)
    return DatabaseObject((Address(Kind.FUNCTION, function.as_string()),), (create, own), drop, is_wanted=is_wanted)


def _triggers(table: Table, parent: Name) -> DatabaseObject:
    on_delete, on_update = trigger_names(table)
    create = _statement("triggers").format(
        on_delete=sql.Identifier(on_delete),
        on_update=sql.Identifier(on_update),
        parent=names.identifier(parent),
        function=names.function(table, _VERB),
    )
    return objects.triggers(names.identifier(parent), [on_delete, on_update], create)


def trigger_names(table: Table) -> Sequence[str]:
    """What the triggers on referenced tables are called: they fire before those of users, as Postgres' own do."""
    return f"!frostline_children_{table.id}_delete", f"!frostline_children_{table.id}_update"
