"""A throw-away Postgres with Frostline in it, a warehouse, a lake server and a Spark session, for a case to use."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString, cast

from pyspark.sql import SparkSession

from frostline.catalog import migrations, tables
from frostline.catalog.connect import Connection, connect
from frostline.embedded.postgres import Postgres, free_port, new_password
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.pipeline import spark as pipeline_spark
from frostline.relation import foreign_server, registration
from frostline.relation.registration import Wish
from frostline.server.listen import LakeServer
from frostline.server.provider import CatalogTables
from frostline.settings import Settings


@dataclass(frozen=True)
class World:
    """What a user has after `frostline up`, and a Spark session that is warm."""

    connection: Connection
    settings: Settings
    spark: SparkSession
    folder: Path

    def run(self, text: str) -> int:
        """Execute any SQL; returns the number of rows."""
        return self.connection.execute(cast(LiteralString, text)).rowcount

    def add(self, name: str, hot: str, grace: str = "0", lake_partition: str | None = None) -> Table:
        """Register a table."""
        return registration.add(self.connection, Wish(Name.parse(name), Policy(hot, grace), lake_partition)).table

    def table(self, name: str) -> Table:
        """The managed table of that name."""
        return tables.get(self.connection, Name.parse(name))


@contextmanager
def opened(folder: Path, spark_memory: str = "1g") -> Generator[World]:
    """Start everything in that folder, and stop it afterwards. `spark_memory` is the Java heap's."""
    postgres = Postgres(folder / "postgres", free_port(), new_password())
    postgres.start()
    try:
        yield from _with_lake(folder, postgres.dsn(), spark_memory)
    finally:
        postgres.stop()


def _with_lake(folder: Path, dsn: str, spark_memory: str) -> Generator[World]:
    warehouse = folder / "warehouse"
    spark = pipeline_spark.session("local[2]", memory=spark_memory)
    with connect(dsn, purpose="benchmark") as connection:
        migrations.apply(connection)
        server = LakeServer("127.0.0.1", 0, CatalogTables(dsn), "lake", "lake", dsn, warehouse=str(warehouse))
        server.start()
        try:
            foreign_server.ensure(connection, host="127.0.0.1", port=server.port, user="lake", password="lake")
            settings = Settings(dsn=dsn, warehouse=str(warehouse), lake_port=server.port)
            spark.range(1).rdd.map(lambda row: row).collect()
            yield World(connection, settings, spark, folder)
        finally:
            server.stop()
            pipeline_spark.stop(spark)
