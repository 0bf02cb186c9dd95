"""Retention of tables without a lake: partitions wholly older than it are detached, and dropped if the policy says so.

Each step can be interrupted anywhere, and the next run goes on. docs/design/partitions.md has the steps.
"""

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import facts, jobs, leases, tables
from frostline.catalog.connect import Connection, first_line, gives_up
from frostline.catalog.jobs import State
from frostline.errors import UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.model.names import Name
from frostline.model.policy import ExpireBy
from frostline.model.tables import Table
from frostline.relation import clock, heap, names, newpartition
from frostline.relation.patience import LOCK_TIMEOUT_MS, patiently
from frostline.settings import Settings

_WAIT_MS = 2_000
"""How long DETACH CONCURRENTLY waits for readers. Nobody waits for it, so it may take its time."""
_KINDS: dict[str, LiteralString] = {"r": "table", "p": "table", "f": "foreign table"}
_REFUSED = (
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.DependentObjectsStillExist,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.FeatureNotSupported,
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

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.dropped or self.detached)


@dataclass(frozen=True)
class Expired:
    """A partition past the retention period."""

    name: Name
    kind: str
    """`pg_class.relkind`."""
    is_pending: bool = False
    """It is half detached."""
    is_detached: bool = False
    """It is only to be dropped."""

    @property
    def kind_sql(self) -> sql.SQL:
        """What SQL calls such a thing."""
        return sql.SQL(_KINDS[self.kind])


def _statement(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "partitioning")[name])


def _made_by(table: Table) -> sql.Literal:
    """The comment of a partition that is detached to be dropped."""
    return sql.Literal(f"expired: Frostline drops it as a partition of table {table.id}")


def expirable(connection: Connection, table: Table) -> list[Expired]:
    """What is wholly older than the retention period, oldest first, after what only waits to be dropped."""
    period = table.policy.retention_period
    if period is None:
        return []
    partitions = heap.partitions(connection, table)
    cutoff = clock.before(connection, table, period, partitions)
    ripe = [one for one in partitions if not one.is_default and one.upper is not None and one.upper <= cutoff]
    children = _children(connection, table)
    ordered = sorted(ripe, key=lambda one: one.upper or 0)
    return [*_to_be_dropped(connection, table), *(children[one.name] for one in ordered if one.name in children)]


def _children(connection: Connection, table: Table) -> dict[Name, Expired]:
    oid = tables.heap_oid(connection, table.name, table.mode)
    found = connection.execute(_statement("children").format(oid=sql.Literal(oid))).fetchall()
    return {Name(*row[:2]): Expired(Name(*row[:2]), row[2], is_pending=row[3]) for row in found}


def _to_be_dropped(connection: Connection, table: Table) -> Iterator[Expired]:
    if table.policy.expire_by is ExpireBy.DROP:
        for schema, name, kind in connection.execute(
            _statement("to_be_dropped").format(made_by=_made_by(table))
        ).fetchall():
            yield Expired(Name(schema, name), kind, is_detached=True)


def expire(connection: Connection, settings: Settings, chosen: Table) -> Result:
    """Detach what is past the retention period, and drop it if the policy says so. Never DEFAULT, never with CASCADE.

    Takes the table's lease. What cannot go now is in the result with the reason, and is tried again next time.
    """
    held = jobs.exclusive(connection, chosen, settings.lease_seconds)
    with gives_up(f"expiring partitions of {chosen.name}", hint=f"frostline retain {chosen.name}"), held:
        table = tables.get(connection, chosen.name)
        expired = expirable(connection, table)
        return _Expiry(connection, table).run(expired) if expired else Result()


