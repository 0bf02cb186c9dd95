"""The publish: the one transaction in which what was staged becomes what readers see.

Whoever commits to the built-in Iceberg catalog does it here, job or server, and writes nothing of its own to a pointer
or a seam. A commit moves the pointer; that of a managed table moves the seam with it, to the frost line it has or to
another one (`lake`), and that of a snapshot's copies has neither (`copies`). Lake tables, which have no seam and many
who commit to them at once, have a commit of their own: `lake_publish`.

    with publish.transaction(connection, "publishing ...", hint="..."):
        publish.lake(connection, table, seam, staged)
        ...  # what else is to change at that moment
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg

from frostline.catalog import jobs, lake_files, leases, locks, pointers, seams, tables
from frostline.catalog.connect import Connection, first_line
from frostline.catalog.jobs import State
from frostline.catalog.locks import Lock
from frostline.catalog.pointers import Move, Pointer
from frostline.errors import ConflictError, OutcomeUnknown
from frostline.lake import commit, foreign, paths, warehouse
from frostline.lake.commit import Rows, StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.model.names import Name
from frostline.model.tables import Seam, Standing, Table
from frostline.settings import Settings


@contextmanager
def transaction(connection: Connection, what: str, *, hint: str) -> Generator[Connection]:
    """The transaction that readers notice. When Postgres is lost in it, nobody knows whether it was committed.

    What was written is of no use when the warehouse went away since the job began.
    """
    warehouse.check()
    try:
        with connection.transaction():
            yield connection
    except psycopg.OperationalError as error:
        if not connection.closed:
            raise  # a server that answers has rolled it back
        raise OutcomeUnknown(f"lost Postgres while {what}: {first_line(error)}", hint=hint) from error


def lake(
    connection: Connection, table: Table, old: Seam, staged: StagedCommit | None, *, line: int | None = None
) -> None:
    """Inside a publishing transaction: the staged lake becomes the current one, and the line the frost line.

    Without a line, the frost line stays. Without anything staged, the lake stays, and the seam is written all the same:
    a transaction with an older snapshot notices by it.
    ConflictError when the job has lost its lease, the seam is not the old one any more, or somebody else has committed
    to the lake. What was staged must have been built upon the old seam's state: the pointer moves from there only.
    Also when the table has got other columns since it was read. ACCESS SHARE on the heap.
    """
    _require_columns(connection, table)
    leases.require(connection, table)
    foreign.refuse(connection, table)
    new, manifests = _with_line(old, line), None
    if staged is not None and staged.changes:
        if staged.previous_location != old.metadata_location:
            raise ConflictError(f"the lake of {table.name} has changed since it was read", hint="run the command again")
        pointers.swap(connection, table, old.metadata_location, staged.metadata_location)
        new = replace(new, snapshot_id=staged.snapshot_id, metadata_location=staged.metadata_location)
        manifests = staged.manifests
        lake_files.record_checksums(connection, table, staged.checksums)
    seams.move(connection, table, old, new, manifests)


def _require_columns(connection: Connection, table: Table) -> None:
    """Nobody has altered the table since it was read, nor does until the transaction ends.

    What is recorded of a file is of the columns that the table has: an ALTER writes it down of the files that it sees,
    and must see this one. The heap comes before the seam, as whoever alters a table takes them.
    """
    try:
        locks.take_only(connection, Lock.ACCESS_SHARE, table.heap)
    except psycopg.errors.UndefinedTable:
        raise tables.altered(table) from None
    tables.require_unaltered(connection, table)


def _with_line(seam: Seam, line: int | None) -> Seam:
    return seam if line is None else replace(seam, frost_line=line)


def line_only(connection: Connection, table: Table, line: int) -> None:
    """Inside a publishing transaction: the frost line moves and the lake stays, which need not even be there."""
    leases.require(connection, table)
    seam = seams.get(connection, table)
    seams.move(connection, table, seam, _with_line(seam, line))


def copies(connection: Connection, snapshot: str, moves: Sequence[Move], gone: Iterable[Pointer] = ()) -> None:
    """Inside a publishing transaction: the copies of a snapshot are these, and those others are gone.

    They have no seam and no lease; the caller holds the lock of the snapshot's name.
    ConflictError when somebody else has committed to one of them.
    """
    pointers.swap_copies(connection, snapshot, moves)
    pointers.drop_copies(connection, gone)


def copies_back(connection: Connection, snapshot: str, before: Iterable[Pointer], after: Iterable[Move]) -> None:
    """In a transaction: the copies of an older version of a snapshot take the place of these, whatever was committed.

    The caller holds the lock of the snapshot's name. Without an older version, the snapshot has no copies any more.
    """
    pointers.drop_copies(connection, before)
    moves = list(after)
    if moves:
        copies(connection, snapshot, moves)


def first(connection: Connection, table: Table, staged: StagedCommit, line: int) -> None:
    """In the transaction that registers the table: it has this lake, up to this frost line. Nobody can hold its lease.

    ConflictError when the Iceberg catalog has a table of its name.
    """
    seam = seams.get(connection, table)
    pointers.swap(connection, table, None, staged.metadata_location)
    lake_files.record_checksums(connection, table, staged.checksums)
    new = Seam(table.id, line, staged.snapshot_id, staged.metadata_location)
    seams.move(connection, table, seam, new, staged.manifests)


def begin_anew(connection: Connection, table: Table) -> None:
    """In a transaction: the table has nothing in the lake, as before its first archive. Its files there stay."""
    seam, files = seams.get(connection, table), lake_files.recorded(connection, table)
    lake_files.forget(connection, table, [file.path for file in files])
    pointers.drop(connection, Pointer.of(table))
    seams.move(connection, table, seam, replace(seam, snapshot_id=None, metadata_location=None))


def point_back(connection: Connection, table: Table, standing: Standing, other_names: Sequence[Name]) -> None:
    """Inside a publishing transaction: the Iceberg catalog has what the seam has, and none of the other names for it.

    ConflictError when somebody else has committed since the standing was read.
    """
    pointers.put(connection, table, standing.pointer, standing.location, other_names)


def leave_none(connection: Connection, table: Table) -> None:
    """In the transaction that gives up the table: the Iceberg catalog has it no more, nor a namespace that is empty."""
    pointers.drop_copies(connection, [Pointer.of(table)])


@dataclass(frozen=True)
class Exchange:
    """Files of a table's lake that give way to others: how fold, undo, compact and retain publish what they wrote."""

    table: Table
    job_id: int
    replaced: Sequence[str]
    """Paths."""
    written: Sequence[WrittenFile]
    rows: Rows = Rows.OTHERS

    def stage(self, connection: Connection, settings: Settings) -> StagedCommit | None:
        """Write the Iceberg metadata; nothing points at it yet. None when the lake does not change."""
        if not self.replaced and not self.written and self.rows is not Rows.SAME_PACKED:
            return None
        return self.stage_upon(foreign.base(connection, self.table), settings)

    def stage_upon(self, base: str | None, settings: Settings) -> StagedCommit:
        """The same upon this metadata, which the caller has found to be the seam's."""
        return commit.stage(
            self.table,
            location=paths.table_location(settings.warehouse, self.table),
            base=base,
            add=self.written,
            replace=frozenset(self.replaced),
            summary={commit.JOB_ID: str(self.job_id)},
            rows=self.rows,
        )

    def swap(self, connection: Connection, staged: StagedCommit | None, seam: Seam, *, line: int | None = None) -> None:
        """Inside a publishing transaction: pointer, S, T, the records and the job's state change together."""
        if staged is None and line in (None, seam.frost_line):
            leases.require(connection, self.table)
            foreign.refuse(connection, self.table)
        else:
            lake(connection, self.table, seam, staged, line=line)
        written = [file.recorded for file in self.written]
        lake_files.replace(connection, self.table, self.job_id, self.replaced, written)
        jobs.advance(connection, self.job_id, State.PUBLISHED)
