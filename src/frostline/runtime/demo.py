"""The demo: a table of a million events goes from one tier to two, and every number shown is measured on the way."""

import shutil
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, Protocol, TypeVar

from psycopg import ClientCursor, sql
from psycopg.rows import dict_row

from frostline import sqlfiles
from frostline.catalog.connect import Connection, connect
from frostline.errors import CorruptionError, UsageError
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.pipeline import archive, clean, plan, spark, verify
from frostline.pipeline.tasks import Report
from frostline.relation import names, policy, registration
from frostline.relation.registration import Request
from frostline.runtime.home import Home, prepare
from frostline.runtime.up import started
from frostline.settings import FILE_NAME, Settings

HOT = "1 month"
EVENTS = Name("public", "events")
_MARKER = "made-by-the-demo"
_TIMES = 5

Record = Mapping[str, Any]
T = TypeVar("T")


class Story(Protocol):
    """Where the demo tells what it does."""

    def chapter(self, title: str) -> None:
        """Begin a new part."""
        ...

    def say(self, text: str) -> None:
        """Say one line."""
        ...

    def show(self, records: Sequence[Record]) -> None:
        """Show a table. A key that ends in `_bytes` is a size."""
        ...

    def exporting(self) -> AbstractContextManager[Report]:
        """Show how far an export is while the block runs."""
        ...


@dataclass(frozen=True)
class Answers:
    """What the relation says. Two of them are equal when every value of every row is."""

    by_month: list[dict[str, Any]]
    total: list[dict[str, Any]]


@dataclass(frozen=True)
class Sizes:
    """What the events take on disk."""

    postgres_bytes: int
    """Rows and indexes."""
    lake_bytes: int
    database_bytes: int
    """Everything in the database."""


