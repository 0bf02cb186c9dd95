"""Turns an unpartitioned table into a RANGE-partitioned one, while others read and write it.

A shadow, a trigger that keeps it equal, a copy in small batches, a comparison, a swap. Each step is written down in the
catalog, and the next run goes on where a dead one stopped. docs/design/conversion.md has the interleavings.
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import failpoints, logs, sqlfiles
from frostline.catalog import conversions, horizon, patience, periods, tables
from frostline.catalog.connect import Connection, first_value, only_row
from frostline.catalog.conversions import Running
from frostline.errors import CorruptionError, UnavailableError, UsageError
from frostline.failpoints import Failpoint
from frostline.model import conversion as rules
from frostline.model.conversion import Conversion, ConversionFacts, NewPartition, State
from frostline.model.heap_grid import Step
from frostline.model.names import Name
from frostline.model.registration import Refusal
from frostline.model.tiers import TierKind
from frostline.partitions.convert import backfill, shadow, swap
from frostline.relation.names import identifier
from frostline.relation.registration import refuse

_statement = sqlfiles.statements(__name__, "conversion")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far a conversion is."""

    name: Name
    state: State
    rows: int
    rows_estimate: int


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Converted:
    """What `table convert` did."""

    name: Name
    changed: bool
    rows: int = 0
    old: Name | None = None
    """Where the old table is, if it was kept."""


@dataclass(frozen=True)
class _Work:
    """A conversion under way, and what its steps need."""

    connection: Connection
    running: Running
    facts: ConversionFacts
    report: Report


def convert(connection: Connection, request: Conversion, report: Report) -> Converted:
    """Convert the table, or go on with it. Running it again when it is done changes nothing.

    No lock on the table is held or waited for longer than moments. UnavailableError when it could not be had within a
    minute, or somebody's transaction is older than the copy: then run it again later.
    """
    with conversions.exclusive(connection, request.name):
        running = conversions.find(connection, request.name)
        if running is None:
            if _is_done(connection, request):
                return Converted(request.name, changed=False)
            running = _start(connection, request)
        _refuse_another(connection, running, request)
        return _go_on(connection, running, report)


def tier_kind(connection: Connection, request: Conversion) -> TierKind:
    """The type of the column to partition by; UsageError when it cannot be one."""
    facts = conversions.facts(connection, request.name, request.tier_key)
    if facts.kind is None:
        refuse("convert", request.name, rules.refusals(facts))
        raise UsageError(
            f"{request.name} cannot be partitioned by {request.tier_key}", hint="name a time or integer column"
        )
    return facts.kind


def plan(connection: Connection, request: Conversion) -> tuple[str, ...]:
    """The statements that would make the shadow. They are run and rolled back, so they are known to work."""
    if conversions.find(connection, request.name):
        raise UsageError(f"{request.name} is being converted already", hint="run it without --dry-run to go on")
    if _is_done(connection, request):
        return ()
    facts, kind, partitions = _check(connection, request)
    with _room_for_locks(partitions):
        made = patience.patiently(
            connection, request.name, lambda: shadow.make(connection, request, facts, kind, partitions), dry_run=True
        )
    return made.statements


def abandon(connection: Connection, name: Name) -> bool:
    """Remove all that an unfinished conversion has made; says whether there was one. Not after the swap."""
    with conversions.exclusive(connection, name):
        running = conversions.find(connection, name)
        if running is None:
            return False
        if running.state is State.SWAPPED:
            hint = f"to drop the old table: frostline table convert {name} --partition-by {running.tier_key} "
            raise UsageError(f"{name} is converted already", hint=hint + f"--every '{running.partition_interval}'")
        shadow.undo(connection, running)
        return True


def _is_done(connection: Connection, request: Conversion) -> bool:
    """Whether the table is partitioned as requested. How wide its partitions are does not matter."""
    if tables.find(connection, request.name):
        raise UsageError(f"{request.name} is managed by Frostline already", hint=f"frostline table show {request.name}")
    heap = conversions.facts(connection, request.name, request.tier_key).heap
    tier = heap.tier_column
    is_done = heap.strategy == "r" and heap.key_parts == 1 and tier is not None and tier.name == request.tier_key
    if is_done and heap.tier_kind is not None:
        _step(connection, request, heap.tier_kind)  # a wrong width is refused all the same
    return is_done


def _refuse_another(connection: Connection, running: Running, request: Conversion) -> None:
    if running.tier_key != request.tier_key or not _is_as_wide(
        connection, running.partition_interval, request.partition_interval
    ):
        raise UsageError(
            f"{request.name} is being converted by {running.tier_key} every {running.partition_interval}",
            hint=f"go on with that, or begin anew after: frostline table convert {request.name} --abandon",
        )


def _is_as_wide(connection: Connection, width: str, other: str) -> bool:
    """Whether they say the same: `month` is `1 month`."""
    if width == other or width.isdecimal() or other.isdecimal():
        return width == other
    return periods.printed_width(connection, width) == periods.printed_width(connection, other)


