"""What the cases about cold reads share: the queries that read a part of nine cold months, and the foreign tables they read it from."""

from collections.abc import Iterator

from benchmarks.rig import data
from benchmarks.world import World

SNAPSHOT = "(select snapshot_id from frostline.seam where table_id = {id})"


def moved(source: str, condition: str) -> str:
    """A query that brings all ten columns of the rows into Postgres, and sends back only how many there are.

    The count of whole rows keeps every column in the sub-select, and `offset 0` keeps the sub-select.
    """
    return f"select count(one) from (select {data.COLUMNS} from {source} where {condition} offset 0) as one"


def between(world: World, first: int, last: int, scale: float) -> str:
    """The condition for the rows from one id to before another: two plain times."""
    return f"ts >= '{moment(world, first, scale)}' and ts < '{moment(world, last, scale)}'"


def moment(world: World, row: int, scale: float) -> object:
    """The time of the row with that id."""
    return world.ask(f"select {data.ts_of(row, scale)}")[0][0]


def lake(world: World) -> tuple[str, str]:
    """The partitioned table over the foreign tables of `events`, and the condition that the relation pins it with."""
    table = world.table("events")
    return f'frostline_lake."{table.internal}"', f"frostline_snapshot = {SNAPSHOT.format(id=table.id)}"


def foreign_table(world: World) -> str:
    """The one foreign table that holds all cold rows of `events`."""
    ((name,),) = world.ask("select ftrelid::regclass::text from pg_foreign_table")
    return str(name)


def remote_name(world: World) -> str:
    """What the lake server is asked for when it is asked for the cold rows of `events`."""
    options = "select ftoptions from pg_foreign_table"
    ((given,),) = world.ask(
        f"select jsonb_object_agg(option_name, option_value) from ({options}) f, pg_options_to_table(ftoptions)"
    )
    assert isinstance(given, dict)
    return f'"{given["schema_name"]}"."{given["table_name"]}"'


def fetch_size(world: World) -> str:
    """How many rows of `events` travel in one go."""
    ((size,),) = world.ask(
        "select option_value from pg_foreign_table, pg_options_to_table(ftoptions) where option_name = 'fetch_size'"
    )
    return str(size)


def ids(count: int, scale: float) -> Iterator[int]:
    """So many ids of cold rows, all over the nine months, in no order."""
    cold = data.rows(scale) * 9 // data.MONTHS
    return (number * 7_368_787 % cold for number in range(1, count + 1))