@dataclass(frozen=True)
class Demo:
    """What every step needs."""

    connection: Connection
    settings: Settings
    story: Story
    rows: int

    def ask(self, name: str, **values: object) -> list[dict[str, Any]]:
        """The rows that the named question gives."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_statement(name), values or None).fetchall()

    def number(self, name: str, **values: object) -> int:
        """The one number that the named question gives."""
        (row,) = self.ask(name, **values)
        return next(iter(row.values()))

    def do(self, name: str, **values: object) -> None:
        """Run the named statement."""
        self.connection.execute(_statement(name), values or None)


@contextmanager
def fresh_home(directory: Path, *, pg_port: int | None, lake_port: int | None) -> Generator[Home]:
    """A home without data, locked for the block. What an earlier demo left there goes; no other home is touched."""
    if (directory / FILE_NAME).exists() and not (directory / _MARKER).exists():
        raise UsageError(f"{str(directory)!r} is a home that the demo did not make", hint="name another --home")
    with prepare(directory, pg_port=pg_port, lake_port=lake_port) as home:
        (directory / _MARKER).touch()
        shutil.rmtree(directory / "postgres", ignore_errors=True)
        shutil.rmtree(directory / "warehouse", ignore_errors=True)
        yield home


def given(home: Home) -> dict[str, Any]:
    """The settings that the environment must not override: the demo touches nothing outside its home."""
    return {**home.given, "warehouse": home.values["warehouse"], "lake_password": home.values["lake_password"]}


def run(home: Home, settings: Settings, story: Story, *, rows: int) -> None:
    """Tell the whole story. Everything that was started is stopped at the end, however it ends."""
    began = time.monotonic()
    story.chapter("Start an embedded PostgreSQL and a lake server")
    with started(home, settings, story.say) as postgres, connect(settings.dsn, purpose="demo") as connection:
        story.say(f"PostgreSQL {postgres.programs.major} on port {postgres.port}, lake server on {settings.lake_port}")
        _tell(Demo(connection, settings, story, rows))
    story.say(f"\nBoth servers are stopped. That took {time.monotonic() - began:.0f} s.")


def _tell(demo: Demo) -> None:
    load_events(demo)
    sizes, answers = _sizes(demo, EVENTS), _answers(demo)
    show_answers(demo, answers)
    table = add_table(demo)
    show_plan(demo, table)
    archive_table(demo, table)
    compare(demo, table, answers, "The same questions, the same table name, two tiers")
    show_hot_query(demo)
    show_cold_query(demo)
    clean_table(demo, table)
    show_sizes(demo, sizes, _sizes(demo, table.heap))
    verify_table(demo, table)
    compare(demo, table, answers, "The same questions once more, now that the old rows are in the lake only")


def load_events(demo: Demo) -> None:
    """Create the table with 25 monthly partitions and fill it."""
    demo.story.chapter(f"Load {demo.rows:,} events into an ordinary table with 25 monthly partitions")
    demo.do("create_table")
    demo.do("create_partitions")
    _, seconds = _timed(lambda: demo.do("load", rows=demo.rows))
    demo.do("create_index")
    demo.do("analyze")
    demo.story.say(f"{demo.rows:,} rows in {seconds:.1f} s. Ten columns; uuid, numeric(12,2) and jsonb among them.")


def show_answers(demo: Demo, answers: Answers) -> None:
    """Show what the table says before anything moves."""
    demo.story.chapter("Ask it something")
    _show_query(demo, "by_month")
    months = answers.by_month
    demo.story.show([*months[:2], *months[-3:]])
    demo.story.say(f"({len(months)} months; the first two and the last three)")


def add_table(demo: Demo) -> Table:
    """Make it a tiered table."""
    demo.story.chapter(f"frostline table add events --hot '{HOT}'")
    added, seconds = _timed(lambda: registration.add(demo.connection, Request(EVENTS, Policy(HOT))))
    demo.story.say(
        f"`events` is a view over both tiers now, `_events` is the heap. {1000 * seconds:.0f} ms, no row moved."
    )
    return added.table


def show_plan(demo: Demo, table: Table) -> None:
    """Show what would move."""
    demo.story.chapter("frostline plan")
    planned = plan.of_table(demo.connection, table)
    record = {"partitions": len(planned.plan.partitions), "rows_estimate": planned.rows_estimate}
    demo.story.show([{**record, "heap_bytes": planned.size_bytes, "lake_estimate_bytes": planned.lake_bytes_estimate}])


def archive_table(demo: Demo, table: Table) -> None:
    """Move what is older than a month, on Spark."""
    demo.story.chapter("frostline archive")
    demo.story.say("Spark starts, reads the old partitions, writes Parquet, and compares every value with Postgres ...")
    with demo.story.exporting() as report:
        result, seconds = _timed(lambda: _archived(demo, table, report))
    if result.error:
        raise result.error
    record = {"archived_partitions": result.partitions, "rows": result.rows, "lake_bytes": result.size_bytes}
    demo.story.show([{**record, "seconds": round(seconds, 1)}])


def _archived(demo: Demo, table: Table, report: Report) -> archive.Result:
    with spark.for_jobs(demo.connection, demo.settings, report) as jobs:
        return archive.run(jobs, [table])[0]


def compare(demo: Demo, table: Table, before: Answers, title: str) -> None:
    """Ask the same questions again and stop the demo when one answer is another one."""
    demo.story.chapter(title)
    statement = sql.SQL(_statement("by_tier")).format(inner=names.inner(table))
    with demo.connection.cursor(row_factory=dict_row) as cursor:
        demo.story.show(cursor.execute(statement).fetchall())
    after = _answers(demo)
    if after != before:
        raise CorruptionError("the relation's answers are not those from before the archive", hint="report this")
    (total,) = after.total
    demo.story.say(
        f"Same {len(after.by_month)} months, same {total['events']:,} events, same revenue {total['revenue']:,}, "
        "and the same hash over every value of every row."
    )


def show_hot_query(demo: Demo) -> None:
    """Show that a question about hot rows does not ask the lake."""
    demo.story.chapter("A question about recent rows: Postgres only")
    _show_query(demo, "hot_query")
    nodes = _explain(demo, "hot_query")
    if any("Foreign Scan" in node for node in nodes):
        raise CorruptionError("a query for hot rows asked the lake", hint="report this")
    _show_nodes(demo, nodes)
    _show_time(demo, "hot_query")


def show_cold_query(demo: Demo) -> None:
    """Show one row being fetched from the lake by its key."""
    demo.story.chapter("One row from more than a year ago: by key, from the lake")
    (key,) = demo.ask("cold_key")
    _show_query(demo, "cold_query", **key)
    _show_nodes(demo, _explain(demo, "cold_query", **key))
    _show_time(demo, "cold_query", **key)


def clean_table(demo: Demo, table: Table) -> None:
    """End the grace period at once and give the space back."""
    demo.story.chapter("frostline table set events --grace 0; frostline clean")
    demo.story.say("Archived rows stay in Postgres for a grace period too (1 day, so far). This ends it.")
    policy.change(demo.connection, table, grace_period="0")
    result, seconds = _timed(lambda: clean.run(demo.connection, demo.settings, table))
    for waiting in result.waiting:
        demo.story.say(f"{waiting.partition} waits: {waiting.reason}")
    demo.story.say(f"{len(result.emptied)} partitions compared with the lake once more and emptied in {seconds:.1f} s.")


def show_sizes(demo: Demo, before: Sizes, after: Sizes) -> None:
    """Show what both tiers take."""
    demo.story.chapter("Sizes")
    demo.story.show([{"when": "before", **vars(before)}, {"when": "after", **vars(after)}])
    moved = before.postgres_bytes - after.postgres_bytes
    demo.story.say(f"What left Postgres takes 1/{moved / after.lake_bytes:.1f} of its space in the lake.")


def verify_table(demo: Demo, table: Table) -> None:
    """Read the lake's files and compare them with the fingerprints taken when they were written."""
    demo.story.chapter("frostline verify")
    report, seconds = _timed(lambda: verify.run(demo.connection, table))
    if report.faults:
        raise CorruptionError(f"{report.faults[0].where} {report.faults[0].what}", hint="report this")
    demo.story.say(f"{report.rows:,} rows in {report.files} files hold what was written. {seconds:.1f} s.")


