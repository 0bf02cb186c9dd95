"""Retention of tables without a lake: partitions wholly older than it are detached, and dropped if the policy says so.

Each step can be interrupted anywhere, and the next run goes on. docs/design/partitions.md has the steps.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import expiring, facts, jobs, leases, tables
from frostline.catalog.connect import Connection, first_line, operational_errors
from frostline.catalog.expiring import Expiring
from frostline.catalog.jobs import State
from frostline.catalog.patience import LOCK_TIMEOUT_MS, patiently
from frostline.errors import ConflictError, UnavailableError, message_of
from frostline.failpoints import Failpoint, reached
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.policy import ExpireBy
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.partitions import new_partition
from frostline.relation import clock, heap, names, references
from frostline.settings import Settings

_statement = sqlfiles.statements(__name__, "dropping")

_WAIT_MS = 2_000
"""How long DETACH CONCURRENTLY waits for readers. Nobody waits for it, so it may take its time."""
_HEAP_PATIENCE_S = 10.0
_DROP_PATIENCE_S = 1.0
"""How long locks are tried for. The next run tries again, and there may be hundreds of partitions."""
_KINDS: dict[str, LiteralString] = {"r": "table", "p": "table", "f": "foreign table"}
_REFUSED = (
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.DependentObjectsStillExist,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidObjectDefinition,
)
"""What Postgres says when something else needs the partition. It is reported, never forced."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What became of expired partitions."""

    dropped: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()
    """And kept, as tables of their own."""
    waiting: tuple[str, ...] = ()
    """Which are still there or not dropped yet, and why."""
    kept: tuple[str, ...] = ()
    """Which had been begun with and stay after all, and why."""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.dropped or self.detached or self.kept)


class Phase(Enum):
    """How far a partition is on its way out. What is done with it follows from that alone.

        ATTACHED        detach   ─┬─> DETACHED ─ drop ─> dropped
        HALF_DETACHED   finalize ─┘      └─ if the policy does not say drop ─> detached
        HALF_DETACHED_TOO_EARLY   attach it again ─> kept
        DETACHED_BY_SOMEBODY      forget it ─> kept
        DETACHED_TOO_EARLY        forget it ─> kept

    With a DEFAULT partition, detaching and dropping are one transaction. Where Postgres refuses, or a lock is not to be
    had, a partition waits as it is; a DETACH CONCURRENTLY that gives up leaves it half detached. After a crash the next
    run tells the phase from Postgres and our notes (`expirable`): detached, but not noted, is DETACHED_BY_SOMEBODY.
    """

    ATTACHED = auto()
    """A partition like others, past the retention period."""
    HALF_DETACHED = auto()
    """DETACH CONCURRENTLY was interrupted: new queries do not see it."""
    HALF_DETACHED_TOO_EARLY = auto()
    """The same, but it is not past the retention period any more."""
    DETACHED = auto()
    """By us, and noted. Only to be dropped."""
    DETACHED_BY_SOMEBODY = auto()
    """It was begun with, and nobody knows who has detached it."""
    DETACHED_TOO_EARLY = auto()
    """By us, but it is not past the retention period any more."""

    @property
    def needs_heap(self) -> bool:
        """Whether what comes next needs a lock of the heap."""
        return self in (Phase.ATTACHED, Phase.HALF_DETACHED, Phase.HALF_DETACHED_TOO_EARLY)


_WHY_KEPT = {
    Phase.HALF_DETACHED_TOO_EARLY: "it is not past the retention period any more, and attached again",
    Phase.DETACHED_BY_SOMEBODY: "it is detached, perhaps by a person, so it is kept; drop it if nobody needs it",
    Phase.DETACHED_TOO_EARLY: "it is detached, and not past the retention period any more; attach it again, or drop it",
}
_BUSY = "it is being read or written"


@dataclass(frozen=True)
class Expired:
    """A partition past the retention period, or one that was begun with when it was."""

    name: Name
    kind: str
    """`pg_class.relkind`."""
    oid: int
    lower: int | None
    upper: int
    phase: Phase

    @property
    def kind_sql(self) -> sql.SQL:
        """What SQL calls such a thing."""
        return sql.SQL(_KINDS[self.kind])


