"""Thaw: cold ranges come back from the lake into heap partitions, verified, and the frost line goes down.

docs/design/thaw.md has the steps and the interleavings.
"""

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import failpoints, logs, sqlfiles
from frostline.catalog import archived_partitions, jobs, lake_files, seams
from frostline.catalog.connect import Connection, Dsn, only_row
from frostline.catalog.jobs import State
from frostline.catalog.patience import PATIENCE_S, patiently
from frostline.errors import ConflictError, CorruptionError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import publish
from frostline.model import thaw as rules
from frostline.model.names import Name
from frostline.model.range import overlapping
from frostline.model.tables import NO_ROWS, Fingerprint, Seam, Table
from frostline.model.thaw import ColdRange, Holds
from frostline.model.tiers import to_text
from frostline.pipeline import job, undo
from frostline.pipeline.job import JobContext
from frostline.pipeline.refill import Piece, fill
from frostline.pipeline.undo import Lowering
from frostline.relation import bound, columns, following, heap, names, refill
from frostline.tiers.proof import fingerprint

Wanted = tuple[str | None, str | None]
"""The first value to thaw and the one to stop at, as they were typed; None for the lowest, and for the frost line."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a thaw did."""

    table: Table
    from_line: int
    to_line: int
    """Where the partition begins that the wanted value lies in."""
    refilled: tuple[str, ...]
    """The partitions that came back from the lake; those that were still in the heap are not among them."""
    rows: int


def run(context: JobContext, chosen: Table, wanted: Wanted) -> Result:
    """Make everything from a value up to the frost line hot again. T is one line, so the range can only end there."""
    connection = context.connection
    # Rows of the lake have the missing value of a new column, and not what its default is by now.
    following.tried(connection, chosen.name)
    with job.on_table(connection, context.settings, chosen, "thaw --from VALUE", "thawing") as table:
        columns.require_known(connection, table)
        seam = seams.get(connection, table)
        cold = undo.cold_range(connection, table, seam)
        start = _start(connection, table, seam, cold, wanted)
        job_id = job.start(connection, table, "thaw", seam.frost_line, start)
        return Thaw(context, table, job_id).run(seam, cold, start)


def _start(connection: Connection, table: Table, seam: Seam, cold: Sequence[ColdRange], wanted: Wanted) -> int:
    """Where the thawed range begins; UsageError for a range that cannot be thawed."""
    first, last = wanted
    line = to_text(table.tier_kind, seam.frost_line)
    if seam.frost_line == table.tier_kind.lowest:
        raise UsageError(f"nothing of {table.name} is archived", hint="frostline status")
    if last is not None and heap.tier_value(connection, table, "--to", last) != seam.frost_line:
        raise UsageError(
            f"--to {last!r} is not the frost line {line}: a range is thawed from a value up to that",
            hint=f"frostline thaw {table.name} --from VALUE; later, archive with a longer --hot or shorter",
        )
    for partition in heap.partitions(connection, table):
        ends_above = partition.upper is not None and partition.reaches_above(seam.frost_line)
        if ends_above and partition.begins_below(seam.frost_line):
            raise UsageError(
                f"partition {partition.name} lies on both sides of the frost line {line}", hint="detach it first"
            )
    start = rules.beginning(cold, _first(connection, table, first))
    if start is None:
        what = f"--from {first!r} is not below the frost line {line}: it is hot"
        raise UsageError(what if first else f"the lake has no row of {table.name} any more", hint="frostline status")
    return start


def _first(connection: Connection, table: Table, first: str | None) -> int:
    """The first value to thaw; UsageError when it lies below R, where nothing is left to come back."""
    removed = undo.floor(connection, table)
    if first is None:
        return removed
    value = heap.tier_value(connection, table, "--from", first)
    if value < removed:
        text = to_text(table.tier_kind, removed)
        raise UsageError(
            f"--from {first!r} is before {text}: older rows of {table.name} were removed for good",
            hint=f"frostline thaw {table.name} --from '{text}'",
        )
    return value


