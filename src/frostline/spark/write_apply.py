"""The one transaction that takes a staged batch into its table, and what is known when it fails."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from frostline import failpoints
from frostline.catalog import batches
from frostline.catalog.batches import Claim
from frostline.catalog.connect import Connection, connect, dsn_of, first_line
from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.model.names import Name, quoted
from frostline.relation import staging
from frostline.relation.applying import Applied, Applying, UpsertRace
from frostline.relation.staging import Stage
from frostline.spark.write_task import Copied, refused

_TRIES = 5
_PAUSE_S = 0.05
_LOOKS = 10
_LOOK_PAUSE_S = 1.0


@dataclass(frozen=True)
class Batch:
    """What is written: where, how, and under which label."""

    table: Name
    mode: str
    label: str | None


@dataclass(frozen=True)
class Written:
    """What a write did."""

    rows: int
    """In the batch. Of one that was applied before: what it had then."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    applied: bool = True
    """False: a batch with this label was applied before, and nothing was done now."""
    as_files: int = 0
    """How many of the inserted rows went into the lake as files."""
    not_as_files: str | None = None
    """Why none did, though the batch is large enough for it."""


@dataclass(frozen=True)
class LostInCommit:
    """Postgres was lost when it had been told to commit: `settled` finds out whether it did."""

    written: Written


def applied_before(connection: Connection, batch: Batch) -> Written | None:
    """What a batch with this label did, if there was one. Waits for one that is just being applied."""
    try:
        with connection.transaction(force_rollback=True):
            claim = batches.begin(connection, batch.table, batch.label, batch.mode, 0)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _may_not(connection, batch, error) from None
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
        raise UsageError("the catalog of this database knows no writes from Spark", hint="frostline init") from None
    return None if claim.is_new else repeated(batch, claim)


def repeated(batch: Batch, claim: Claim) -> Written:
    """What is said of a batch that was applied before; UsageError if it was another one."""
    if claim.mode != batch.mode:
        raise UsageError(
            f"label {batch.label!r} was used for a batch of mode {claim.mode}, this one is {batch.mode}",
            hint="give every batch a label of its own",
        )
    return Written(claim.rows, applied=False)


def apply(connection: Connection, stage: Stage, batch: Batch, copied: Sequence[Copied]) -> Written:
    """Take the rows of these attempts into the table. Everything or nothing, and with its label only once."""
    staging.analyze(connection, stage)
    dsn = dsn_of(connection)
    for number in range(1, _TRIES + 1):
        try:
            done = _once(connection, stage, batch, copied)
        except (psycopg.Error, UpsertRace) as error:
            if number == _TRIES or not _may_pass(error, batch):
                raise explained(connection, batch, error) from error
            time.sleep(_PAUSE_S * 2**number)
        else:
            return settled(dsn, batch, done) if isinstance(done, LostInCommit) else done
    raise AssertionError("the last try returns or raises")


def _once(connection: Connection, stage: Stage, batch: Batch, copied: Sequence[Copied]) -> Written | LostInCommit:
    rows = sum(part.rows for part in copied)
    written: Written | None = None
    try:
        with connection.transaction():
            claim = batches.begin(connection, batch.table, batch.label, batch.mode, rows)
            if not claim.is_new:
                return repeated(batch, claim)
            done = _changes(Applying(connection, stage, [part.attempt for part in copied]), batch.mode, rows)
            # Whoever has written to the table keeps out who would alter it.
            staging.require_unaltered(stage, batches.relation(connection, stage.relation.name))
            failpoints.reached(Failpoint.WRITE_BEFORE_COMMIT)
            written = Written(rows, done.inserted, done.updated, done.deleted)
    except psycopg.OperationalError:
        if written is None or not connection.closed:
            raise
        return LostInCommit(written)
    return written


def _changes(applying: Applying, mode: str, rows: int) -> Applied:
    ways: dict[str, Callable[[], Applied]] = {
        "append": applying.append,
        "upsert": lambda: applying.upsert(rows),
        "delete": applying.delete,
    }
    return ways[mode]()


def settled(dsn: str, batch: Batch, lost: LostInCommit) -> Written:
    """Find out by the label whether it was committed. The claim waits for a transaction that is still at it."""
    for _ in range(_LOOKS if batch.label is not None else 0):
        try:
            with (
                connect(dsn, purpose="spark write", for_user=True) as connection,
                connection.transaction(force_rollback=True),
            ):
                claim = batches.begin(connection, batch.table, batch.label, batch.mode, 0)
        except (UnavailableError, psycopg.OperationalError):
            time.sleep(_LOOK_PAUSE_S)
            continue
        if claim.is_new:
            raise UnavailableError(f"lost Postgres, and nothing was written to {batch.table}", hint="write again")
        return lost.written
    hint = "write again with the same label" if batch.label is not None else f"look into {batch.table} for the rows"
    raise OutcomeUnknown(f"lost Postgres while it committed the batch for {batch.table}", hint=hint)


def _may_pass(error: Exception, batch: Batch) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    if isinstance(error, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, UpsertRace)):
        return True
    return isinstance(error, psycopg.errors.UniqueViolation) and batch.mode == "upsert"


def explained(connection: Connection, batch: Batch, error: psycopg.Error | UpsertRace) -> FrostlineError:
    """What an error of the transaction means for whoever writes."""
    if isinstance(error, UpsertRace):
        return error
    if _may_pass(error, batch):
        hint = "write again when others write less to the same rows"
        return ConflictError(f"{batch.table}: {error.diag.message_primary}", hint=hint)
    if isinstance(error, psycopg.errors.UniqueViolation):
        return UsageError(str(refused(error)), hint="mode='upsert' replaces rows whose key exists")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return _may_not(connection, batch, error)
    if isinstance(error, psycopg.OperationalError):
        hint = "write again; if it names frostline_lake, start the lake server first: frostline serve"
        return UnavailableError(f"nothing was written to {batch.table}: {first_line(error)}", hint=hint)
    return refused(error)


def _may_not(connection: Connection, batch: Batch, error: psycopg.Error) -> FrostlineError:
    """Of a role: it lacks what every write from Spark needs, or what this one needs on the table."""
    said = error.diag.message_primary or ""
    if batches.SCHEMA in said or "begin_batch" in said:
        return staging.may_not_stage(connection, error)
    role = quoted(connection.info.user)
    return UsageError(f"{batch.mode} to {batch.table}: {said}", hint=f"frostline grant {role} {batch.table}")
