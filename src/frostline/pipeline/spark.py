"""The one Spark session of a run: quiet, UTC, no user interface, nothing downloaded."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from frostline import filemode
from frostline.errors import UnavailableError
from frostline.pipeline.apart import apart
from frostline.pipeline.java import find_java

_HERE = Path(str(resources.files("frostline.pipeline")))
_JAVA_HOME = _HERE / "java_home"


def session(master: str, *, memory: str = "1g", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already. `options` are Spark settings and win over ours."""
    _prepare_environment(master)
    builder = SparkSession.Builder().master(master).appName("frostline")
    for key, value in {**_options(master, memory), **(options or {})}.items():
        builder = builder.config(key, value)
    try:
        with filemode.applied(filemode.in_use()):  # the Java process inherits it
            return apart(builder.getOrCreate)
    except (Py4JError, PySparkException, OSError) as error:
        _end_java()
        raise _did_not_start(error) from error


def _did_not_start(error: Exception) -> UnavailableError:
    """What Java itself has written is on stderr already."""
    gone = isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    cause: object = getattr(error, "java_exception", error)
    reason = "Java ended at once" if gone else (str(cause).strip().splitlines() or [type(error).__name__])[0]
    hint = "see what Java wrote above; check spark_memory, spark_master and JAVA_HOME: frostline doctor --spark"
    return UnavailableError(f"Spark did not start: {reason}", hint=hint)


def stop(spark: SparkSession) -> None:
    """Stop the session and the Java process behind it, dead or alive; a later `session` starts both anew."""
    with suppress(Py4JError, OSError):  # the process may be gone already
        apart(spark.stop)
    _end_java()


def _end_java() -> None:
    # PySpark has no public way to end its Java process.
    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001
    if gateway is None:
        return
    context._gateway = context._jvm = None  # noqa: SLF001
    with suppress(Py4JError, OSError):
        apart(gateway.shutdown)
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
        return scala is not None and not apart(lambda: scala.sc().isStopped())
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
