"""Truncate: both tiers of a table are emptied in one transaction. docs/design/truncate.md has the reasons."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from frostline import failpoints, sqlfiles
from frostline.catalog import archived_partitions, jobs, lake_files, seams, tables, trust
from frostline.catalog.connect import Connection, only_value
from frostline.catalog.jobs import State
from frostline.catalog.patience import patiently
from frostline.errors import UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import publish, warehouse
from frostline.lake.commit import StagedCommit
from frostline.lake.publish import Exchange
from frostline.model.names import quoted
from frostline.model.partitions import Partition
from frostline.model.tables import RecordedFile, Seam, Table
from frostline.pipeline import job, undo
from frostline.relation import bound, heap, marks, names, references
from frostline.settings import Settings

_log = logging.getLogger(__name__)
_statement = sqlfiles.statements(__name__, "truncate")

_BOUND_PATIENCE_S = 5.0
"""As after an undo: for a long transaction, the next `clean` does it."""
_IDENTITIES: dict[bool, LiteralString] = {True: "restart identity", False: "continue identity"}


@dataclass(frozen=True)
class Result:
    """What a truncation did, or would do."""

    table: Table
    from_line: int
    to_line: int
    lake_files: int
    lake_rows: int
    marks: int
    """How many rows the overlay had. With all partitions of the heap locked, or as they are now."""
    partitions: int


def run(connection: Connection, settings: Settings, chosen: Table, *, restart_identity: bool = False) -> Result:
    """Remove every row of both tiers, for good. Needs no Spark and no lake server, but the warehouse.

    ACCESS EXCLUSIVE on the heap and all its partitions, tried for a moment at a time, for as long as it takes to delete
    the marks and to truncate. An error leaves everything as it was.
    """
    with job.on_table(connection, settings, chosen, "truncate", "truncating") as table:
        _refuse(connection, table)
        return Truncation(connection, settings, table, restart_identity=restart_identity).run()


def planned(connection: Connection, table: Table) -> Result:
    """What a truncation would do now; UsageError if it would be refused."""
    trust.require(connection, table)
    _refuse(connection, table)
    seam, partitions = seams.get(connection, table), heap.partitions(connection, table, sizes=False)
    line, _ = _line(connection, table, seam, partitions)
    marked = heap.marks(connection, table, None, None)
    return _result(table, seam, line, lake_files.recorded(connection, table), marked, partitions)


def _result(
    table: Table, seam: Seam, line: int, files: Sequence[RecordedFile], marked: int, partitions: Sequence[Partition]
) -> Result:
    rows = sum(file.fingerprint.rows for file in files)
    return Result(table, seam.frost_line, line, len(files), rows, marked, len(partitions))


def _refuse(connection: Connection, table: Table) -> None:
    """UsageError where Postgres would refuse to truncate a plain table; and where it would run code with our rights."""
    name = sql.Literal(names.identifier(table.heap).as_string(connection))
    role = quoted(connection.info.user)
    if not only_value(connection.execute(_statement("may_truncate").format(heap=name))):
        raise UsageError(f"role {role} may not truncate {table.heap}", hint=f"grant truncate on {table.heap} to {role}")
    for reference in references.inbound(connection, table):
        if reference.child != table.heap:
            drop = f"alter table {reference.child} drop constraint {quoted(reference.constraint)}"
            raise UsageError(
                f"foreign key {reference} points at {table.heap}: Postgres truncates no such table",
                hint=f"{drop}; then run the command again, and add the key again",
            )
    for trigger, partition, function in connection.execute(_statement("untrusted_triggers").format(heap=name)):
        raise UsageError(
            f"trigger {quoted(trigger)} on {partition} calls {function} of a role with fewer rights than {role}",
            hint=f"if it does what it should: alter function {function} owner to {role}; else: "
            f"alter table {partition} disable trigger {quoted(trigger)}",
        )


def _line(
    connection: Connection, table: Table, seam: Seam, partitions: Sequence[Partition]
) -> tuple[int, Partition | None]:
    """Where the frost line goes: to the smallest value that a row can have, which is R if there is one.

    Not into the middle of a partition: then to its beginning. That partition must refuse what is older than R.
    """
    line = min(seam.frost_line, undo.floor(connection, table))
    for partition in partitions:
        lower = table.tier_kind.lowest if partition.lower is None else partition.lower
        upper = table.tier_kind.highest if partition.upper is None else partition.upper
        if not partition.is_default and lower < line < upper:
            return lower, partition
    return line, None


class Truncation:
    """One truncation of one table; the caller holds the table's job lock."""

    def __init__(self, connection: Connection, settings: Settings, table: Table, *, restart_identity: bool) -> None:
        self.connection = connection
        self.settings = settings
        self.table = table
        self.identities = sql.SQL(_IDENTITIES[restart_identity])
        self.seam = seams.get(connection, table)
        self.files = lake_files.recorded(connection, table)

    def run(self) -> Result:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        begun = job.begun(_log, self.connection, self.table, "truncate", self.seam.frost_line)
        with begun as (job_id, said):
            change = Exchange(self.table, job_id, [file.path for file in self.files], ())
            staged = change.stage(self.connection, self.settings)
            failpoints.reached(Failpoint.TRUNCATE_STAGED)
            done = self._publish(change, staged)
            said.update(files=done.lake_files, rows=done.lake_rows, marks=done.marks)
        bound.lower(self.connection, self.table, patience_s=_BOUND_PATIENCE_S)
        failpoints.reached(Failpoint.TRUNCATE_LOWERED_BOUND)
        return done

    def _publish(self, change: Exchange, staged: StagedCommit | None) -> Result:
        """One transaction; each try to get the locks is a savepoint in it."""
        name = self.table.name
        hint = "frostline status shows whether the table is empty; if it is not, run frostline truncate again"
        with publish.transaction(self.connection, f"truncating {name}", hint=hint):
            done = patiently(self.connection, name, lambda: self._empty(change, staged), complaint=self._in_use)
            failpoints.reached(Failpoint.TRUNCATE_BEFORE_COMMIT)
        failpoints.reached(Failpoint.TRUNCATE_PUBLISHED)
        return done

    def _empty(self, change: Exchange, staged: StagedCommit | None) -> Result:
        """The heap is locked before the seam, as writers do; TRUNCATE comes last, so that its triggers see the rest.

        They may write new rows, and the marks of those must stay.
        """
        warehouse.check()  # before anybody waits for us
        target = names.identifier(self.table.heap)
        self.connection.execute(_statement("lock").format(heap=target))
        _refuse(self.connection, self.table)  # nobody can add a trigger or a foreign key any more
        partitions = heap.partitions(self.connection, self.table, sizes=False)
        line, across = _line(self.connection, self.table, self.seam, partitions)
        if across is not None:
            heap.mark_changes(self.connection, self.table, names.identifier(across.name))
        change.swap(self.connection, staged, self.seam, line=line)
        archived_partitions.forget_above(self.connection, self.table, line)
        tables.lower(self.connection, self.table)
        overlay = names.overlay(self.table)
        marked = self.connection.execute(_statement("empty_overlay").format(overlay=overlay)).rowcount
        done = _result(self.table, self.seam, line, self.files, marked, partitions)
        self._describe(change.job_id, done)
        self.connection.execute(_statement("own_search_path"))
        with marks.marking_disabled(self.connection, self.table):
            self.connection.execute(_statement("truncate").format(heap=target, identities=self.identities))
        failpoints.reached(Failpoint.TRUNCATE_EMPTIED)
        return done

    def _describe(self, job_id: int, done: Result) -> None:
        jobs.advance(self.connection, job_id, State.PUBLISHED, rows=done.lake_rows)
        jobs.describe(self.connection, job_id, f"all rows are gone: {done.lake_rows} of the lake, and the heap's")

    def _in_use(self) -> UnavailableError:
        return UnavailableError(
            f"{self.table.name} is still in use; nothing was changed",
            hint="end the transactions that hold it, then run frostline truncate again",
        )
