"""The one Spark session of a run: quiet, UTC, no user interface, nothing downloaded."""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from frostline.pipeline.java import find_java

_HERE = Path(str(resources.files("frostline.pipeline")))
_JAVA_HOME = _HERE / "java_home"


def session(master: str, *, memory: str = "1g", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already. `options` are Spark settings and win over ours."""
    _prepare_environment(master)
    interrupt = signal.getsignal(signal.SIGINT)
    builder = SparkSession.Builder().master(master).appName("frostline")
    for key, value in {**_options(master, memory), **(options or {})}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    finally:
        # PySpark's own handler calls into Java in the middle of whatever runs, which then fails in a strange way.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)


def stop(spark: SparkSession) -> None:
    """Stop the session and the Java process behind it, dead or alive; a later `session` starts both anew."""
    with suppress(Py4JError, OSError):  # the process may be gone already
        spark.stop()
    # PySpark has no public way to end its Java process.
    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001
    if gateway is None:
        return
    context._gateway = context._jvm = None  # noqa: SLF001
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    gateway.proc.stdin.close()  # the Java process ends when its standard input does
    gateway.proc.wait()


def is_alive(spark: SparkSession) -> bool:
    """Whether the Java process behind the session is there, and its context was not stopped by a fatal error."""
    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001
    if gateway is None or gateway.proc.poll() is not None:
        return False
    own: Any = spark.sparkContext
    try:
        scala = own._jsc  # noqa: SLF001
        return scala is not None and not scala.sc().isStopped()
    except (Py4JError, OSError):
        return False


def is_local(master: str) -> bool:
    """Whether the tasks run on this machine, inside the driver."""
    return master == "local" or master.startswith("local[")


def _options(master: str, memory: str) -> dict[str, str]:
    log_config = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"
    options = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": log_config,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        # Otherwise the driver binds the host's public name, which a laptop often cannot even resolve.
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return options


def _prepare_environment(master: str) -> None:
    """Set what the Java launcher reads from the environment; it is inherited and cannot be an option."""
    if os.environ.get("JAVA_HOME") != str(_JAVA_HOME):
        os.environ["SPARK_JAVA"] = str(find_java())
        os.environ["JAVA_HOME"] = str(_JAVA_HOME)
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
