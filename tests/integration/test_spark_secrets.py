"""The memory of Spark itself: no job, read or write ever brings it a password or a key. And who may talk to its ports."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.fixtures import copies
from tests.fixtures.cold_twins import change, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.seaweed import SECRET_KEY

from frostline import spark as connector
from frostline.pipeline.spark import configured

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def known_password(s3_lake: Lake) -> Iterator[tuple[Lake, str]]:
    """A lake in an object store, and a role for it whose password no other test has."""
    password, role = secrets.token_hex(16), sql.Identifier(f"keyed_{secrets.token_hex(4)}")
    s3_lake.catalog.execute(sql.SQL("create role {} superuser login password {}").format(role, sql.Literal(password)))
    dsn = make_conninfo(s3_lake.dsn, user=role.as_string().strip('"'), password=password)
    settings = s3_lake.settings.model_copy(update={"dsn": dsn})
    yield replace(s3_lake, dsn=dsn, settings=settings), password
    connector.release()
    s3_lake.catalog.execute(sql.SQL("alter role {} nologin").format(role))


def memory(spark: SparkSession, file: Path) -> bytes:
    """Everything on the heap of the driver, where the blocks of a local master are too. Garbage included."""
    jvm: Any = spark.sparkContext._jvm
    of_java = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    jvm.java.lang.management.ManagementFactory.getPlatformMXBean(of_java).dumpHeap(str(file), False)
    content = file.read_bytes()
    file.unlink()
    return content


def test_neither_passwords_nor_keys_are_ever_in_sparks_memory(known_password: tuple[Lake, str], tmp_path: Path) -> None:
    lake, password = known_password
    make_archived(lake, grace="0")
    lake.clean()
    change(lake)
    spark = lake.session()
    connector.register(spark, dsn=lake.dsn)
    assert spark.read.format("frostline").option("table", "public.events").load().count()
    frame = connector.read(spark, "events", dsn=lake.dsn)
    assert frame.count()
    lake.fold()
    rows = spark.sql("select id + 7000 as id, timestamp'2024-01-06' as ts, 'ok' as status from range(50)")
    assert connector.write(rows, "events", dsn=lake.dsn, lake_rows=10).as_files == 50
    lake.compact()
    copies.create(lake, "public.events")
    connector.release()
    lake.thaw(first="2024-03-01")
    dump = memory(spark, tmp_path / "spark.hprof")
    assert b"frostline-secrets-" in dump, "what names the secrets is there, so this would find them"
    assert password.encode() not in dump
    assert SECRET_KEY.encode() not in dump


def test_sparks_ports_are_on_the_loopback_and_ask_for_a_secret(spark: SparkSession) -> None:
    started: Any = spark.sparkContext._jsc
    assert started.sc().conf().get("spark.authenticate") == "true"
    context: Any = SparkContext
    java = psutil.Process(context._gateway.proc.pid)
    listening = [connection for connection in java.net_connections("tcp") if connection.status == psutil.CONN_LISTEN]
    assert listening
    addresses = {connection.laddr.ip.removeprefix("::ffff:") for connection in listening}
    assert addresses <= {"127.0.0.1", "::1"}


def test_what_the_user_has_set_for_spark_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.ui.enabled true\nspark.authenticate true\n  spark.eventLog.dir=/logs\nspark.a.b: c\n"
    )
    submitted = {"PYSPARK_SUBMIT_ARGS": "--conf spark.x=1 --conf=spark.y=2 --name a pyspark-shell"}
    assert configured({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.authenticate", "spark.eventLog.dir", "spark.a.b"}
    assert configured({"SPARK_CONF_DIR": str(tmp_path / "none"), **submitted}) == {"spark.x", "spark.y"}
    assert configured({}) == set()
