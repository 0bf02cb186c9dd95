"""The worker: looks at every table, decides what is due, and does it. docs/design/worker.md has the rules.

It has no state that could be wrong: whatever it does is a job that can be killed anywhere and repeated.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Event

from frostline import logs
from frostline.catalog import faults, jobs, lake_tables, lake_upkeep, leases, migrations, tables
from frostline.catalog.connect import connect, first_line
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import warehouse
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.work import Action, Failures, Kind, TableState, decide
from frostline.observe import survey
from frostline.pipeline import (
    archive,
    clean,
    compact,
    expire,
    fold,
    lake_compact,
    lake_expire,
    lake_sweep,
    leaving,
    premake,
    retain,
    sweep,
)
from frostline.pipeline import spark as pipeline_spark
from frostline.pipeline.job import JobContext
from frostline.relation import constraints, following, holding, rowsecurity
from frostline.settings import Settings

_RECONNECT_S = (1, 2, 5, 10, 30, 60)

_log = logging.getLogger(__name__)


def _sweep(context: JobContext, table: Table) -> bool:
    sweep.sweep_table(context.connection, context.settings, table)
    tables.set_swept(context.connection, table)
    return True


ACTIONS: Mapping[Kind, Callable[[JobContext, Table], bool]] = {
    Kind.PREMAKE: lambda context, table: bool(premake.run(context.connection, context.settings, table).created),
    Kind.ARCHIVE: lambda context, table: archive.archive_table(context, table).partitions > 0,
    Kind.FOLD: lambda context, table: fold.fold_table(context, table).taken > 0,
    Kind.CLEAN: lambda context, table: bool(clean.run(context.connection, context.settings, table).emptied),
    Kind.RETAIN: lambda context, table: retain.retain_table(context, table).changed,
    Kind.COMPACT: lambda context, table: compact.compact_table(context, table, only_due=True).changed,
    Kind.EXPIRE: lambda context, table: expire.expire_table(context.connection, context.settings, table).snapshots > 0,
    Kind.SWEEP: _sweep,
}
"""What each kind of action calls; it says whether anything was done."""


def _sweep_lake(context: JobContext, table: LakePointer) -> bool:
    age = sweep.safety_age(context.connection, sweep.Request())
    lake_sweep.sweep_table(context.connection, context.settings, table, age)
    return True


def _look(context: JobContext, table: LakePointer) -> bool:
    lake_compact.compact_table(context, table, only_due=True)
    return True


LAKE_ACTIONS: Mapping[Kind, Callable[[JobContext, LakePointer], bool]] = {
    Kind.COMPACT: _look,
    Kind.EXPIRE: lambda context, table: lake_expire.expire_table(context.connection, context.settings, table).files > 0,
    Kind.SWEEP: _sweep_lake,
}
"""The same of lake tables."""


@dataclass(frozen=True)
class _Subject:
    """What an action is about, a managed table or a lake table: how it is done, and how that is written down."""

    name: Name
    do: Callable[[Kind], bool]
    failures: Callable[[], Mapping[Kind, Failures]]
    start: Callable[[Kind], int]
    record_done: Callable[[Kind, str], None]


def _managed(context: JobContext, table: Table) -> _Subject:
    connection = context.connection
    return _Subject(
        table.name,
        lambda kind: ACTIONS[kind](context, table),
        lambda: jobs.failures(connection, table),
        lambda kind: jobs.start(connection, table, kind.value),
        lambda kind, detail: jobs.record_done(connection, table, kind.value, detail),
    )


def _of_lake(context: JobContext, table: LakePointer) -> _Subject:
    connection = context.connection
    return _Subject(
        table.name,
        lambda kind: LAKE_ACTIONS[kind](context, table),
        lambda: lake_upkeep.failures(connection, table.id),
        lambda kind: lake_upkeep.start(connection, table, kind.value),
        lambda kind, detail: lake_upkeep.record_done(connection, table, kind.value, detail),
    )


def run(settings: Settings, stop: Event, *, announce: Callable[[str], None], without_lake: bool = False) -> None:
    """Work until `stop` is set. A Postgres that goes away is waited for; one that is not there at all is an error.

    So is a warehouse that is not the database's, unless whoever starts the worker has told so already.
    """
    with connect(settings.dsn, purpose="worker") as connection:
        migrations.require(connection)
        if not without_lake:
            warehouse.expect(connection, settings.warehouse)
    announce("ready worker")
    with pipeline_spark.while_busy(settings) as spark:
        failures = 0
        while not stop.is_set():
            worker: Worker | None = None
            try:
                with connect(settings.dsn, purpose="worker") as connection:
                    worker = Worker(JobContext(connection, settings, spark.session), stop, spark.rest)
                    _take_part(worker)
            except Exception as error:  # noqa: BLE001  (whatever it is, a worker that has ended helps nobody)
                _log.error("%s", logs.fields(stage="worker", error=f"{type(error).__name__}: {first_line(error)}"))
                failures = 0 if worker is not None and worker.rounds else failures + 1
                stop.wait(_RECONNECT_S[min(failures, len(_RECONNECT_S) - 1)])


def _take_part(worker: "Worker") -> None:
    """Lead while nobody else does."""
    settings = worker.context.settings
    while not worker.stop.is_set():
        try:
            with leases.leading(worker.context.connection, settings.lease_seconds) as leadership:
                _log.info("%s", logs.fields(stage="worker", note="leads"))
                worker.lead(lambda: leases.still_leads(worker.context.connection, leadership))
        except ConflictError as error:
            _log.debug("%s", logs.fields(stage="worker", note=error.message))
            worker.stop.wait(settings.worker_interval_s)


class Worker:
    """The worker that leads, on one connection."""

    def __init__(self, context: JobContext, stop: Event, rest: Callable[[], None] = lambda: None) -> None:
        self.context = context
        self.stop = stop
        self._rest = rest
        self.tries: dict[tuple[Kind, Name], datetime] = {}
        self.rounds = 0
        """How many it has finished."""
        self._told: dict[Name, str] = {}

    def lead(self, still_leads: Callable[[], bool]) -> None:
        """Rounds with pauses, until it is told to stop or another worker leads."""
        while not self.stop.is_set() and still_leads():
            started = time.monotonic()
            self.round(still_leads)
            self._rest()
            self.stop.wait(max(0.0, self.context.settings.worker_interval_s - (time.monotonic() - started)))

    def round(self, still_leads: Callable[[], bool] = lambda: True) -> list[Action]:
        """Do what is due now; returns what was tried."""
        rowsecurity.follow(self.context.connection)
        following.follow_all(self.context.connection)
        holding.follow(self.context.connection)
        constraints.record_all(self.context.connection)
        leaving.delete_left(self.context.connection, self.context.settings)
        states = survey.list_all(self.context.connection)
        self._tell(states)
        actions = decide(states, self.tries)
        for position, action in enumerate(actions):
            if self.stop.is_set() or not still_leads():
                return actions[:position]
            self.perform(action)
        self.rounds += 1
        return actions

    def _tell(self, states: Sequence[TableState]) -> None:
        """Say at once, and once, that somebody else has committed to a lake."""
        foreign = {state.name: state.foreign for state in states if state.foreign}
        for name, what in foreign.items():
            if self._told.get(name) != what:
                hint = f"frostline repair {name}"
                _log.error("%s", logs.fields(stage="work", table=str(name), error=what, hint=hint))
        self._told = foreign

    def perform(self, action: Action) -> None:
        """Do one action. What goes wrong is written down, and is the next round's affair."""
        subject = self._subject(action)
        if subject is None:
            return
        reached(Failpoint.WORKER_BEFORE_ACTION)
        before = subject.failures()
        said = logs.stage(_log, "work", action=action.kind.value, table=str(action.name), why=action.why)
        try:
            with said as line:
                line["done"] = done = subject.do(action.kind)
        except ConflictError as error:
            _log.info("%s", logs.fields(stage="work", table=str(action.name), note=error.message))
            done = False
        except Exception as error:
            if self.context.connection.broken or self.context.connection.closed:
                raise
            self._failed(action.kind, subject, before, error)  # whatever it is, the other tables go on
            return
        reached(Failpoint.WORKER_AFTER_ACTION)
        self._succeeded(action, subject, before, done=done)

    def _subject(self, action: Action) -> _Subject | None:
        """None for a table that is gone."""
        if action.lake_table_id is None:
            table = tables.find(self.context.connection, action.name)
            return None if table is None else _managed(self.context, table)
        known = {table.id: table for table in lake_tables.listed(self.context.connection)}
        return _of_lake(self.context, known[action.lake_table_id]) if action.lake_table_id in known else None

    def _failed(self, kind: Kind, subject: _Subject, before: Mapping[Kind, Failures], error: Exception) -> None:
        """Have the failure in the catalog, which says when to try again. A job that began has done so itself."""
        known = error if isinstance(error, FrostlineError) else faults.understood(error)
        text = known.message if known else f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
        _log.error("%s", logs.fields(stage="work", table=str(subject.name), action=kind.value, error=text))
        if subject.failures().get(kind) == before.get(kind):
            jobs.fail(self.context.connection, subject.start(kind), text)

    def _succeeded(self, action: Action, subject: _Subject, before: Mapping[Kind, Failures], *, done: bool) -> None:
        key = (action.kind, action.name)
        if not done:
            self.tries[key] = tables.now(self.context.connection)
            return
        self.tries.pop(key, None)
        if action.kind in before and action.kind in subject.failures():
            subject.record_done(action.kind, "succeeded after failures")
