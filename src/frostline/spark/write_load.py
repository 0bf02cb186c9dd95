"""Takes a staged batch into its table, its cold rows as files of the lake: docs/design/spark-writes.md."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from frostline import failpoints, filemode
from frostline.catalog import batches, jobs, leases, seams, tables
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
from frostline.spark.write_apply import Batch, Written
from frostline.spark.write_task import Copied

_TRIES = 3
_PAUSE_S = 0.2
_WAIT_S = 600.0
"""For a job that runs on the table just now."""


class _Again(Exception):
    """Somebody else was in the way: the same may succeed when it is done again."""


class _Known(Exception):
    """The label was taken meanwhile."""

    def __init__(self, written: Written) -> None:
        super().__init__("a batch with this label was applied meanwhile")
        self.written = written


@dataclass(frozen=True)
class Staged:
    """A batch, its stage, and the attempts that count there."""

    batch: Batch
    stage: Stage
    copied: Sequence[Copied]

    @property
    def attempts(self) -> list[int]:
        """Those that have won."""
        return [one.attempt for one in self.copied]

    @property
    def rows(self) -> int:
        """In the whole batch."""
        return sum(one.rows for one in self.copied)


def apply(
    connection: Connection, spark: SparkSession, staged: Staged, lake_rows: int, home: str | Path | None
) -> Written:
    """Take the batch into the table, all or nothing, and with its label only once.

    Declined, before anything is done, when fewer than `lake_rows` rows can go into the lake as files.
    """
    if staged.batch.mode != "append" or staged.rows < lake_rows:
        raise Declined
    table = _suitable(connection, staged, lake_rows)
    settings = _settings(connection, table, home)
    dsn = dsn_of(connection)
    for number in range(1, _TRIES + 1):
        try:
            return _once(Run(connection, spark, settings, staged, lake_rows), table)
        except write_apply.LostInCommit as lost:
            return write_apply.settled(dsn, staged.batch, lost)
        except _Known as known:
            return known.written
        except _Again as again:
            if number == _TRIES:
                hint = "write again when others write less to the same rows"
                raise ConflictError(f"{staged.batch.table}: {again}", hint=hint) from again
            time.sleep(_PAUSE_S * 2**number)
    raise AssertionError("the last try returns or raises")


def _suitable(connection: Connection, staged: Staged, lake_rows: int) -> Table:
    """The table, if the batch can and should go this way; Declined if not."""
    tier_key = staged.stage.relation.tier_key.name
    if tier_key not in [one.name for one in staged.stage.columns]:
        raise Declined(f"the batch has no column {tier_key}, so Postgres has to say what is cold")
    table = _ours(connection, staged.batch)
    staging.analyze(connection, staged.stage)
    line = seams.get(connection, table).frost_line
    if loading.cold_rows(connection, staged.stage, staged.attempts, table, line) < lake_rows:
        raise Declined
    obstacle = loading.obstacle(connection, table)
    if obstacle:
        raise Declined(obstacle)
    return table


def _ours(connection: Connection, batch: Batch) -> Table:
    """The table; Declined when this role may not do a job on it."""
    try:
        table = tables.get(connection, batch.table)
        if loading.may_publish(connection, table):
            return table
    except psycopg.errors.InsufficientPrivilege:
        pass
    raise Declined("only Frostline's role may put files into the lake")


def _settings(connection: Connection, table: Table, home: str | Path | None) -> Settings:
    """Those of a job on this table. Its files go where the lake's metadata is, whatever else is configured."""
    location, found, _ = (seams.get(connection, table).metadata_location or "").rpartition("/metadata/")
    warehouse = location.rpartition("/")[0].rpartition("/")[0]
    if not found or paths.table_location(warehouse, table) != location:
        raise Declined("its lake has no files at its place yet")
    return database.settings_for(home, dsn_of(connection), warehouse)


@dataclass(frozen=True)
class Run:
    """What one try needs."""

    connection: Connection
    spark: SparkSession
    settings: Settings
    staged: Staged
    lake_rows: int


def _once(run: Run, chosen: Table) -> Written:
    connection, staged = run.connection, run.staged
    _wait_for_turn(connection, chosen)
    held = on_table(connection, run.settings, chosen, "jobs", "loading")
    with held as table, _explained(connection, staged.batch), filemode.applied(run.settings.file_mask):
        settle.lake(connection, run.settings, table)
        line = seams.get(connection, table).frost_line
        with loading.made(connection, staged.stage, staged.attempts, table, line) as load:
            _check(run, table, load)
            job = Job(connection, run.settings, table, load)
            with failure_recorded(connection, job.job_id):
                job.write(run.spark)
                done = _publish(connection, staged, job)
    failpoints.reached(Failpoint.LOAD_PUBLISHED)
    return done


def _wait_for_turn(connection: Connection, table: Table) -> None:
    until = time.monotonic() + _WAIT_S
    while leases.current_holder(connection, table) and time.monotonic() < until:
        time.sleep(_PAUSE_S)


@contextmanager
def _explained(connection: Connection, batch: Batch) -> Generator[None]:
    try:
        yield
    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
        raise _Again(str(error.diag.message_primary)) from error
    except psycopg.Error as error:
        raise write_apply.explained(connection, batch, error) from error


def _check(run: Run, table: Table, load: Loading) -> None:
    """Under the lease: what a file must not hold."""
    connection = run.connection
    if load.live < run.lake_rows:
        raise Declined("most of its cold keys were written since the last fold: frostline fold, then write again")
    removed = seams.retained(connection, table)
    if removed is not None and load.has_row(None, removed):
        raise UsageError(
            f"a row of the batch is older than the retention period of {table.name}, "
            f"which has removed what is before {to_text(table.tier_kind, removed)}",
            hint="correct the DataFrame, then write again; nothing was written",
        )
    for one in jobs.uncleaned(connection, table):
        if load.has_row(one.lower, one.upper):
            raise Declined(f"{one.name} is in its grace period, and has to stay the whole truth of its range")


def _publish(connection: Connection, staged: Staged, job: Job) -> Written:
    """The transaction that readers notice."""
    batch, written = staged.batch, None
    warehouse.check()
    try:
        with connection.transaction():
            claim = batches.begin(connection, batch.table, batch.label, batch.mode, staged.rows)
            if not claim.is_new:
                raise _Known(write_apply.repeated(batch, claim))
            if not job.load.claim():
                raise _Again("others write the same keys, or have changed the table")
            failpoints.reached(Failpoint.LOAD_CLAIMED)
            # Before the files: its triggers ask the lake server, which does not know of them yet.
            rest = job.load.insert_rest()
            job.publish()
            job.load.unclaim()
            failpoints.reached(Failpoint.LOAD_BEFORE_COMMIT)
            written = Written(staged.rows, inserted=job.load.live + rest, as_files=job.load.live)
    except psycopg.OperationalError:
        if written is not None and connection.closed:
            raise write_apply.LostInCommit(written) from None
        raise
    return written
