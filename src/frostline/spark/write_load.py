"""Takes a staged batch into its table, its cold rows as files of the lake: docs/design/spark-writes.md."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psycopg
from pyspark.sql import SparkSession

from frostline import failpoints, filemode
from frostline.catalog import archived_partitions, batches, jobs, leases, seams, tables
from frostline.catalog.connect import Connection, dsn_of
from frostline.errors import ConflictError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import paths, warehouse
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.pipeline import settle
from frostline.pipeline.job import failure_recorded, on_table
from frostline.pipeline.load import Declined, Job
from frostline.relation import loading, staging
from frostline.relation.loading import Loading
from frostline.relation.staging import Stage
from frostline.settings import Settings
from frostline.spark import database, write_apply
from frostline.spark.write_apply import Batch, LostInCommit, Written
from frostline.spark.write_task import Copied

_TRIES = 3
_PAUSE_S = 0.2
_WAIT_S = 600.0
"""For a job that runs on the table just now."""


@dataclass(frozen=True)
class _Again:
    """Somebody else was in the way, and nothing was written: the same may succeed when it is done again."""

    reason: str
    error: psycopg.Error | None = None


@dataclass(frozen=True)
class _Known:
    """The label was taken meanwhile, and nothing was written now."""

    written: Written
    reason: str = "a batch with this label was applied meanwhile"


@dataclass(frozen=True)
class Staged:
    """A batch, its stage, and the attempts that count there."""

    batch: Batch
    stage: Stage
    copied: Sequence[Copied]

    @property
    def attempts(self) -> list[int]:
        """Those that have won."""
        return [part.attempt for part in self.copied]

    @property
    def rows(self) -> int:
        """In the whole batch."""
        return sum(part.rows for part in self.copied)


def apply(
    connection: Connection, spark: SparkSession, staged: Staged, lake_rows: int, home: str | Path | None
) -> Written | Declined:
    """Take the batch into the table, all or nothing, and with its label only once.

    Declined, before anything is done, when fewer than `lake_rows` rows can go into the lake as files.
    """
    table = _suitable(connection, staged, lake_rows)
    if isinstance(table, Declined):
        return table
    settings = _settings(connection, table, home)
    if isinstance(settings, Declined):
        return settings
    return _in_tries(Run(connection, spark, settings, staged, lake_rows), table)


def _suitable(connection: Connection, staged: Staged, lake_rows: int) -> Table | Declined:
    """The table, if the batch can and should go this way."""
    if staged.batch.mode != "append" or staged.rows < lake_rows:
        return Declined()
    tier_key = staged.stage.relation.tier_key.name
    if tier_key not in [column.name for column in staged.stage.columns]:
        return Declined(f"the batch has no column {tier_key}, so Postgres has to say what is cold")
    table = _ours(connection, staged.batch)
    if isinstance(table, Declined):
        return table
    staging.analyze(connection, staged.stage)
    line = seams.get(connection, table).frost_line
    if loading.cold_rows(connection, staged.stage, staged.attempts, table, line) < lake_rows:
        return Declined()
    obstacle = loading.obstacle(connection, table)
    return Declined(obstacle) if obstacle else table


def _ours(connection: Connection, batch: Batch) -> Table | Declined:
    """The table, if this role may do a job on it."""
    with suppress(psycopg.errors.InsufficientPrivilege):
        table = tables.get(connection, batch.table)
        if loading.may_publish(connection, table):
            return table
    return Declined("only Frostline's role may put files into the lake")


def _settings(connection: Connection, table: Table, home: str | Path | None) -> Settings | Declined:
    """Those of a job on this table. Its files go where the lake's metadata is, whatever else is configured."""
    location, separator, _ = (seams.get(connection, table).metadata_location or "").rpartition("/metadata/")
    warehouse = location.rpartition("/")[0].rpartition("/")[0]
    if not separator or paths.table_location(warehouse, table) != location:
        return Declined("its lake has no files at its place yet")
    return database.settings_for(home, dsn_of(connection), warehouse)


@dataclass(frozen=True)
class Run:
    """What one try needs."""

    connection: Connection
    spark: SparkSession
    settings: Settings
    staged: Staged
    lake_rows: int


_Outcome: TypeAlias = Written | Declined | _Known | _Again | LostInCommit


