"""Lake tables of the benchmarks: five columns, as in the foreign table that they are compared with."""

from benchmarks.world import World
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.pipeline.lake_tables import Shown

COLUMNS = ("id bigint", "ts timestamptz", "device text", "value double precision", "note text")
ROWS = """
select i::bigint as id, timestamptz '2024-01-01 00:00+00' + i * interval '1 s' as ts, 'device ' || i % 1000 as device,
       i * 0.5::float8 as value, md5(i::text) as note
  from generate_series(1, {rows}) i"""


def make(world: World, name: str) -> None:
    """An empty one."""
    lake_tables.create(world.connection, world.settings, Name("public", name), COLUMNS, Layout())


def shown(world: World, name: str) -> Shown:
    """What it is now."""
    return lake_tables.show(world.connection, catalog.load(world.connection, Pointer("public", name)))


def snapshots(world: World, name: str) -> int:
    """How many it has had: nothing expires here."""
    return shown(world, name).snapshots
