"""What does an update of a lake table cost with position deletes, as it is built, and what would copy-on-write cost?

A lake table of 200,000 rows (times the scale) of five columns in ten files. One row is updated, one per cent of the rows, which are in all files, and half of them;
each time in a new table. Both ways are done by hand, with the same functions: DuckDB finds the rows with their new values, and either these rows and
a file of position deletes are written, or every file that has one of them is written anew; then the commit's metadata, without a catalog.
The UPDATE in psql, which Postgres evaluates and the lake server writes, is shown as well. Afterwards all rows are read in psql, with a sum over one column, and `read_parquet` reads what the
copy-on-write has left. `bytes` are those of the files written.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from benchmarks.question import Measure, Question
from benchmarks.rig import lake
from benchmarks.sample import Sample
from benchmarks.world import Lab, World
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake import lake_commit, lake_rewrite, lake_rows, lake_table
from frostline.lake.lake_commit import Added, Staged
from frostline.lake.lake_table import State

ROUNDS = 3
ROWS = 200_000
FILES = 10
SHARES = {"1 row": "id = {middle}", "1 %": "id % 100 = 0", "50 %": "id % 2 = 0"}
DELETES, COPIES, BUILT = "position deletes", "copy-on-write", "UPDATE in psql"
QUESTIONS = (
    *(
        Question(f"update of {share}", f"{DELETES}, {share}", Measure.TIME, target, f"{COPIES}, {share}")
        for share, target in (("1 row", 0.7), ("1 %", 0.7), ("50 %", 1.2))
    ),
    *(
        Question(
            f"bytes written by an update of {share}",
            f"bytes, {DELETES}, {share}",
            Measure.SIZE,
            target,
            f"bytes, {COPIES}, {share}",
        )
        for share, target in (("1 row", 0.1), ("1 %", 0.2), ("50 %", 1.2))
    ),
    *(
        Question(
            f"reading after an update of {share}",
            f"reading after {DELETES}, {share}",
            Measure.TIME,
            1.5,
            f"reading after {COPIES}, {share}",
        )
        for share in SHARES
    ),
)
_CHANGED = "id as c0, ts as c1, device as c2, value + 1 as c3, note as c4"
_ALL = "id as c0, ts as c1, device as c2, case when {condition} then value + 1 else value end as c3, note as c4"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both ways in turn, each on a table of its own."""
    rows = int(ROWS * scale)
    with lab.world() as world:
        for turn in range(ROUNDS):
            for number, (share, condition) in enumerate(SHARES.items()):
                chosen = condition.format(middle=rows // 2)
                names = [f"{way}_{turn}_{number}" for way in ("by_deletes", "by_copies", "in_psql")]
                for name in names:
                    _fill(world, name, rows)
                yield from _by_hand(world, names[0], DELETES, share, chosen)
                yield from _by_hand(world, names[1], COPIES, share, chosen)
                yield _in_psql(world, names[2], share, chosen)
                _compare(world, names)


def _fill(world: World, name: str, rows: int) -> None:
    lake.make(world, name)
    for file in range(FILES):
        source = lake.ROWS.format(rows=rows)
        world.run(
            f"insert into public.{name} {source} where i > {rows * file // FILES} and i <= {rows * (file + 1) // FILES}"
        )


def _by_hand(world: World, name: str, way: str, share: str, condition: str) -> Iterator[Sample]:
    pointer = catalog.load(world.connection, Pointer("public", name))
    state = lake_table.state(pointer.metadata_location)
    start = time.perf_counter()
    added, staged = (_deletes if way == DELETES else _copies)(pointer.id, state, condition)
    seconds = time.perf_counter() - start
    catalog.commit(world.connection, [staged.move])
    count = sum(file.record_count for file in (added.deletes if way == DELETES else added.data))
    size_bytes = sum(file.file_size_in_bytes for file in (*added.data, *added.deletes))
    yield Sample(f"{way}, {share}", seconds, count)
    yield Sample(f"bytes, {way}, {share}", seconds, count, size_bytes=size_bytes)
    for _ in range(2):  # the first one opens the files
        start = time.perf_counter()
        world.ask(f"select sum(value), count(note) from (select * from public.{name} offset 0) as all_of_it")
        seconds = time.perf_counter() - start
    yield Sample(f"reading after {way}, {share}", seconds, lake.shown(world, name).rows)


def _deletes(lake_table_id: int, state: State, condition: str) -> tuple[Added, Staged]:
    """As the lake server does it: the new versions in a file of their own, and the places of the old ones."""
    replaced = _query(list(state.data), f"filename, file_row_number, {_CHANGED}", condition)
    gone = dict[str, set[int]]()
    for path, place in zip(replaced.column(0).to_pylist(), replaced.column(1).to_pylist(), strict=True):
        gone.setdefault(f"file://{path}", set()).add(place)
    data = _written(state, replaced.drop(["filename", "file_row_number"]))
    added = Added(data, lake_rows.write_deletes(state.metadata, state.data, gone))
    return added, lake_commit.stage(lake_table_id, state, added)


def _copies(lake_table_id: int, state: State, condition: str) -> tuple[Added, Staged]:
    """Each file that has one of the rows is written anew."""
    touched = [path for path in state.data if _query([path], "1", condition).num_rows]
    added = Added()
    for path in touched:
        added.data += _written(state, _query([path], _ALL.format(condition=condition), "true"))
    return added, lake_rewrite.stage(lake_table_id, state, added.data, touched, pack=False)


def _query(files: Sequence[str], columns: str, condition: str) -> Any:
    listed = ", ".join(f"'{path.removeprefix('file://')}'" for path in files)
    options = "filename = true, file_row_number = true"
    text = f"select {columns} from read_parquet([{listed}], {options}) where {condition}"
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        return connection.execute(text).to_arrow_table()


def _written(state: State, rows: Any) -> list[Any]:
    names = [f"c{place}" for place in range(len(state.columns))]
    return lake_rows.write(state.metadata, state.columns, rows.cast(lake_rows.arrow_schema(state.columns, names)))


def _in_psql(world: World, name: str, share: str, condition: str) -> Sample:
    start = time.perf_counter()
    count = world.run(f"update public.{name} set value = value + 1 where {condition}")
    return Sample(f"{BUILT}, {share}", time.perf_counter() - start, count)


def _compare(world: World, names: Sequence[str]) -> None:
    """All three have the same rows now."""
    sums = {str(world.ask(f"select count(*), sum(value), sum(id) from public.{name}")) for name in names}
    assert len(sums) == 1, sums
