"""Repair: what somebody else did to a lake, and the two ways out. docs/design/foreign-commits.md has the reasons.

Restore lets the Iceberg catalog point to the seam again. Adopt first takes the rows of an append into the table, as an
INSERT would bring them.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import psycopg

from frostline import logs
from frostline.catalog import archived_partitions, jobs, leases, pointers, seams, tables
from frostline.catalog.connect import Connection, Dsn, first_line
from frostline.catalog.jobs import State
from frostline.errors import ConflictError, CorruptionError, FrostlineError, UsageError, message_of
from frostline.lake import difference, foreign, parquet, paths, publish, snapshots, store, warehouse
from frostline.lake.commit import StagedCommit
from frostline.lake.difference import NOTHING, Content, Difference, Held
from frostline.lake.publish import Exchange
from frostline.model.names import Name, quoted
from frostline.model.range import Range
from frostline.model.tables import NO_ROWS, RecordedFile, Standing, Table
from frostline.model.tiers import to_text
from frostline.pipeline import job, load, refill
from frostline.pipeline.refill import Piece
from frostline.relation import loading
from frostline.relation.loading import Loading
from frostline.settings import Settings
from frostline.tiers.proof import fingerprint

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Findings:
    """What somebody else did, and what was done about it."""

    table: Table
    standing: Standing
    files: Difference
    operations: tuple[str, ...] = ()
    """Of the snapshots since ours."""
    other_names: tuple[Name, ...] = ()
    """Tables of the Iceberg catalog whose metadata is in the folder of this one: it was renamed."""
    missing: tuple[str, ...] = ()
    """Files of ours that are gone from the store."""
    no_append: str | None = None
    """Why there is nothing to adopt."""
    is_readable: bool = True
    """The other's metadata is; else nobody knows what is different."""
    done: str | None = None
    rows: int = 0
    """How many were adopted."""

    @property
    def is_foreign(self) -> bool:
        """Whether there is anything to repair."""
        return self.standing.is_foreign or bool(self.other_names)

    @property
    def theirs(self) -> Content | None:
        """What the catalog has in place of ours, if it has something else and that can be read."""
        return self.files.theirs if self.standing.is_foreign and self.is_readable else None


def look(connection: Connection, table: Table) -> Findings:
    """What is different. Reads all manifests of both states, and asks the store for each of our files."""
    standing = pointers.standing(connection, table)
    location = standing.location
    ours = NOTHING if location is None else difference.content(snapshots.read_metadata(location))
    folder = None if location is None else location.rpartition("/metadata/")[0]
    with store.reachable(f"look for the lake's files of {table.name}"):
        missing = tuple(path for path in ours.files if paths.size_bytes(path) is None)
    findings = Findings(
        table,
        standing,
        Difference(ours, ours),
        other_names=tuple(pointers.other_names(connection, table, folder)) if folder else (),
        missing=missing,
        no_append="nobody else has committed to it",
    )
    return _compared(findings, ours) if standing.is_foreign else findings


def _compared(findings: Findings, ours: Content) -> Findings:
    """With what the other metadata has, if there is any and it can be read."""
    standing = findings.standing
    if standing.pointer is None:
        return replace(findings, files=Difference(ours, NOTHING), no_append="the catalog has no such table any more")
    try:
        theirs = snapshots.metadata_now(standing.pointer)
        files = Difference(ours, difference.content(theirs))
    except (FrostlineError, ValueError, OSError) as error:
        why = f"its metadata cannot be read: {' '.join(message_of(error).split())}"
        return replace(findings, no_append=why, is_readable=False)
    done = tuple(difference.operations(theirs, standing.snapshot_id))
    why = "Frostline has put nothing into the lake yet"
    if standing.location is not None:
        why = difference.why_not_rows(findings.table, snapshots.read_metadata(standing.location), theirs, files)
    return replace(findings, files=files, operations=done, no_append=why)


