"""Whether the heap has the columns that its relation has. Those that were added can be followed, by `following`.

A job exports the columns that it knows. If a row leaves the heap, the values of any other column are lost. So every job
that makes rows leave looks here: when it begins, and once more when it holds a lock that keeps ALTER TABLE out.
"""

from collections.abc import Iterator, Sequence

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import facts, generator, tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model import columns
from frostline.model.names import quoted
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "columns")


def require(connection: Connection, table: Table) -> None:
    """UsageError when the heap has other columns than its relation, overlay and lake.

    ConflictError when a change was followed since `table` was read: two columns may have exchanged their names.
    """
    tables.require_unaltered(connection, table)
    changed = difference(connection, table)
    if changed:
        raise UsageError(
            f"{table.heap} has other columns than its relation ({changed}): rows that leave it would lose values",
            hint=f"if columns were added or renamed: frostline table sync {table.name}; else alter it back, or give it "
            f"up: frostline table remove {table.name} --thaw",
        )


def require_known(connection: Connection, table: Table) -> None:
    """UsageError when a column that the relation has is called otherwise in the heap. That may have more of them.

    For what writes or deletes rows of the heap by the names that the relation has: two may have been exchanged.
    """
    known, present = _read(connection, table)
    if list(present)[: len(known)] != list(known):
        raise UsageError(
            f"{table.heap} has other columns than its relation ({columns.difference(known, present)}): "
            "rows would get each other's values",
            hint=f"frostline table sync {table.name}; if that is refused, alter it back",
        )


def difference(connection: Connection, table: Table) -> str | None:
    """What has changed since the table was added, in words; None when nothing has. Takes no lock."""
    known, present = _read(connection, table)
    carried = {column.name for column in tables.by_id(connection, table.id).columns}
    differences = [columns.difference(known, present, known.keys() - carried), *_kept(connection, table)]
    return ", ".join(filter(None, differences)) or None


def has_lost(connection: Connection, table: Table) -> bool:
    """Whether a column that the relation has was dropped from the heap."""
    known, _ = _read(connection, table)
    return len(tables.by_id(connection, table.id).columns) < len(known)


def only_added(connection: Connection, table: Table) -> bool:
    """Whether the heap has all columns that the relation has, as they were, and perhaps more behind them."""
    known, present = _read(connection, table)
    if any(_other_key(connection, table)) or any(generator.changed_generations(connection, table.id).values()):
        return False
    carried = [column.name for column in tables.by_id(connection, table.id).columns]
    return carried == list(known) and list(present.items())[: len(known)] == list(known.items())


def _kept(connection: Connection, table: Table) -> Iterator[str]:
    """What should have stayed as it was, and has not."""
    yield from _other_key(connection, table)
    for name, is_computed in generator.changed_generations(connection, table.id).items():
        yield f"column {name} is {'computed otherwise' if is_computed else 'not computed any more'}"


def _other_key(connection: Connection, table: Table) -> Iterator[str]:
    """Overlay and lake know rows by the key that the table had when it was added."""
    known, present = (
        tables.by_id(connection, table.id).key,
        facts.primary_key(connection, tables.heap_oid(connection, table)),
    )
    if set(known) != set(present):
        yield f"its primary key is {_key(present)}, no longer {_key(known)}"


def _key(key: Sequence[str]) -> str:
    return f"({', '.join(map(quoted, key))})" if key else "none"


def _read(connection: Connection, table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that are known and those that are there: names and types, in their order."""
    heap, overlay = names.identifier(table.heap).as_string(), names.overlay(table).as_string()
    statement = _statement("columns").format(heap=sql.Literal(heap), overlay=sql.Literal(overlay))
    known: dict[str, str] = {}
    present: dict[str, str] = {}
    for is_known, name, formatted in connection.execute(statement):
        (known if is_known else present)[name] = formatted
    return known, present
