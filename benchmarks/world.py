"""A throw-away Postgres and a warm Spark session for all cases, and a database with Frostline in it for each that asks."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString, cast

from pydantic import SecretStr
from pyspark.sql import SparkSession

from frostline.catalog import lake_files, tables
from frostline.catalog.connect import Connection, connect
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.pipeline import archive, fold
from frostline.pipeline import spark as pipeline_spark
from frostline.pipeline.job import JobContext
from frostline.relation import registration
from frostline.relation.registration import Request
from frostline.runtime.install import install
from frostline.runtime.postgres import LAPTOP, Postgres, free_port, new_password
from frostline.settings import Settings

JARS = Path(__file__).parent.parent / ".cache" / "jars"
SPARK_MEMORY = "2g"
OPTIONS = {**LAPTOP, "shared_buffers": "2GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
"""Room for all heaps in memory, and no checkpoint in the middle of a measurement; all else is the default, fsync too."""


_PASSWORD = "lake"


@dataclass(frozen=True)
class World:
    """What a user has after `frostline up`, and a Spark session that is warm."""

    connection: Connection
    settings: Settings
    spark: SparkSession
    folder: Path
    postgres: Postgres
    database: str
    lake: ExitStack
    """Holds the lake server."""

    def restart_lake(self, **other: str) -> None:
        """A lake server that knows nothing yet; `other` are settings that it has instead."""
        self.lake.close()
        self.lake.enter_context(_serving(self.settings.model_copy(update=other)))

    def run(self, text: str) -> int:
        """Execute any SQL; returns the number of rows."""
        return self.connection.execute(cast(LiteralString, text)).rowcount

    def ask(self, text: str) -> list[tuple[object, ...]]:
        """Execute any SQL; returns the rows."""
        return self.connection.execute(cast(LiteralString, text)).fetchall()

    def add(
        self, name: str, hot: str, grace: str = "0", lake_partition: str | None = None, relation: str | None = None
    ) -> Table:
        """Register a table; `relation` is the name of the one that stands beside it."""
        request = Request(Name.parse(name), Policy(hot, grace), lake_partition, relation)
        return registration.add(self.connection, request).table

    def table(self, name: str) -> Table:
        """The managed table of that name."""
        return tables.get(self.connection, Name.parse(name))

    def jobs(self) -> JobContext:
        """What jobs with Spark tasks need."""
        return JobContext(self.connection, self.settings, lambda: self.spark)

    def archive(self, name: str) -> archive.Result:
        """Archive what is ripe, and clean what may be cleaned."""
        (result,) = archive.run(self.jobs(), [self.table(name)])
        assert result.error is None, result.error
        return result

    def fold(self, name: str) -> fold.Result:
        """Carry the marks into the lake."""
        (result,) = fold.run(self.jobs(), [self.table(name)])
        assert result.error is None, result.error
        return result

    def lake_files(self, name: str) -> list[str]:
        """The data files of the table."""
        return [file.path for file in lake_files.recorded(self.connection, self.table(name))]


Prepare = Callable[[World, float], None]
"""Fills a new database; the number is the scale."""


@dataclass
class Lab:
    """What runs all the time. A database is made once and copied for each case that wants the same."""

    postgres: Postgres
    spark: SparkSession
    folder: Path
    scale: float
    _made: dict[Prepare, str] = field(default_factory=dict["Prepare", str])
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def world(self, prepare: Prepare | None = None) -> Generator[World]:
        """A database of one's own, which is gone afterwards, and a lake server for it."""
        database = f"case_{next(self._numbers)}"
        self._admin(f"create database {database} template {self._template(prepare)} strategy file_copy")
        try:
            with self._opened(database) as world:
                yield world
        finally:
            self._admin(f"drop database {database} with (force)")

    def _template(self, prepare: Prepare | None) -> str:
        if prepare is None:
            return "template1"
        if prepare not in self._made:
            database = f"template_{next(self._numbers)}"
            self._admin(f"create database {database}")
            with self._opened(database) as world:
                prepare(world, self.scale)
            self._made[prepare] = database
        return self._made[prepare]

    def _admin(self, text: str) -> None:
        with connect(self.postgres.dsn(), purpose="benchmark") as connection:
            connection.execute(cast(LiteralString, text))

    @contextmanager
    def _opened(self, database: str) -> Generator[World]:
        dsn, warehouse = self.postgres.dsn(database), str(self.folder / "warehouse")
        settings = Settings(dsn=dsn, warehouse=warehouse, lake_port=free_port(), lake_password=SecretStr(_PASSWORD))
        install(settings)
        with connect(dsn, purpose="benchmark") as connection:
            connection.execute("set timezone = 'UTC'")
            with ExitStack() as lake:
                lake.enter_context(_serving(settings))
                yield World(connection, settings, self.spark, self.folder, self.postgres, database, lake)


@contextmanager
def _serving(settings: Settings) -> Generator[None]:
    """The lake server, in a process of its own."""
    command = [str(Path(sys.executable).with_name("frostline")), "serve"]
    environment = {**os.environ, **_environment(settings)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout
            assert server.stdout.readline(), "the lake server does not start"
            yield
        finally:
            server.terminate()


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "FROSTLINE_DSN": settings.dsn,
        "FROSTLINE_WAREHOUSE": settings.warehouse,
        "FROSTLINE_LAKE_PORT": str(settings.lake_port),
        "FROSTLINE_LAKE_PASSWORD": _PASSWORD,
        **({"FROSTLINE_LAKE_CHECKSUMS": settings.lake_checksums} if settings.lake_checksums else {}),
    }


@contextmanager
def opened(folder: Path, scale: float, spark_memory: str = SPARK_MEMORY) -> Generator[Lab]:
    """Start everything in that folder, and stop it afterwards. `spark_memory` is the Java heap's."""
    postgres = Postgres(folder / "postgres", free_port(), new_password(), options=OPTIONS)
    postgres.start()
    try:
        spark = pipeline_spark.session(f"local[{os.cpu_count()}]", memory=spark_memory, options=_jars())
        try:
            spark.range(1).rdd.map(lambda row: row).collect()
            yield Lab(postgres, spark, folder, scale)
        finally:
            pipeline_spark.stop(spark)
    finally:
        postgres.stop()


def _jars() -> dict[str, str]:
    """The JDBC driver, if `make jars` has fetched it: only what Frostline is compared with needs it."""
    jars = sorted(JARS.glob("postgresql-*.jar"))
    return {"spark.jars": str(jars[0])} if jars else {}
