"""How fast is a snapshot of twenty tables, and how does that compare with one Spark job a table?

Ten million rows (times the scale) in twenty tables of six columns, four of each of five shapes. A snapshot is timed from its beginning to
its publish: one moment for all tables, copy, proof of every value, one commit. In turn with it, Spark reads each table through JDBC, in
ranges of blocks under a snapshot of that table alone, and writes Parquet with zstd, one table after the other, as scripts do; it proves and
commits nothing. Both have copied one table of each shape before the clock starts.
"""

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import LiteralString, cast

from benchmarks.question import Measure, Question
from benchmarks.rig import others
from benchmarks.sample import Sample, watched
from benchmarks.world import Lab, World
from frostline.catalog.connect import connect
from frostline.model import snapshot as patterns
from frostline.pipeline import snapshot
from frostline.pipeline.snapshot_plan import Request

ROUNDS = 2
ROWS = 10_000_000
TABLES_A_SHAPE = 4
RANGES = 4
"""Of a table of half a million rows: more of them would cost Spark more than they save it on a machine of few cores."""
SHAPES = {
    "orders": """i as id, hashint8(i) & 65535 as customer, (array['new', 'paid', 'sent', 'done'])[1 + (hashint8(i) & 3)] as status,
        ((hashint8(i + 1) & 999999) / 100.0)::numeric(12,2) as amount, timestamptz '2024-01-01 00:00+00' + i * interval '1 s' as placed,
        case when i % 10 = 0 then 'note ' || i end as note""",
    "readings": """i as id, hashint8(i) & 1023 as device, timestamptz '2024-01-01 00:00+00' + i * interval '1 s' as at,
        15 + (hashint8(i) & 255) / 10.0::float8 as temperature, i % 7 <> 0 as ok, 'C'::text as unit""",
    "people": """i as id, 'name ' || (hashint8(i) & 1048575) as name, date '1950-01-01' + (hashint8(i) & 16383) as born,
        'city ' || (hashint8(i + 1) & 255) as city, i % 3 = 0 as active, ((hashint8(i) & 1023) / 8.0)::real as score""",
    "documents": """i as id, jsonb_build_object('sensor', 's' || (hashint8(i) & 1023), 'seq', i) as payload, (i % 100)::smallint as kind,
        timestamp '2024-01-01' + i * interval '1 s' as created, int8send(hashint8extended(i, 0)) as digest, null::text as comment""",
    "links": """i as source, hashint8(i)::bigint as target, (hashint8(i + 1) & 65535)::float8 / 7 as weight,
        date '2020-01-01' + (i % 1000)::int as since, (i % 12)::int as kind, ('k' || i % 12)::varchar(20) as label""",
}
NAMES = [f"{shape}_{number}" for number in range(TABLES_A_SHAPE) for shape in SHAPES]
QUESTIONS = (Question("snapshot of 20 tables", "snapshot", Measure.SPEED, 2.0, "one Spark JDBC job a table"),)


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn; each snapshot is the first of its name. What comes first warms up and is not counted."""
    rows = rows_a_table(scale)
    with lab.world() as world:
        prepare(world, rows)
        few = NAMES[: len(SHAPES)]
        _jdbc(world, few, rows)
        _snapshot(world, "few", few, rows)
        for number in range(ROUNDS):
            yield _jdbc(world, NAMES, rows)
            yield _snapshot(world, f"all_{number}", NAMES, rows)


def rows_a_table(scale: float) -> int:
    """So many rows has each table, at that scale."""
    return int(ROWS * scale) // len(NAMES)


def prepare(world: World, rows: int) -> None:
    """The tables, vacuumed; as many are made at a time as a small machine has cores."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(partial(_create, world, rows), NAMES))


def _create(world: World, rows: int, name: str) -> None:
    columns = SHAPES[name.rpartition("_")[0]]
    with connect(world.settings.dsn, purpose="benchmark") as connection:
        made = f"create table public.{name} as select {columns} from generate_series(1::bigint, {rows}) i"
        for statement in (made, f"vacuum analyze public.{name}"):
            connection.execute(cast(LiteralString, statement))


def _snapshot(world: World, called: str, names: Sequence[str], rows: int) -> Sample:
    request = Request(called, tuple(patterns.parse_patterns(f"public.{name}" for name in names)))
    with watched() as watch:
        made = snapshot.create(world.connection, lambda: world.spark, world.settings, request, lambda _progress: None)
    assert [copy.fingerprint.rows for copy in made.tables] == [rows] * len(names)
    return Sample("snapshot", watch.seconds, rows * len(names), watch.peak_bytes)


def _jdbc(world: World, names: Sequence[str], rows: int) -> Sample:
    target = world.folder / "tables by spark"
    with watched() as watch:
        for name in names:
            with others.shared_snapshot(world) as taken:
                frame = others.jdbc(world, name, taken, RANGES)
                frame.write.option("compression", "zstd").parquet(str(target / name))
    assert world.spark.read.parquet(str(target / names[0])).count() == rows
    shutil.rmtree(target)
    return Sample("one Spark JDBC job a table", watch.seconds, rows * len(names), watch.peak_bytes)
