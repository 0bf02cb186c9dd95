"""The one Spark session of a run: quiet, UTC, no user interface, nothing downloaded, closed to strangers.

A command has it for as long as its jobs need it; the worker stops it when it was long idle.
"""

import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from frostline import filemode, logs
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError
from frostline.pipeline.java import WRAPPER, call_java, find_java, told_by_java
from frostline.pipeline.job import JobContext
from frostline.pipeline.tasks import Report
from frostline.settings import Settings

_HERE = Path(str(resources.files("frostline.pipeline")))
_KEY = re.compile(r"\s*([^#!\s=:][^\s=:]*)")

_NO_MASTER = "no master answers, or it does not take our secret"

_log = logging.getLogger(__name__)


def session(master: str, *, memory: str = "1g", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already.

    `options` are Spark settings and win over ours, as do those of spark-defaults.conf and PYSPARK_SUBMIT_ARGS.
    """
    _prepare_environment(master)
    builder = SparkSession.Builder().master(master).appName("frostline")
    for key, value in {**_options(master, memory), **(options or {})}.items():
        builder = builder.config(key, value)
    return _started(builder, master)


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    try:
        with filemode.applied(filemode.in_use()):  # the Java process inherits it
            started = call_java(builder.getOrCreate)
        _warn_if_open(started)  # Java may end itself in this moment, if no master answers
    except (Py4JError, PySparkException, OSError) as error:
        told = _did_not_start(master, error)
        _end_half_started()
        raise told from error
    return started


def _end_half_started() -> None:
    """Else the next try would get what is left of this one."""
    context: Any = SparkContext
    half = context._active_spark_context  # noqa: SLF001
    if half is not None:
        with suppress(Py4JError, OSError):
            call_java(half.stop)
    _end_java()


def _did_not_start(master: str, error: Exception) -> UnavailableError:
    """What Java itself has written is on stderr already."""
    gone = isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    told = told_by_java(error).strip()
    reason = "Java ended at once" if gone else (told.splitlines() or [type(error).__name__])[0]
    has_stopped = isinstance(error, OSError) or not told or "stopped SparkContext" in reason
    if master.startswith("spark://") and has_stopped:
        hint = "see what Java wrote above, and docs/guides/cluster.md"
        return UnavailableError(f"Spark did not start: {_NO_MASTER} ({master})", hint=hint)
    hint = "see what Java wrote above; check spark_memory, spark_master and JAVA_HOME: frostline doctor --spark"
    return UnavailableError(f"Spark did not start: {reason}", hint=hint)


def stop(spark: SparkSession) -> None:
    """Stop the session and the Java process behind it, dead or alive; a later `session` starts both anew."""
    with suppress(Py4JError, OSError):  # the process may be gone already
        call_java(spark.stop)
    _end_java()


def _end_java() -> None:
    # PySpark has no public way to end its Java process.
    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001
    if gateway is None:
        return
    context._gateway = context._jvm = None  # noqa: SLF001
    with suppress(Py4JError, OSError):
        call_java(gateway.shutdown)
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
        return scala is not None and not call_java(lambda: scala.sc().isStopped())
    except (Py4JError, OSError):
        return False


def is_local(master: str) -> bool:
    """Whether the tasks run on this machine, inside the driver."""
    return master == "local" or master.startswith("local[")


def _options(master: str, memory: str) -> dict[str, str]:
    """Our settings, without those that the user has made for all of Spark. The first two are for settings of ours."""
    first = {"spark.driver.memory": memory, "spark.sql.session.timeZone": "UTC"}
    known = configured(os.environ)
    others = {**_quiet(), **_closed(master), **_patient(master)}
    return first | {key: value for key, value in others.items() if key not in known}


def configured(environment: Mapping[str, str]) -> set[str]:
    """Which settings the user has made where Spark looks: spark-defaults.conf, and what spark-submit is given."""
    folder = environment.get("SPARK_CONF_DIR") or str(Path(environment.get("SPARK_HOME", "")) / "conf")
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    in_file = {key[1] for key in map(_KEY.match, lines) if key}
    words = [word.removeprefix("--conf=") for word in shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))]
    return in_file | {word.partition("=")[0] for word in words if word.startswith("spark.")}


def _quiet() -> dict[str, str]:
    log_config = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"
    return {
        "spark.driver.extraJavaOptions": log_config,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _closed(master: str) -> dict[str, str]:
    """What keeps others from Spark's ports. Spark makes a new secret for each run, where it can hand it to executors.

    All runs of a standalone cluster have one secret, and only its owner knows it: docs/guides/cluster.md.
    """
    if is_local(master):
        # Otherwise the driver binds the host's public name, which a laptop often cannot even resolve.
        loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        return loopback | {"spark.authenticate": "true"}
    if master == "yarn" or master.startswith("k8s://"):
        encrypted = ("spark.network.crypto.enabled", "spark.io.encryption.enabled")
        return dict.fromkeys(("spark.authenticate", *encrypted), "true")
    return {}


def _patient(master: str) -> dict[str, str]:
    """Local Spark outlives a machine that sleeps.

    It is one process, and yet after two minutes without a heartbeat gives up the half of itself that runs tasks: it
    then fails to register again for ten minutes, and ends itself.
    """
    return {"spark.storage.blockManagerHeartbeatTimeoutMs": f"{365 * 86_400}s"} if is_local(master) else {}


def _warn_if_open(spark: SparkSession) -> None:
    context = spark.sparkContext
    if call_java(lambda: context.getConf().get("spark.authenticate")) != "true":
        warning = "Spark's ports ask for no secret: whoever reaches them runs code there"
        _log.warning("%s", logs.fields(stage="spark", master=context.master, warning=warning))


def _prepare_environment(master: str) -> None:
    """Set what the Java launcher reads from the environment; it is inherited and cannot be an option."""
    os.environ["SPARK_JAVA"] = str(find_java())
    os.environ["JAVA_HOME"] = str(WRAPPER)
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable


class Busy:
    """Spark, started when it is first needed; a process that goes on for months stops it when it has long not been."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._used_at = 0.0

    def session(self) -> SparkSession:
        """The session, started if need be."""
        if self._session is not None and not is_alive(self._session):
            self.stop()
        if self._session is None:
            self._session = session(self._settings.spark_master, memory=self._settings.spark_memory)
        self._used_at = time.monotonic()
        return self._session

    def rest(self) -> None:
        """Between jobs: stop Spark if it was not used for a while."""
        if self._session is not None and time.monotonic() - self._used_at > self._settings.spark_idle_s:
            self.stop()

    def stop(self) -> None:
        """Stop Spark if it runs."""
        if self._session is not None:
            running, self._session = self._session, None
            stop(running)


@contextmanager
def while_busy(settings: Settings) -> Generator[Busy]:
    """Spark for as long as jobs come in; nothing of it is left behind, also after a failure."""
    busy = Busy(settings)
    try:
        yield busy
    finally:
        busy.stop()


@contextmanager
def for_jobs(connection: Connection, settings: Settings, report: Report) -> Generator[JobContext]:
    """What the jobs of a command need: Spark starts when the first table needs it and stops when the last is done."""
    with while_busy(settings) as busy:
        yield JobContext(connection, settings, busy.session, report)
