"""Whether the heap has the columns that its relation has. Those that were added can be followed, by `following`.

A job exports the columns that it knows. If a row leaves the heap, the values of any other column are lost. So every job
that makes rows leave looks here: when it begins, and once more when it holds a lock that keeps ALTER TABLE out.
"""

from collections.abc import Iterator, Mapping, Sequence

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, UsageError
from frostline.model.tables import Table
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "columns")


def require(connection: Connection, table: Table) -> None:
    """UsageError when the heap has other columns than its relation, overlay and lake; or as `require_unchanged`."""
    require_unchanged(connection, table)
    changed = difference(connection, table)
    if changed:
        raise UsageError(
            f"{table.heap} has other columns than its relation ({changed}): rows that leave it would lose values",
            hint=f"if columns were added: frostline table sync {table.name}; else alter it back, or give it up: "
            f"frostline table remove {table.name} --thaw",
        )


def require_unchanged(connection: Connection, table: Table) -> None:
    """ConflictError when a change was followed since `table` was read: two columns may have exchanged their names."""
    current = tables.by_id(connection, table.id)
    if (_known_by(current), current.key) != (_known_by(table), table.key):
        raise ConflictError(f"the columns of {table.name} have changed since the run began", hint="try again")


def _known_by(table: Table) -> list[tuple[str, int, str]]:
    return [(column.name, column.field_id, column.pg_type.formatted) for column in table.columns]


def difference(connection: Connection, table: Table) -> str | None:
    """What has changed since the table was added, in words; None when nothing has. Takes no lock."""
    known, present = _read(connection, table)
    carried = {column.name for column in tables.by_id(connection, table.id).columns}
    anew = [name for name in known if name in present and name not in carried]
    return ", ".join([*_differences(known, present), *_listed("it has made anew the column", anew)]) or None


def has_lost(connection: Connection, table: Table) -> bool:
    """Whether a column that the relation has was dropped from the heap."""
    known, _ = _read(connection, table)
    return len(tables.by_id(connection, table.id).columns) < len(known)


def only_added(connection: Connection, table: Table) -> bool:
    """Whether the heap has all columns that the relation has, as they were, and perhaps more behind them."""
    known, present = _read(connection, table)
    carried = [column.name for column in tables.by_id(connection, table.id).columns]
    return carried == list(known) and list(present.items())[: len(known)] == list(known.items())


def _read(connection: Connection, table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that are known and those that are there: names and types, in their order."""
    heap, overlay = names.identifier(table.heap).as_string(), names.overlay(table).as_string()
    statement = _statement("columns").format(heap=sql.Literal(heap), overlay=sql.Literal(overlay))
    known: dict[str, str] = {}
    present: dict[str, str] = {}
    for is_known, name, formatted in connection.execute(statement):
        (known if is_known else present)[name] = formatted
    return known, present


def _differences(known: Mapping[str, str], present: Mapping[str, str]) -> Iterator[str]:
    yield from _listed("it has no column", [name for name in known if name not in present])
    yield from _listed("it has a new column", [name for name in present if name not in known])
    kept = [name for name in known if name in present]
    yield from (f"column {name} is {present[name]} now" for name in kept if present[name] != known[name])
    if kept != [name for name in present if name in known]:
        yield "columns have changed their places"


def _listed(what: str, columns: Sequence[str]) -> Iterator[str]:
    if columns:
        yield f"{what} {', '.join(columns)}"