def _check(connection: Connection, request: Conversion) -> tuple[ConversionFacts, TierKind, list[NewPartition]]:
    """Refuse with all reasons at once, before anything is made."""
    facts = conversions.facts(connection, request.name, request.tier_key)
    refuse("convert", request.name, rules.refusals(facts))
    kind = facts.kind
    assert kind is not None
    step = _step(connection, request, kind)
    extent = shadow.extent(connection, facts, kind)
    refuse("convert", request.name, rules.extent_refusals(kind, request.tier_key, extent))
    partitions = rules.new_partitions(request.name, kind, step, extent)
    if isinstance(partitions, Refusal):
        raise UsageError(f"cannot convert {request.name}: {partitions.reason}", hint=partitions.hint)
    return facts, kind, partitions


def _step(connection: Connection, request: Conversion, kind: TierKind) -> Step:
    step = rules.step(kind, request.partition_interval, periods.step(connection, kind, request.partition_interval))
    if isinstance(step, Refusal):
        raise UsageError(step.reason, hint=step.hint)
    return step


def _start(connection: Connection, request: Conversion) -> Running:
    facts, kind, partitions = _check(connection, request)
    failpoints.reached(Failpoint.CONVERT_BEFORE_START)
    with _room_for_locks(partitions):
        made = patience.patiently(
            connection, request.name, lambda: shadow.make(connection, request, facts, kind, partitions)
        )
    failpoints.reached(Failpoint.CONVERT_PREPARED)
    return made.running


@contextmanager
def _room_for_locks(partitions: list[NewPartition]) -> Generator[None]:
    """Postgres holds a lock on everything that a transaction makes."""
    try:
        yield
    except psycopg.errors.OutOfMemory:
        raise UsageError(
            f"Postgres has no room for the locks of {len(partitions)} partitions",
            hint="say a wider --every, or raise max_locks_per_transaction",
        ) from None


def _go_on(connection: Connection, running: Running, report: Report) -> Converted:
    while running.state is not State.SWAPPED:
        swap.check_unchanged(connection, running)
        facts = conversions.facts(connection, running.name, running.tier_key)
        with logs.stage(_log, "convert", table=str(running.name), after=running.state.value):
            _STEPS[running.state](_Work(connection, running, facts, report))
        advanced = conversions.find(connection, running.name)
        assert advanced is not None
        running = advanced
    return _finish(connection, running)


def _sync(work: _Work) -> None:
    shadow.sync(work.connection, work.running, work.facts)
    failpoints.reached(Failpoint.CONVERT_SYNCED)


def _fill(work: _Work) -> None:
    connection, running = work.connection, work.running
    estimate = first_value(connection.execute(_statement("estimate"), {"oid": running.original})) or 0
    backfill.fill(
        connection,
        running,
        work.facts,
        lambda rows: work.report(Progress(running.name, running.state, rows, max(rows, estimate))),
    )
    failpoints.reached(Failpoint.CONVERT_FILLED)


def _verify(work: _Work) -> None:
    """Compare all rows under one snapshot. No match, no swap."""
    connection, running = work.connection, work.running
    copy = identifier(shadow.name(running))
    connection.execute(sql.SQL("analyze {}").format(copy))
    failpoints.reached(Failpoint.CONVERT_ANALYZED)
    compare = _statement("compare").format(original=identifier(running.name), shadow=copy)
    same, rows, copied = only_row(connection.execute(compare))
    if not same:
        raise CorruptionError(
            f"the copy of {running.name} is not equal to it: {copied} rows, and {rows} rows in the table",
            hint=f"somebody has written to the copy; frostline table convert {running.name} --abandon",
        )
    conversions.move(connection, running, State.VERIFIED)
    failpoints.reached(Failpoint.CONVERT_VERIFIED)


def _swap(work: _Work) -> None:
    _wait_for_old_snapshots(work.connection, work.running)
    swap.swap(work.connection, work.running)
    failpoints.reached(Failpoint.CONVERT_SWAPPED)


def _wait_for_old_snapshots(connection: Connection, running: Running) -> None:
    """Whoever has a snapshot from before the copy would not find its rows after the swap. Holds nothing."""
    assert running.filled_xid is not None
    deadline = time.monotonic() + patience.PATIENCE_S
    while holders := horizon.older_snapshots(connection, running.filled_xid):
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"transactions from before {running.name} was copied are still open: {', '.join(holders)}",
                hint="end them, then run the command again: it goes on where it stopped",
            )
        time.sleep(patience.LOCK_TIMEOUT_MS / 1000)


def _finish(connection: Connection, running: Running) -> Converted:
    """Drop the old table, unless it is to be kept."""
    kept = running.keep_old or not swap.drop_old(connection, running)
    failpoints.reached(Failpoint.CONVERT_DROPPED)
    connection.execute(sql.SQL("analyze {}").format(identifier(running.name)))
    conversions.move(connection, running, State.DONE)
    return Converted(running.name, changed=True, rows=running.rows, old=swap.old(running) if kept else None)


_STEPS: dict[State, Callable[[_Work], None]] = {
    State.PREPARED: _sync,
    State.SYNCED: _fill,
    State.FILLED: _verify,
    State.VERIFIED: _swap,
}
