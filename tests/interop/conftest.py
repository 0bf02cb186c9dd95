"""Programs of others: the Iceberg runtime for Spark, and Nessie's REST catalog. `make interop` fetches and runs them."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.seaweed import Seaweed

from frostline.pipeline import spark as pipeline_spark
from frostline.pipeline.java import major
from frostline.runtime.postgres import free_port

_NESSIE_JAVA = 21
_PATIENCE_S = 90


@pytest.fixture(scope="session")
def jars() -> Path:
    """Where `make jars` has put them."""
    return Path(os.environ["FROSTLINE_TEST_JARS"])


@pytest.fixture(scope="session")
def spark(jars: Path, password_for_java: None) -> Iterator[SparkSession]:
    """The run's Spark, to which the official Iceberg runtime and the driver of its catalog are added."""
    added = [str(file) for name in ("iceberg-spark-runtime", "postgresql") for file in jars.glob(f"{name}-*.jar")]
    assert len(added) == 2, f"{jars} is not complete: make jars"
    options = {"spark.sql.shuffle.partitions": "2", "spark.jars": ",".join(added)}
    session = pipeline_spark.session("local[2]", options=options)
    yield session
    pipeline_spark.stop(session)


@pytest.fixture(scope="session")
def nessie(jars: Path, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Nessie's Iceberg REST catalog, with its tables in the object store; its address."""
    (jar,) = jars.glob("nessie-quarkus-*.jar")
    folder = tmp_path_factory.mktemp("nessie")
    port, management = free_port(), free_port()
    options = _nessie_options(seaweed, seaweed.new_bucket(), port, management)
    with (folder / "log").open("wb") as log:
        command = [str(_java()), "-Xmx512m", *options, "-jar", str(jar)]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        uri = f"http://127.0.0.1:{port}/iceberg"
        _wait(f"{uri}/v1/config", process, folder / "log")
        yield uri
    finally:
        process.kill()
        process.wait()


def _java() -> Path:
    """A Java that is new enough for Nessie, which wants a newer one than Spark."""
    named = [os.environ.get("FROSTLINE_TEST_JAVA"), f"{os.environ.get('JAVA_HOME')}/bin/java", "/usr/bin/java"]
    for candidate in [*(Path(path) for path in named if path), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))]:
        if major(candidate) >= _NESSIE_JAVA:
            return candidate
    pytest.skip(f"no Java {_NESSIE_JAVA} or newer found for Nessie: set FROSTLINE_TEST_JAVA to one")


def _nessie_options(seaweed: Seaweed, bucket: str, port: int, management: int) -> list[str]:
    store = "nessie.catalog.service.s3.default-options"
    options: dict[str, object] = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{bucket}/lake",
        f"{store}.endpoint": seaweed.s3_endpoint,
        f"{store}.region": seaweed.region,
        f"{store}.path-style-access": "true",
        f"{store}.request-signing-enabled": "false",
        f"{store}.access-key": "urn:nessie-secret:quarkus:keys",
        "keys.name": seaweed.access_key,
        "keys.secret": seaweed.secret_key,
    }
    return [f"-D{key}={text}" for key, text in options.items()]


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("Nessie does not serve: " + log.read_text(errors="replace")[-2000:])
        time.sleep(0.5)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