class _Expiry:
    """One expiry of one table; the caller holds its lease."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.table = table
        self.drops = table.policy.expire_by is ExpireBy.DROP
        self.dropped: list[str] = []
        self.detached: list[str] = []
        self.waiting: list[str] = []

    def run(self, expired: list[Expired]) -> Result:
        reached(Failpoint.PARTITION_BEFORE_START)
        job_id = jobs.start(self.connection, self.table, "retain")
        reached(Failpoint.PARTITION_STARTED)
        stage = logs.stage(_log, "retain", table=str(self.table.name), job=job_id)
        with self._recorded(job_id), stage as said:
            for one in expired:
                self._let_go(one)
            said.update(dropped=len(self.dropped), detached=len(self.detached), waiting=len(self.waiting))
        return Result(tuple(self.dropped), tuple(self.detached), tuple(self.waiting))

    @contextmanager
    def _recorded(self, job_id: int) -> Generator[None]:
        try:
            yield
        except Exception as error:
            jobs.fail(self.connection, job_id, str(error))
            raise
        jobs.describe(self.connection, job_id, self._described())
        if self.waiting and not (self.dropped or self.detached):
            jobs.fail(self.connection, job_id, self.waiting[0])
        else:
            jobs.advance(self.connection, job_id, State.PUBLISHED)

    def _described(self) -> str:
        lists = (("dropped", self.dropped), ("detached", self.detached), ("waiting:", self.waiting))
        return "; ".join(f"{word} {', '.join(listed)}" for word, listed in lists if listed)

    def _let_go(self, one: Expired) -> None:
        try:
            if not one.is_detached:
                self._detach(one)
            elif self.drops:
                self._drop(one)
            (self.dropped if self.drops else self.detached).append(str(one.name))
        except (psycopg.errors.LockNotAvailable, UnavailableError):
            self.waiting.append(f"{one.name}: it is being read or written")
        except _REFUSED as error:
            self.waiting.append(f"{one.name}: {error.diag.message_detail or first_line(error)}")

    def _detach(self, one: Expired) -> None:
        if newpartition.default_partition(self.connection, self.table) is None:
            self._detach_concurrently(one)
            if self.drops:
                self._drop(one)
        else:
            patiently(self.connection, self.table.heap, lambda: self._detach_at_once(one))
            reached(Failpoint.PARTITION_DETACHED_ONE)

    def _detach_at_once(self, one: Expired) -> None:
        """With a DEFAULT partition Postgres knows no other way. In one transaction, dropping included."""
        leases.require(self.connection, self.table)
        self._execute("finalize" if one.is_pending else "detach", one)
        if self.drops:
            self._execute("drop", one)
        reached(Failpoint.PARTITION_BEFORE_COMMIT)

    def _detach_concurrently(self, one: Expired) -> None:
        """Cannot be in a transaction. The comment tells the next run, should this one die, that it is to be dropped."""
        with self.connection.transaction():
            leases.require(self.connection, self.table)
            if self.drops:
                self._execute("mark", one)
        reached(Failpoint.PARTITION_MARKED)
        with self._waiting_for_readers():
            self._execute("finalize" if one.is_pending else "detach_concurrently", one)
        reached(Failpoint.PARTITION_DETACHED_ONE)

    @contextmanager
    def _waiting_for_readers(self) -> Generator[None]:
        oid = tables.heap_oid(self.connection, self.table.name, self.table.mode)
        # With a foreign key that points here, Postgres locks the table that has it, and its writers would wait.
        is_referenced = facts.rows(self.connection, "inbound_foreign_keys", oid=oid)
        wait_ms = LOCK_TIMEOUT_MS if is_referenced else _WAIT_MS
        self.connection.execute(sql.SQL("set lock_timeout = {}").format(wait_ms))
        try:
            yield
        finally:
            self.connection.execute(sql.SQL("reset lock_timeout"))

    def _drop(self, one: Expired) -> None:
        patiently(self.connection, one.name, lambda: self._execute("drop", one))
        reached(Failpoint.PARTITION_DROPPED_ONE)

    def _execute(self, statement: str, one: Expired) -> None:
        self.connection.execute(
            _statement(statement).format(
                heap=names.identifier(self.table.heap),
                partition=names.identifier(one.name),
                kind=one.kind_sql,
                made_by=_made_by(self.table),
            )
        )