def expirable(connection: Connection, table: Table, partitions: Sequence[Partition] | None = None) -> list[Expired]:
    """What is wholly older than the retention period, oldest first, after what an expiry has begun with. Only reads.

    The heap's partitions are read unless they are given.
    """
    partitions = heap.partitions(connection, table) if partitions is None else partitions
    period = table.policy.retention_period
    cutoff = None if period is None else clock.before(connection, table, period, partitions)
    children = _children(connection, table, partitions)
    ripe = [child for child in children if cutoff is not None and child.upper <= cutoff]
    stuck = _begun(connection, table, children, cutoff)
    return [*stuck, *sorted(ripe, key=lambda child: child.upper)]


def _children(connection: Connection, table: Table, partitions: Sequence[Partition]) -> list[Expired]:
    """The partitions that have an end. DEFAULT has none."""
    oid = tables.heap_oid(connection, table)
    rows = connection.execute(_statement("children").format(oid=sql.Literal(oid))).fetchall()
    about = {Name(schema, name): more for schema, name, *more in rows}
    children: list[Expired] = []
    for partition in partitions:
        if partition.upper is not None and not partition.is_default and partition.name in about:
            kind, is_pending, child_oid = about[partition.name]
            phase = Phase.HALF_DETACHED if is_pending else Phase.ATTACHED
            children.append(Expired(partition.name, kind, child_oid, partition.lower, partition.upper, phase))
    return children


def _begun(connection: Connection, table: Table, children: Sequence[Expired], cutoff: int | None) -> Iterator[Expired]:
    """What an expiry that did not get to its end has left half detached or detached."""
    by_oid = {expired.oid: expired for expired in children}
    for begun in expiring.list_all(connection, table):
        child = by_oid.get(begun.oid)
        is_ripe = cutoff is not None and begun.upper <= cutoff
        if child is not None and child.phase is Phase.HALF_DETACHED and not is_ripe:
            yield replace(child, phase=Phase.HALF_DETACHED_TOO_EARLY)
        elif child is None and not begun.is_partition and begun.drops and table.policy.expire_by is ExpireBy.DROP:
            phase = _phase_of_detached(begun, is_ripe=is_ripe)
            if begun.name is not None and begun.kind is not None:
                yield Expired(begun.name, begun.kind, begun.oid, None, begun.upper, phase)


def _phase_of_detached(begun: Expiring, *, is_ripe: bool) -> Phase:
    """It goes only if it is certain that it was this program that detached it, and if it still should."""
    if not begun.is_detached:
        return Phase.DETACHED_BY_SOMEBODY
    return Phase.DETACHED if is_ripe else Phase.DETACHED_TOO_EARLY


def expire(connection: Connection, settings: Settings, chosen: Table) -> Result:
    """Detach what is past the retention period, and drop it if the policy says so. Never DEFAULT, never with CASCADE.

    Takes the table's lease. What cannot go now is in the result with the reason, and is tried again next time.
    """
    held = jobs.exclusive(connection, chosen, settings.lease_seconds)
    with operational_errors(f"expiring partitions of {chosen.name}", hint=f"frostline retain {chosen.name}"), held:
        table = tables.get(connection, chosen.name)
        expired = expirable(connection, table)
        _forget_ended(connection, table, expired)
        return _Expiry(connection, table).run(expired) if expired else Result()


def _forget_ended(connection: Connection, table: Table, expired: Sequence[Expired]) -> None:
    """What is gone, or attached as if nothing had been, was not begun with."""
    going_on = {partition.oid for partition in expired if partition.phase is not Phase.ATTACHED}
    with connection.transaction():
        leases.require(connection, table)
        for begun in expiring.list_all(connection, table):
            if begun.oid not in going_on:
                expiring.forget(connection, table, begun.oid)