def _statement(name: str) -> LiteralString:
    return sqlfiles.load(__package__ or "", "demo")[name]


def _answers(demo: Demo) -> Answers:
    return Answers(demo.ask("by_month"), demo.ask("whole"))


def _sizes(demo: Demo, heap: Name) -> Sizes:
    files = Path(demo.settings.warehouse).rglob("*")
    lake_bytes = sum(file.stat().st_size for file in files if file.is_file())
    return Sizes(demo.number("heap_bytes", heap=str(heap)), lake_bytes, demo.number("database_bytes"))


def _explain(demo: Demo, name: str, **values: object) -> list[str]:
    """The nodes that read rows of the table, of those that ran."""
    statement = _statement("explain") + " " + _statement(name)
    lines = [line.strip().removeprefix("->").strip() for (line,) in demo.connection.execute(statement, values or None)]
    wanted = ("Scan", "Remote SQL", "Subplans Removed")
    return [
        line
        for line in lines
        if any(word in line for word in wanted)
        and not any(word in line for word in ("never executed", "frostline.seam", "Subquery"))
    ]


def _show_nodes(demo: Demo, nodes: Sequence[str]) -> None:
    for node in nodes:
        demo.story.say(f"    {node}")


def _show_query(demo: Demo, name: str, **values: object) -> None:
    demo.story.say(ClientCursor(demo.connection).mogrify(_statement(name), values or None) + ";")


def _show_time(demo: Demo, name: str, **values: object) -> None:
    seconds = [_timed(lambda: demo.ask(name, **values))[1] for _ in range(_TIMES)]
    demo.story.say(f"{1000 * statistics.median(seconds):.1f} ms (median of {_TIMES})")


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began
