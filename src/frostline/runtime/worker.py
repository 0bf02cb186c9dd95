"""The worker: looks at every table, decides what is due, and does it. docs/design/worker.md has the rules.

It has no state that could be wrong: whatever it does is a job that can be killed anywhere and repeated.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Event

from frostline import logs
from frostline.catalog import faults, jobs, leases, migrations, tables
from frostline.catalog.connect import connect, first_line
from frostline.errors import ConflictError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import warehouse
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.work import Action, Failures, Kind, TableState, decide
from frostline.observe import survey
from frostline.pipeline import archive, clean, compact, expire, fold, premake, retain, sweep
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
        table = tables.find(self.context.connection, action.name)
        if table is None:
            return
        reached(Failpoint.WORKER_BEFORE_ACTION)
        before = jobs.failures(self.context.connection, table)
        said = logs.stage(_log, "work", action=action.kind.value, table=str(action.name), why=action.why)
        try:
            with said as line:
                line["done"] = done = ACTIONS[action.kind](self.context, table)
        except ConflictError as error:
            _log.info("%s", logs.fields(stage="work", table=str(action.name), note=error.message))
            done = False
        except Exception as error:
            if self.context.connection.broken or self.context.connection.closed:
                raise
            self._failed(action.kind, table, before, error)  # whatever it is, the other tables go on
            return
        reached(Failpoint.WORKER_AFTER_ACTION)
        self._succeeded(action, table, before, done=done)

    def _failed(self, kind: Kind, table: Table, before: Mapping[Kind, Failures], error: Exception) -> None:
        """Have the failure in the catalog, which says when to try again. A job that began has done so itself."""
        known = error if isinstance(error, FrostlineError) else faults.understood(error)
        text = known.message if known else f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
        _log.error("%s", logs.fields(stage="work", table=str(table.name), action=kind.value, error=text))
        if jobs.failures(self.context.connection, table).get(kind) == before.get(kind):
            jobs.fail(self.context.connection, jobs.start(self.context.connection, table, kind.value), text)

    def _succeeded(self, action: Action, table: Table, before: Mapping[Kind, Failures], *, done: bool) -> None:
        key = (action.kind, action.name)
        if not done:
            self.tries[key] = tables.now(self.context.connection)
            return
        self.tries.pop(key, None)
        if action.kind in before and action.kind in jobs.failures(self.context.connection, table):
            jobs.record_done(self.context.connection, table, action.kind.value, "succeeded after failures")