class _Expiry:
    """One expiry of one table; the caller holds its lease."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.table = table
        self.drops = table.policy.expire_by is ExpireBy.DROP
        self.dropped: list[str] = []
        self.detached: list[str] = []
        self.waiting: list[str] = []
        self.kept: list[str] = []
        self.is_busy = False
        """The heap's lock was not to be had. Then it is not tried for the next partition."""

    def run(self, expired: Sequence[Expired]) -> Result:
        """Let go of one after the other. Each stays gone, whatever comes after it."""
        reached(Failpoint.PARTITION_BEFORE_START)
        job_id = jobs.start(self.connection, self.table, "retain")
        reached(Failpoint.PARTITION_STARTED)
        stage = logs.stage(_log, "retain", table=str(self.table.name), job=job_id)
        with self._recorded(job_id), stage as said:
            for partition in expired:
                self._let_go(partition)
            said.update(dropped=len(self.dropped), detached=len(self.detached), waiting=len(self.waiting))
        return Result(tuple(self.dropped), tuple(self.detached), tuple(self.waiting), tuple(self.kept))

    @contextmanager
    def _recorded(self, job_id: int) -> Generator[None]:
        try:
            yield
        except KeyboardInterrupt:
            jobs.fail(self.connection, job_id, jobs.STOPPED, interrupted=True)
            raise
        except Exception as error:
            jobs.fail(self.connection, job_id, message_of(error))
            raise
        jobs.describe(self.connection, job_id, self._described())
        if self.waiting and not (self.dropped or self.detached or self.kept):
            jobs.fail(self.connection, job_id, self.waiting[0])
        else:
            jobs.advance(self.connection, job_id, State.PUBLISHED)

    def _described(self) -> str:
        lists = (
            ("dropped", self.dropped),
            ("detached", self.detached),
            ("kept:", self.kept),
            ("waiting:", self.waiting),
        )
        return "; ".join(f"{word} {', '.join(listed)}" for word, listed in lists if listed)

    def _let_go(self, expired: Expired) -> None:
        """Do what its phase asks for, and write down what became of it."""
        if self.is_busy and expired.phase.needs_heap:
            self.waiting.append(f"{expired.name}: {_BUSY}")
            return
        try:
            self._act(expired)
        except (psycopg.errors.LockNotAvailable, UnavailableError):
            self.is_busy = self.is_busy or expired.phase.needs_heap
            self.waiting.append(f"{expired.name}: {_BUSY}")
        except _REFUSED as error:
            self.waiting.append(f"{expired.name}: {error.diag.message_detail or first_line(error)}")

    def _act(self, expired: Expired) -> None:
        match expired.phase:
            case Phase.ATTACHED | Phase.HALF_DETACHED:
                self._detach(expired)
                (self.dropped if self.drops else self.detached).append(str(expired.name))
            case Phase.DETACHED:
                self._drop(expired)
                self.dropped.append(str(expired.name))
            case Phase.HALF_DETACHED_TOO_EARLY:
                self._with_heap(lambda: self._attach_again(expired))
                self.kept.append(f"{expired.name}: {_WHY_KEPT[expired.phase]}")
            case Phase.DETACHED_BY_SOMEBODY | Phase.DETACHED_TOO_EARLY:
                self._forget(expired)
                self.kept.append(f"{expired.name}: {_WHY_KEPT[expired.phase]}")

    def _with_heap(self, act: Callable[[], None]) -> None:
        patiently(self.connection, self.table.heap, act, patience_s=_HEAP_PATIENCE_S)

    def _forget(self, expired: Expired) -> None:
        with self.connection.transaction():
            leases.require(self.connection, self.table)
            expiring.forget(self.connection, self.table, expired.oid)

    def _attach_again(self, expired: Expired) -> None:
        """One that is half detached is seen by nobody."""
        leases.require(self.connection, self.table)
        self._execute("finalize", expired)
        low, high = (
            sql.SQL("minvalue") if value is None else sql.Literal(to_text(self.table.tier_kind, value))
            for value in (expired.lower, expired.upper)
        )
        self._execute("attach_again", expired, lower=low, upper=high)
        expiring.forget(self.connection, self.table, expired.oid)

    def _detach(self, expired: Expired) -> None:
        with references.none_from_the_lake(self.connection, self.table, expired.name):
            self._detach_in_one_of_two_ways(expired)

    def _detach_in_one_of_two_ways(self, expired: Expired) -> None:
        if new_partition.default_partition(self.connection, self.table) is None:
            self._detach_concurrently(expired)
            if self.drops:
                self._drop(expired)
        else:
            self._with_heap(lambda: self._detach_at_once(expired))
            reached(Failpoint.PARTITION_DETACHED_ONE)

    def _detach_at_once(self, expired: Expired) -> None:
        """With a DEFAULT partition Postgres knows no other way. In one transaction, dropping included."""
        leases.require(self.connection, self.table)
        self._execute("finalize" if expired.phase is Phase.HALF_DETACHED else "detach", expired)
        if self.drops:
            self._execute("drop", expired)
        expiring.forget(self.connection, self.table, expired.oid)
        reached(Failpoint.PARTITION_BEFORE_COMMIT)

    def _detach_concurrently(self, expired: Expired) -> None:
        """Cannot be in a transaction. What is written down tells the next run, should this one die, what it was."""
        with self.connection.transaction():
            leases.require(self.connection, self.table)
            expiring.begin(self.connection, self.table, expired.oid, expired.name, expired.upper, drops=self.drops)
        reached(Failpoint.PARTITION_MARKED)
        try:
            with self._waiting_for_readers():
                self._execute("finalize" if expired.phase is Phase.HALF_DETACHED else "detach_concurrently", expired)
        except BaseException:
            self._forget_unless_pending(expired)
            raise
        reached(Failpoint.PARTITION_BEFORE_NOTE)
        (expiring.set_detached if self.drops else expiring.forget)(self.connection, self.table, expired.oid)
        reached(Failpoint.PARTITION_DETACHED_ONE)

    def _forget_unless_pending(self, expired: Expired) -> None:
        """Nothing happened to it, so it must not look as if. Should this fail too, the next run does it."""
        with suppress(psycopg.Error, ConflictError):
            children = _children(self.connection, self.table, heap.partitions(self.connection, self.table))
            if not any(other.oid == expired.oid and other.phase is Phase.HALF_DETACHED for other in children):
                self._forget(expired)

    @contextmanager
    def _waiting_for_readers(self) -> Generator[None]:
        oid = tables.heap_oid(self.connection, self.table)
        # With a foreign key that points here, Postgres locks the table that has it, and its writers would wait.
        is_referenced = facts.rows(self.connection, "inbound_foreign_keys", oid=oid)
        wait_ms = LOCK_TIMEOUT_MS if is_referenced else _WAIT_MS
        self.connection.execute(sql.SQL("set lock_timeout = {}").format(wait_ms))
        try:
            yield
        finally:
            self.connection.execute(sql.SQL("reset lock_timeout"))

    def _drop(self, expired: Expired) -> None:
        patiently(self.connection, expired.name, lambda: self._drop_detached(expired), patience_s=_DROP_PATIENCE_S)
        reached(Failpoint.PARTITION_DROPPED_ONE)

    def _drop_detached(self, expired: Expired) -> None:
        """Look again under its lock: somebody may have attached it again, to keep it."""
        leases.require(self.connection, self.table)
        if expired.kind != "f":  # Postgres locks no foreign table, which has no rows to lose
            self._execute("lock", expired)
        name = sql.Literal(names.identifier(expired.name).as_string(self.connection))
        row = self.connection.execute(
            _statement("is_detached").format(oid=sql.Literal(expired.oid), name=name)
        ).fetchone()
        if row is None or not row[0]:
            raise ConflictError(
                f"{expired.name} was attached again while it was to be dropped", hint="frostline status"
            )
        self._execute("drop", expired)
        expiring.forget(self.connection, self.table, expired.oid)

    def _execute(self, statement: str, expired: Expired, **parts: sql.Composable) -> None:
        self.connection.execute(
            _statement(statement).format(
                heap=names.identifier(self.table.heap),
                partition=names.identifier(expired.name),
                kind=expired.kind_sql,
                **parts,
            )
        )
