"""Lake tables: how soon can a new node be used, and does one that reads slow down who writes them at another one?

A new node is a Postgres that has nothing yet: it is attached, its lake server starts, and it answers a query.

One client inserts single rows. Beside it a second Postgres with its own lake server is read by two clients, so many times
a second: once the table that is written, once a table of another lake that is like it. All run on one machine and share its
processors, so what the two kinds of reading have in common is the machine, and what they have not is the table.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from pydantic import SecretStr

from benchmarks.question import Measure, Question
from benchmarks.sample import Sample
from benchmarks.world import OPTIONS, Lab, World
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.runtime import node
from frostline.runtime.postgres import Postgres, free_port, new_password
from frostline.settings import Settings

ROWS, COMMITS, ROUNDS = 20_000, 60, 3
READERS, PAUSE_S = 2, 0.2
SAME, OTHER, ALONE = "written and read elsewhere", "written while another lake is read", "only written"
NEW = "attach, serve, and answer the first query"
QUESTIONS = [
    Question("Until a Postgres is a node that answers", NEW, Measure.LONGEST, 10),
    Question("Commits beside a node that reads the same table, or another lake's", SAME, Measure.SPEED, 0.9, OTHER),
    Question("Commits beside a node that reads the table, or with the machine alone", SAME, Measure.SPEED, 0.5, ALONE),
]


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Each way in turn."""
    with ExitStack() as stack:
        here, there = (stack.enter_context(lab.world()) for _ in range(2))
        dsns = dict[str, str]()
        for what, world in ((SAME, here), (OTHER, there)):
            _prepare(world, scale)
            dsns[what], took = stack.enter_context(_node(world, lab.folder / what.replace(" ", "-")))
            yield Sample(NEW, took, 1)
        written = int(COMMITS * scale)
        for _ in range(ROUNDS):
            for what in (SAME, OTHER, ALONE):
                with _read(dsns.get(what)):
                    start = time.perf_counter()
                    _write(here, written)
                    took = time.perf_counter() - start
                yield Sample(what, took, written)


def _prepare(world: World, scale: float) -> None:
    lake_tables.create(world.connection, world.settings, Name("public", "log"), ["id bigint", "n bigint"], Layout())
    world.run(f"insert into public.log select id, id from generate_series(1, {int(ROWS * scale)}) id")


def _write(world: World, count: int) -> None:
    for number in range(count):
        world.run(f"insert into public.log values ({10**9 + number}, 1)")


@contextmanager
def _node(world: World, folder: Path) -> Generator[tuple[str, float]]:
    """A Postgres of its own, attached to that world's lake tables, and its lake server; and how long that took."""
    postgres = Postgres(folder / "postgres", free_port(), new_password(), options=OPTIONS)
    postgres.start()
    try:
        settings = Settings(
            dsn=postgres.dsn(),
            catalog_dsn=world.settings.dsn,
            warehouse=world.settings.warehouse,
            lake_port=free_port(),
            lake_password=SecretStr("lake"),
        )
        start = time.perf_counter()
        node.attach(settings, folder / "home", (), None)
        command = [str(Path(sys.executable).with_name("frostline")), "serve", "--home", str(folder / "home")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout
                assert server.stdout.readline(), "the lake server does not start"
                with psycopg.connect(postgres.dsn()) as connection:
                    connection.execute("select count(*) from public.log")
                yield postgres.dsn(), time.perf_counter() - start
            finally:
                server.terminate()
    finally:
        postgres.stop()


@contextmanager
def _read(dsn: str | None) -> Generator[None]:
    """So many clients read, each so many times a second, for the block."""
    stop = threading.Event()

    def read() -> None:
        with psycopg.connect(str(dsn), autocommit=True) as connection:
            while not stop.wait(PAUSE_S):
                connection.execute("select sum(n) from public.log where id between 1 and 10000000")

    readers = [threading.Thread(target=read) for _ in range(READERS if dsn else 0)]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        stop.set()
        for reader in readers:
            reader.join()
