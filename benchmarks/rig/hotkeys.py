"""Hot rows whose keys pgbench can name: it knows only numbers, so they lie at midnight, and 20241017 is such a day."""

from benchmarks.rig import data
from benchmarks.rig.pgbench import Mode
from benchmarks.world import World

FIRST, COUNT = 1_000_000_000, 20_000
NEW = 2_000_000_000
"""Keys from here on are free for what a case inserts."""
PICK = f"\\set id random({FIRST}, {FIRST + COUNT - 1})\n\\set day 20241001 + :id % 28\n"
DAY: dict[Mode, str] = {"prepared": ":day", "simple": "':day'"}
"""A prepared statement sends it as the text of a parameter; in simple text it needs quotes."""
VALUES = (
    '{id}, {day}, 7, \'ok\', 12.34, 21.5, true, null, \'{{"sensor": "s7", "unit": "C", "seq": 7, "battery": 77}}\', '
    "timestamp '2024-10-01'"
)


def add(world: World, table: str = "events", heap: str = "") -> None:
    """Insert them through the relation, whose heap gets them, or into a table that has none in its place."""
    rows = f"generate_series({FIRST}, {FIRST + COUNT - 1}) as i"
    world.run(f"insert into public.{table} ({data.COLUMNS}) select {values('i', day_of('i'))} from {rows}")
    world.run(f"vacuum analyze public.{heap or table}")


def values(row: str, day: str) -> str:
    """The SQL of a new row's columns."""
    return VALUES.format(id=row, day=day)


def day_of(row: str) -> str:
    """The SQL of the midnight of that row."""
    return f"timestamptz '2024-10-01 00:00+00' + make_interval(days => ({row} % 28)::int)"
