"""How fast do a million rows come into a lake table, compared with a foreign table of another Postgres?

The same statements go to a lake table and to a foreign table of a second Postgres, on the same machine and with the same settings; its table has
no index. A million rows (times the scale) of five columns come by `INSERT ... SELECT` from a local table, with postgres_fdw's `batch_size` of
10,000 for the other Postgres and what `frostline lake create` chooses for the lake, and by COPY, of which Postgres gives 64 kB at a time to postgres_fdw. The time ends with the commit: the other
Postgres has written its log then, and the lake its files. The processor time of the lake server is shown as well.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import LiteralString, cast

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.question import Measure, Question
from benchmarks.rig import lake
from benchmarks.sample import Sample
from benchmarks.world import OPTIONS, Lab, World
from frostline.runtime.postgres import Postgres, free_port, new_password

ROUNDS = 4
ROWS = 1_000_000
LAKE, OTHER = "lake table", "other Postgres"
QUESTIONS = (
    Question("INSERT ... SELECT into a lake table", f"{LAKE}, insert", Measure.SPEED, 0.7, f"{OTHER}, insert"),
    Question("COPY into a lake table", f"{LAKE}, copy", Measure.SPEED, 0.7, f"{OTHER}, copy"),
)
_TABLE = f"({', '.join(lake.COLUMNS)})"


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Both in turn."""
    rows = int(ROWS * scale)
    with lab.world() as world, _other(lab) as other:
        _prepare(world, other, rows)
        text = _text(world)
        for _ in range(ROUNDS):
            for what, table in ((OTHER, "public.elsewhere"), (LAKE, "public.readings")):
                insert = f"insert into {table} select * from public.source"
                yield from _timed(what, "insert", rows, lambda insert=insert: world.run(insert))
                yield from _timed(what, "copy", rows, lambda table=table: _copy(world, table, text))


@contextmanager
def _other(lab: Lab) -> Generator[Postgres]:
    other = Postgres(lab.folder / "other postgres", free_port(), new_password(), options=OPTIONS)
    other.start()
    try:
        yield other
    finally:
        other.stop()


def _prepare(world: World, other: Postgres, rows: int) -> None:
    world.run(f"create table public.source as {lake.ROWS.format(rows=rows)}")
    world.run("vacuum analyze public.source")
    lake.make(world, "readings")
    with psycopg.connect(other.dsn(), autocommit=True) as connection:
        connection.execute(f"create table public.readings {_TABLE}".encode())
    at = conninfo_to_dict(other.dsn())
    world.run(
        f"create server other foreign data wrapper postgres_fdw options (host '{at['host']}', port '{at['port']}', dbname '{at['dbname']}')"
    )
    world.run(
        f"create user mapping for current_user server other options (user '{at['user']}', password '{at['password']}')"
    )
    world.run(
        f"create foreign table public.elsewhere {_TABLE} server other "
        "options (schema_name 'public', table_name 'readings', batch_size '10000')"
    )


def _timed(what: str, how: str, rows: int, insert: Callable[[], int]) -> Iterator[Sample]:
    server = _lake_server()
    before, start = _used_s(server), time.perf_counter()
    assert insert() == rows
    yield Sample(f"{what}, {how}", time.perf_counter() - start, rows)
    if what == LAKE:
        yield Sample(f"processor time of the lake server, {how}", _used_s(server) - before, rows)


def _text(world: World) -> bytes:
    with world.connection.cursor().copy("copy public.source to stdout") as copy:
        return b"".join(bytes(part) for part in copy)


def _copy(world: World, table: str, text: bytes) -> int:
    cursor = world.connection.cursor()
    with cursor.copy(cast(LiteralString, f"copy {table} from stdin")) as copy:
        copy.write(text)
    return cursor.rowcount


def _lake_server() -> psutil.Process:
    return next(child for child in psutil.Process().children() if "serve" in child.cmdline())


def _used_s(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])
