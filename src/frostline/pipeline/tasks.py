"""Runs a function over many items as Spark tasks, one task each, and reports how far they are."""

import gc
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zipimport import zipimporter

import psycopg
from py4j.protocol import Py4JError

from frostline import errors, filemode
from frostline.catalog import faults
from frostline.lake import objectstore, store, warehouse
from frostline.model.names import Named
from frostline.pipeline.java import call_java, say_no_more, told_by_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2
_CAUSE = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception): .*|.*\[PYTHON_VERSION_MISMATCH\].*|.*Cannot run program .*", re.MULTILINE
)
_HINTS = (
    ("No module named", "install the package on the executors, or send it to them: docs/guides/cluster.md"),
    ("PYTHON_VERSION_MISMATCH", "let PYSPARK_PYTHON name a Python of the driver's version: docs/guides/cluster.md"),
    ("Cannot run program", "let PYSPARK_PYTHON name a Python that the executors have: docs/guides/cluster.md"),
)
"""By what is in the failure: what to do."""
NO_PASSWORD = "no password supplied"  # noqa: S105
"""What libpq says when it needs one and finds none."""
LACKS_PASSWORD = "let PGPASSFILE name a password file on the executors: docs/guides/cluster.md"  # noqa: S105

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Progress:
    """How much of the work is done."""

    tasks: int
    tasks_total: int
    rows: int
    size_bytes: int


Report = Callable[[Named, Progress], None]
"""What a job calls while its tasks run."""


@dataclass(frozen=True)
class Outcome(Generic[Made]):
    """What a task returns: what it made, or an error that Spark must not wrap and retrying would not help."""

    made: Made | None = None
    error: str | None = None
    hint: str | None = None
    kind: str = ""
    """The error's class, as `errors.kind_of` writes it."""


def run(
    spark: "SparkSession",
    function: Callable[[Item], Made],
    items: Sequence[Item],
    report: Callable[[Progress], None],
) -> list[Made]:
    """Call the function for each item and return what it made, in order. Raises the first error.

    The function must be importable on the executors. Rows and bytes are counted from the files it made.
    """
    context = spark.sparkContext
    done, rows, size = context.accumulator(0), context.accumulator(0), context.accumulator(0)

    access, mask, marker = objectstore.in_use(), filemode.in_use(), warehouse.in_use()

    def task(item: Item) -> Outcome[Made]:
        objectstore.use(access)
        with filemode.applied(mask), warehouse.used(marker):
            outcome = attempt(function, item)
        done.add(1)
        for file in _files(outcome.made):
            rows.add(file.rows)
            size.add(file.size_bytes)
        ease_the_next_task()
        return outcome

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: context.parallelize(items, len(items)).map(task).collect())
        try:
            while not running.done():
                report(Progress(done.value, len(items), rows.value, size.value))
                wait([running], _POLL_S)
        except BaseException:
            say_no_more()
            with suppress(Py4JError, OSError):  # Java may have got the signal too
                call_java(lambda: (context.setLogLevel("OFF"), context.cancelAllJobs()))
            raise
    report(Progress(done.value, len(items), rows.value, size.value))
    try:
        return [unwrap(outcome) for outcome in running.result()]
    except (Py4JError, OSError) as error:
        raise gave_up(error) from error


class SparkGaveUp(errors.UnavailableError):
    """Spark itself failed, or lost a worker: this says nothing about the lake."""


def gave_up(error: Exception) -> SparkGaveUp:
    """What is said when Spark itself fails: of a Python traceback in it the last line, which is the cause."""
    text = told_by_java(error) or "its Java process is gone"
    causes: list[str] = _CAUSE.findall(text)
    cause = causes[-1] if causes else text.partition("\n")[0]
    hint = next((hint for pattern, hint in _HINTS if pattern in text), "see its log, then run the command again")
    return SparkGaveUp(f"Spark gave up: {cause}", hint=hint)


def attempt(function: Callable[[Item], Made], item: Item) -> Outcome[Made]:
    """Call the function and put a foreseen error into the outcome."""
    try:
        with store.reachable("read or write the lake"):
            return Outcome(made=function(item))
    except (errors.FrostlineError, psycopg.Error) as raised:
        error = raised if isinstance(raised, errors.FrostlineError) else faults.understood(raised)
        if error is None:
            raise
        hint = LACKS_PASSWORD if NO_PASSWORD in error.message else error.hint
        return Outcome(error=error.message, hint=hint, kind=errors.kind_of(error))


def unwrap(outcome: Outcome[Made]) -> Made:
    """What was made, or the error raised again as it was in the task."""
    if outcome.error is None:
        return outcome.made  # pyright: ignore[reportReturnType]  (None is then what the function returned)
    raise errors.again(outcome.kind, outcome.error, outcome.hint)


def ease_the_next_task() -> None:
    """Take away what PySpark does between two tasks of a worker: it took longer than a small task itself.

    It collects garbage among all imported modules, and makes Python read the directories of its zip archives again.
    The worker may be used by functions of others too, so what is garbage already is not frozen.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    for path in [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]:
        del sys.path_importer_cache[path]


def _files(made: Any) -> Sequence[Any]:
    """Of a file, of something with `written` files, or of None."""
    if made is None:
        return ()
    return getattr(made, "written", (made,))
