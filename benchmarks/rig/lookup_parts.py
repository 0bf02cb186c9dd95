"""One look-up in the lake, taken apart: each step as the lake server does it, in this process, one after the other."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psycopg
import pyarrow as pa

from benchmarks.sample import Sample
from benchmarks.world import World
from frostline.lake.filecheck import Checks, FileCheck
from frostline.relation import foreign_server
from frostline.server.engine import Engine
from frostline.server.meter import Meter
from frostline.server.protocol.rows import Printed
from frostline.server.provider import CatalogTables
from frostline.server.reading import answer, choose
from frostline.server.served_tables import OnlyManaged
from frostline.server.translate.plan import DuckPlan, plan
from frostline.server.translate.statements import Select, parse

Result = TypeVar("Result")


class _Parts:
    """The times of each step, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def timed(self, what: str, do: Callable[[], Result]) -> Result:
        start = time.perf_counter()
        result = do()
        self.seconds.setdefault(what, []).append(time.perf_counter() - start)
        return result


def measured(world: World, queries: Sequence[str]) -> Iterator[Sample]:
    """Samples of each step: the median over the queries, of which the first warms up. Each is for one row, with its constants."""
    parts = _Parts()
    for _ in queries[1:]:
        parts.timed("connection", lambda: _connect(world)).close()
    tables = OnlyManaged(CatalogTables(world.settings.dsn, world.settings.warehouse))
    files, engine = (
        FileCheck(Checks.FIRST_READ),
        Engine(memory_limit="1GB", threads=2, temp_directory=Path(world.folder), warehouse=world.settings.warehouse),
    )
    try:
        for number, query in enumerate(queries):
            _taken_apart(parts if number else _Parts(), query, tables, files, engine)
    finally:
        engine.close()
    for what, seconds in parts.seconds.items():
        yield Sample(f"one look-up: {what}", statistics.median(seconds), 1)


def _connect(world: World) -> psycopg.Connection:
    """As postgres_fdw does once a session: TCP, SCRAM, and the session's settings."""
    settings = world.settings
    assert settings.lake_password is not None
    return psycopg.connect(
        host=settings.lake_host,
        port=settings.lake_port,
        user=settings.lake_user,
        password=settings.lake_password.get_secret_value(),
        dbname=foreign_server.DATABASE,
    )


def _taken_apart(parts: _Parts, query: str, tables: OnlyManaged, files: FileCheck, engine: Engine) -> None:
    (select,) = parts.timed("parse", lambda: parse(query))
    assert isinstance(select, Select)
    decided = parts.timed("translate", lambda: plan(select, (), tables))
    assert isinstance(decided, DuckPlan), query
    chosen = parts.timed("choose files by the manifest", lambda: choose(decided.scan, tables))
    question = answer(decided, chosen, Meter())
    parts.timed("compare files", lambda: files.compare(question.files, tables.checksums))
    parts.timed("bind and optimise in DuckDB", lambda: list(engine.run(f"explain {question.sql}")))
    batches = parts.timed("all of DuckDB: bind, read, decode", lambda: list(engine.run(question.sql)))
    assert sum(batch.num_rows for batch in batches) == 1, query
    parts.timed("print", lambda: _printed(batches))


def _printed(batches: Sequence[pa.RecordBatch]) -> int:
    return Printed(batches).num_rows
