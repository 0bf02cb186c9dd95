"""What Frostline is compared with, run the way its users run it."""

import itertools
from collections.abc import Generator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame

from benchmarks.world import World
from frostline.tiers import moment

RANGES = 8
_BLOCKS = """
select greatest(max(pg_relation_size(relid)), pg_relation_size('public.{name}')) / current_setting('block_size')::int
  from pg_partition_tree('public.{name}') where isleaf"""


@contextmanager
def shared_snapshot(world: World) -> Generator[str]:
    """A snapshot that other sessions can take."""
    with moment.exported(world.settings.dsn) as exported:
        yield exported.snapshot


def jdbc(world: World, name: str, snapshot: str, ranges: int = RANGES) -> DataFrame:
    """The table as Spark's JDBC reader gives it: so many ranges of blocks side by side, all of one snapshot.

    Every tutorial's advice is followed: a fetch size, ranges that need no index, and a session that takes the snapshot.
    """
    (blocks,) = world.ask(_BLOCKS.format(name=name))[0]
    edges = [int(str(blocks)) * number // ranges for number in range(ranges)] + [(1 << 32) - 1]
    predicates = [f"ctid >= '({low},0)' and ctid < '({high},0)'" for low, high in itertools.pairwise(edges)]
    address = conninfo_to_dict(world.settings.dsn)
    properties = {
        "user": str(address["user"]),
        "password": str(address["password"]),
        "driver": "org.postgresql.Driver",
        "fetchsize": "10000",
        "sessionInitStatement": f"begin isolation level repeatable read; set transaction snapshot '{snapshot}'",
    }
    url = f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
    return world.spark.read.jdbc(url, f"public.{name}", predicates=predicates, properties=properties)