def _in_tries(run: Run, table: Table) -> Written | Declined:
    """Try a few times. How a try ends decides what comes next.

    Written        committed; it is the result
    Declined       nothing was published; the caller writes the batch through the relation
    _Known         rolled back; the result is what the first batch with this label did
    _Again         rolled back; another try, and after the last one ConflictError
    LostInCommit   nobody knows; the label tells
    """
    dsn, batch = dsn_of(run.connection), run.staged.batch  # the connection may be gone later
    for number in range(1, _TRIES + 1):
        match _once(run, table):
            case Written() | Declined() as outcome:
                return outcome
            case _Known() as known:
                return known.written
            case LostInCommit() as lost:
                return write_apply.settled(dsn, batch, lost)
            case _Again() as again if number == _TRIES:
                hint = "write again when others write less to the same rows"
                raise ConflictError(f"{batch.table}: {again.reason}", hint=hint) from again.error
            case _Again():
                time.sleep(_PAUSE_S * 2**number)
    raise AssertionError("the last try returns or raises")


def _once(run: Run, chosen: Table) -> _Outcome:
    _wait_for_lease(run.connection, chosen)
    taken = on_table(run.connection, run.settings, chosen, "jobs", "loading")
    with taken as table, filemode.applied(run.settings.file_mask):
        outcome = _tried(run, table)
    if isinstance(outcome, Written):
        failpoints.reached(Failpoint.LOAD_PUBLISHED)
    return outcome


def _wait_for_lease(connection: Connection, table: Table) -> None:
    until = time.monotonic() + _WAIT_S
    while leases.current_holder(connection, table) and time.monotonic() < until:
        time.sleep(_PAUSE_S)


def _tried(run: Run, table: Table) -> _Outcome:
    """One try under the lease. What Postgres has against it is either an error of ours, or a reason to try again."""
    connection, staged = run.connection, run.staged
    try:
        settle.lake(connection, run.settings, table)
        line = seams.get(connection, table).frost_line
        staging.require_unaltered(staged.stage, batches.relation(connection, staged.stage.relation.name))
        with loading.made(connection, staged.stage, staged.attempts, table, line) as load:
            return _check(run, table, load) or _loaded(run, table, load)
    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
        return _Again(str(error.diag.message_primary), error)
    except psycopg.Error as error:
        raise write_apply.explained(connection, staged.batch, error) from error


def _loaded(run: Run, table: Table, load: Loading) -> _Outcome:
    """Write the files and publish them. The row of a job that published nothing says why."""
    job = Job(run.connection, run.settings, table, load)
    with failure_recorded(run.connection, job.job_id):
        outcome = job.write(run.spark) or _publish(run.connection, run.staged, job)
        if isinstance(outcome, (Declined, _Known, _Again)):
            with suppress(psycopg.Error):  # whoever takes the lease next finds a job without an end
                jobs.fail(run.connection, job.job_id, outcome.reason or "")
        return outcome


def _check(run: Run, table: Table, load: Loading) -> Declined | None:
    """Under the lease: what a file must not hold."""
    connection = run.connection
    if load.live < run.lake_rows:
        return Declined("most of its cold keys were written since the last fold: frostline fold, then write again")
    removed = seams.retained(connection, table)
    if removed is not None and load.has_row(None, removed):
        raise UsageError(
            f"a row of the batch is older than the retention period of {table.name}, "
            f"which has removed what is before {to_text(table.tier_kind, removed)}",
            hint="correct the DataFrame, then write again; nothing was written",
        )
    for partition in archived_partitions.uncleaned(connection, table):
        if load.has_row(partition.lower, partition.upper):
            return Declined(f"{partition.name} is in its grace period, and has to keep all rows of its range")
    return None


def _publish(connection: Connection, staged: Staged, job: Job) -> Written | _Known | _Again | LostInCommit:
    """The transaction that readers notice."""
    batch, written = staged.batch, None
    warehouse.check()
    try:
        with connection.transaction() as transaction:
            claim = batches.begin(connection, batch.table, batch.label, batch.mode, staged.rows)
            if not claim.is_new:
                transaction.force_rollback = True
                return _Known(write_apply.repeated(batch, claim))
            if not job.load.claim():
                transaction.force_rollback = True
                return _Again("others write the same keys, or have changed the table")
            failpoints.reached(Failpoint.LOAD_CLAIMED)
            # Before the files: its triggers ask the lake server, which does not know of them yet.
            rest = job.load.insert_rest()
            job.publish()
            job.load.unclaim()
            failpoints.reached(Failpoint.LOAD_BEFORE_COMMIT)
            written = Written(staged.rows, inserted=job.load.live + rest, as_files=job.load.live)
    except psycopg.OperationalError:
        if written is None or not connection.closed:
            raise
        return LostInCommit(written)
    return written