def restore(connection: Connection, settings: Settings, chosen: Table) -> Findings:
    """Let the Iceberg catalog point to the seam's state, as it did. The other's files stay where they are.

    CorruptionError when a file of that state is gone: then the other's may be all that is left of its rows.
    """
    with _leased(connection, settings, chosen) as table:
        findings = look(connection, table)
        if not findings.is_foreign:
            return findings
        _refuse_missing(findings)
        job_id = jobs.start(connection, table, "repair")
        with job.failure_recorded(connection, job_id), _publishing(connection, table):
            leases.require(connection, table)
            point_back(connection, findings)
            jobs.describe(connection, job_id, f"restored; the other's metadata was {findings.standing.pointer}")
            jobs.advance(connection, job_id, State.PUBLISHED)
    _log.info("%s", logs.fields(stage="repair", table=str(table.name), job=job_id, done="restored"))
    return replace(findings, done="restored")


@contextmanager
def _leased(connection: Connection, settings: Settings, table: Table) -> Generator[Table]:
    """The table's lease, as every job has it, and the warehouse, but for a lake that is not as it should be."""
    with (
        job.leased(connection, settings, table, "repair", "repairing"),
        warehouse.guarded(connection, settings.warehouse),
    ):
        yield tables.get(connection, table.name)


def _publishing(connection: Connection, table: Table) -> AbstractContextManager[Connection]:
    hint = f"frostline repair {table.name} shows whether it was done"
    return publish.transaction(connection, f"repairing {table.name}", hint=hint)


def point_back(connection: Connection, findings: Findings) -> None:
    """Inside a publishing transaction: the catalog has what the seam has, and no other name for it."""
    publish.point_back(connection, findings.table, findings.standing, findings.other_names)


def _refuse_missing(findings: Findings) -> None:
    if findings.missing:
        raise CorruptionError(
            f"{len(findings.missing)} files of {findings.table.name} are gone, the first is {findings.missing[0]}; "
            "nothing was changed",
            hint=f"restore them from a backup of the warehouse, then run frostline repair {findings.table.name}",
        )


def adopt(connection: Connection, settings: Settings, chosen: Table) -> Findings:
    """Take the rows that somebody else has appended into the table, as if they had been inserted, and point back.

    UsageError, with nothing changed, when it was no append, or when Postgres would not take one of the rows.
    """
    with _leased(connection, settings, chosen) as table:
        findings = look(connection, table)
        if findings.no_append:
            hint = f"frostline repair {table.name} --restore" if findings.is_foreign else "frostline status"
            raise UsageError(f"nothing of {table.name} can be adopted: {findings.no_append}", hint=hint)
        _refuse_missing(findings)
        with _loaded(connection, settings, table, findings.files.added) as rows, _publishing(connection, table):
            point_back(connection, findings)
            rows.publish_all()
    _log.info("%s", logs.fields(stage="repair", table=str(table.name), job=rows.job_id, done="adopted", rows=rows.rows))
    return replace(findings, done="adopted", rows=rows.rows)


@contextmanager
def _loaded(
    connection: Connection, settings: Settings, table: Table, files: Mapping[str, Held]
) -> Generator["Adoption"]:
    """The rows of these files, ready to be published; UsageError when the table would not take one of them.

    They pass Postgres' own input functions, NOT NULL, CHECKs and the primary key in a table of the heap's shape. Cold
    ones then go into files of our own, as batches from Spark do, proven by fingerprints.

    The caller holds the table's lease. An error leaves the table as it was and the job row failed.
    """
    obstacle = loading.obstacle(connection, table)
    if obstacle:
        raise _refused(table, f"{obstacle}, which a commit to the lake does not heed")
    with loading.empty(connection, table) as rows:
        _fill(connection, settings, table, rows, files)
        adoption = Adoption(connection, settings, table, rows)
        with job.failure_recorded(connection, adoption.job_id):
            adoption.write(None)
            yield adoption