class Thaw:
    """One thaw of one table; the caller holds the table's job lock."""

    def __init__(self, context: JobContext, table: Table, job_id: int) -> None:
        self.context = context
        self.connection = context.connection
        self.settings = context.settings
        self.table = table
        self.job_id = job_id

    def run(self, seam: Seam, cold: Sequence[ColdRange], start: int) -> Result:
        """All steps in order. An error leaves readers as they were, and the refill tables to the next thaw."""
        stage = logs.stage(_log, "thaw", table=str(self.table.name), job=self.job_id)
        with job.failure_recorded(self.connection, self.job_id), self._taken_over(), stage as said:
            refill.drop_leftovers(self.connection, self.table, patience_s=PATIENCE_S)
            filled = self._refill([cold_range for cold_range in cold if cold_range.lower >= start])
            rows = sum(part.rows for _, _, part in filled)
            jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=rows)
            attached = [self._attach(cold_range, name) for cold_range, name, _ in filled]
            said.update(partitions=len(attached), rows=rows)
            if attached:
                bound.wait_for_old_plans(self.connection, self.table, self._say)
            failpoints.reached(Failpoint.THAW_WAITED)
        files = lake_files.recorded(self.connection, self.table)
        line = rules.settled(start, cold, files, undo.floor(self.connection, self.table))
        Lowering(self.context, self.table, self.job_id).run(line, cold)
        return Result(self.table, seam.frost_line, line, tuple(map(str, attached)), rows)

    @contextmanager
    def _taken_over(self) -> Generator[None]:
        """A thaw that was paused finds the tables gone that it had filled."""
        try:
            yield
        except psycopg.errors.UndefinedTable as error:
            raise ConflictError(
                f"another thaw of {self.table.name} took over and dropped what this one had filled",
                hint="frostline status",
            ) from error

    def _refill(self, cold: Sequence[ColdRange]) -> list[tuple[ColdRange, Name, Fingerprint]]:
        """Fill and verify a table for each range that the heap does not have; says what each of them holds."""
        made = list(self._create(cold))
        failpoints.reached(Failpoint.THAW_CREATED)
        pieces = [piece for cold_range, name in made for piece in self._pieces(cold_range, name)]
        done = self.context.run_tasks(self.table, fill, pieces)
        failpoints.reached(Failpoint.THAW_FILLED)
        meant = {
            name: sum((task.fingerprint for task in done if task.refill == name), start=NO_ROWS) for _, name in made
        }
        for _, name in made:
            self._verify(name, meant[name])
        failpoints.reached(Failpoint.THAW_VERIFIED)
        kept = list(self._without_empty_gaps(made, meant))
        refill.begin_notes(self.connection, self.table)
        for cold_range, name, _ in kept:
            refill.catch_up(self.connection, self.table, cold_range, name)
            refill.analyze(self.connection, name)
        failpoints.reached(Failpoint.THAW_CAUGHT_UP)
        return kept

    def _create(self, cold: Sequence[ColdRange]) -> Iterator[tuple[ColdRange, Name]]:
        files = lake_files.recorded(self.connection, self.table)
        for number, cold_range in enumerate(cold):
            in_lake = bool(overlapping(files, cold_range.range))
            if cold_range.holds is Holds.CHANGES or (cold_range.holds is Holds.NO_PARTITION and in_lake):
                yield cold_range, refill.create(self.connection, self.table, cold_range, f"{self.job_id}_{number}")
                failpoints.reached(Failpoint.THAW_CREATED_ONE)

    def _pieces(self, cold_range: ColdRange, name: Name) -> Iterator[Piece]:
        files = lake_files.recorded(self.connection, self.table)
        for file in overlapping(files, cold_range.range):
            yield Piece(
                table=self.table,
                dsn=Dsn(self.settings.dsn),
                refill=name,
                range=cold_range.range,
                file=file,
                memory_limit=self.settings.export_memory,
            )

    def _verify(self, name: Name, meant: Fingerprint) -> None:
        statement = sql.SQL(sqlfiles.load(__package__ or "", "thaw")["fingerprint"]).format(
            row_hash=fingerprint.postgres_row_hash(self.table), table=names.identifier(name)
        )
        rows, hash_sum = only_row(self.connection.execute(statement))
        if Fingerprint(rows, int(hash_sum)) != meant:
            raise CorruptionError(
                f"thaw of {self.table.name}: {name} has {rows} rows with hash sum {hash_sum}, "
                f"but the lake has {meant.rows} with {meant.hash_sum}",
                hint=f"nothing has changed; frostline verify {self.table.name}",
            )

    def _without_empty_gaps(
        self, made: Sequence[tuple[ColdRange, Name]], meant: Mapping[Name, Fingerprint]
    ) -> Iterator[tuple[ColdRange, Name, Fingerprint]]:
        """A range that never had a partition gets one only for rows of the lake; others stay in DEFAULT."""
        for cold_range, name in made:
            if cold_range.holds is Holds.NO_PARTITION and not meant[name].rows:
                refill.drop(self.connection, self.table, name)
            else:
                yield cold_range, name, meant[name]

    def _attach(self, cold_range: ColdRange, name: Name) -> Name:
        """Make the refilled table an archived partition in its grace period, in one short transaction."""
        try:
            attached = patiently(
                self.connection, self.table.name, lambda: self._attach_at_once(cold_range, name), complaint=self._in_use
            )
        except psycopg.errors.ForeignKeyViolation as error:
            raise refill.missing_parents(self.connection, self.table, name, error) from error
        failpoints.reached(Failpoint.THAW_ATTACHED)
        return attached

    def _attach_at_once(self, cold_range: ColdRange, name: Name) -> Name:
        attached = refill.attach(self.connection, self.table, cold_range, name)
        # The same T and S: a writer with an older snapshot, which cannot see these rows, notices by it. It is refused
        # if the columns have changed: the table was filled by name, and two of them may have exchanged theirs.
        seam = seams.get(self.connection, self.table)
        publish.lake(self.connection, self.table, seam, None)
        lower = None if cold_range.lower == self.table.tier_kind.lowest else cold_range.lower
        archived_partitions.record(self.connection, self.table, self.job_id, attached, lower, cold_range.upper)
        failpoints.reached(Failpoint.THAW_BEFORE_ATTACH)
        return attached

    def _in_use(self) -> UnavailableError:
        pids = ", ".join(map(str, refill.holders(self.connection, self.table)))
        return UnavailableError(
            f"{self.table.name} is still in use: pids {pids or 'unknown'} hold its DEFAULT partition or overlay",
            hint="end those transactions, then run frostline thaw again",
        )

    def _say(self, text: str) -> None:
        _log.info("%s", logs.fields(stage="thaw", table=str(self.table.name), job=self.job_id, note=text))