def _fill(connection: Connection, settings: Settings, table: Table, rows: Loading, files: Mapping[str, Held]) -> None:
    try:
        with connection.transaction():
            for path, held in files.items():
                _copy(settings, table, rows, path, held)
        line = seams.get(connection, table).frost_line
        kept = archived_partitions.uncleaned(connection, table)
        rows.settle(line, [(partition.lower, partition.upper) for partition in kept])
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        raise _refused(table, _said(error)) from error
    removed = seams.retained(connection, table)
    if removed is not None and rows.has_row(None, removed):
        text = to_text(table.tier_kind, removed)
        raise _refused(table, f"a row is older than {text}, where the retention period has removed all rows")


def _copy(settings: Settings, table: Table, rows: Loading, path: str, held: Held) -> None:
    """Bring in the rows of one file. All of them have to arrive: a row without a tier key lies in no range."""
    with store.reachable(f"read {path}"):
        if _field_ids(path) != {column.field_id for column in table.columns}:
            raise _refused(table, f"the columns of {path} do not have the ids of the table's")
        kind = table.tier_kind
        file = RecordedFile(path, held.size_bytes, kind.lowest, kind.highest, NO_ROWS)
        finite = Range(kind.lowest, kind.highest)
        piece = Piece(table, Dsn(settings.dsn), rows.name, finite, file, settings.export_memory)
        count = rows.copy(refill.lines(piece))
    if count != held.rows:
        raise _refused(
            table, f"{held.rows - count} rows of {path} have no {quoted(table.tier_key)} that a row can have"
        )


def _field_ids(path: str) -> set[int]:
    try:
        return set(parquet.names(path))
    except (KeyError, TypeError):  # a file that was not written for Iceberg
        return set()


def _said(error: psycopg.Error) -> str:
    """What Postgres has against a row. Of a key that is there twice it names an index that nobody knows."""
    said, detail = error.diag.message_primary or first_line(error), error.diag.message_detail
    if isinstance(error, psycopg.errors.UniqueViolation) and detail:
        return f"a key is there twice: {detail}"
    return f"{said} ({detail})" if detail else said


def _refused(table: Table, why: str) -> UsageError:
    return UsageError(
        f"the rows that somebody else appended to {table.name} cannot be adopted: {why}; nothing was changed",
        hint=f"frostline repair {table.name} --restore, and insert the right rows in Postgres",
    )


class Adoption(load.Job):
    """The files of our own that hold the adopted rows."""

    kind = "repair"
    rows = 0
    """How many were adopted, once they are."""

    def again(self) -> str:
        """The command."""
        return f"frostline repair {self.table.name} --adopt"

    def stage(self, change: Exchange) -> StagedCommit | None:
        """Upon the seam's state, whatever the catalog points to: it will point back first."""
        if not change.written:
            return None
        standing = pointers.standing(self.connection, self.table)
        return change.stage_upon(foreign.sound(self.connection, self.table, standing), self.settings)

    def known(self, key_hash: int) -> NoReturn:
        """UsageError for a key that the lake has, or another key of the same hash."""
        key = self.load.key_of(fingerprint.postgres_key_hash(self.table), key_hash)
        columns, values = ", ".join(map(quoted, self.table.key)), ", ".join(key)
        raise _refused(self.table, f"the lake has a row with ({columns}) = ({values})")

    def publish_all(self) -> None:
        """Inside the publishing transaction, after the catalog points to the seam's state again."""
        try:
            if not self.load.claim():
                hint = f"frostline repair {self.table.name} --adopt"
                raise ConflictError(f"others write the same keys of {self.table.name}, or have changed it", hint=hint)
            rest = self.load.insert_rest()
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            raise _refused(self.table, _said(error)) from error
        self.publish()
        self.load.unclaim()
        self.rows = self.load.live + rest
        jobs.describe(self.connection, self.job_id, f"adopted {self.rows} rows")
