"""Whatever is done to a managed table, in whatever order, it has the rows of a plain table that got the same statements.

`make test` tries a few lives, always the same ones; `make soak MINUTES=60` tries new ones for as long as it is told. A life
that goes wrong is printed as the calls that lead there: put them into a test of their own below.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.fixtures import killed, states
from tests.fixtures.lake import Lake
from tests.fixtures.months import World, beginning, contents
from tests.fixtures.statements import run

from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.relation import following, form, removal

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTES = float(os.environ.get("FROSTLINE_TEST_SOAK_MINUTES", "0"))

rows_of = st.integers(2, 9)
"""Every so manieth row."""
months_back = st.integers(0, 4)
endings = st.sampled_from(["commit", "rollback", "savepoint"])
deaths = st.sampled_from(
    [
        ("archive", failpoint)
        for failpoint in (Failpoint.ARCHIVE_CAPTURED, Failpoint.ARCHIVE_STAGED, Failpoint.ARCHIVE_RAISED_BOUND)
    ]
    + [("archive", failpoint) for failpoint in (Failpoint.ARCHIVE_BEFORE_COMMIT, Failpoint.ARCHIVE_PUBLISHED)]
    + [
        ("archive", failpoint)
        for failpoint in (Failpoint.CLEAN_VERIFIED, Failpoint.CLEAN_BEFORE_COMMIT, Failpoint.CLEAN_EMPTIED)
    ]
    + [
        ("fold", failpoint)
        for failpoint in (Failpoint.FOLD_STARTED, Failpoint.FOLD_STAGED, Failpoint.FOLD_BEFORE_COMMIT)
    ]
    + [("fold", Failpoint.FOLD_PUBLISHED)]
    + [
        ("undo", failpoint)
        for failpoint in (Failpoint.UNDO_STAGED, Failpoint.UNDO_BEFORE_COMMIT, Failpoint.UNDO_PUBLISHED)
    ]
    + [
        ("thaw", failpoint)
        for failpoint in (Failpoint.THAW_FILLED, Failpoint.THAW_CAUGHT_UP, Failpoint.THAW_BEFORE_ATTACH)
    ]
    + [("thaw", failpoint) for failpoint in (Failpoint.THAW_ATTACHED, Failpoint.THAW_WAITED)]
    + [
        ("expire", failpoint)
        for failpoint in (Failpoint.EXPIRE_STAGED, Failpoint.EXPIRE_BEFORE_COMMIT, Failpoint.EXPIRE_PUBLISHED)
    ]
    + [("compact", failpoint) for failpoint in (Failpoint.COMPACT_STAGED, Failpoint.COMPACT_BEFORE_COMMIT)]
    + [("compact", Failpoint.COMPACT_PUBLISHED), ("retain", Failpoint.RETAIN_STAGED)]
    + [("retain", failpoint) for failpoint in (Failpoint.RETAIN_BEFORE_COMMIT, Failpoint.RETAIN_PUBLISHED)]
    + [("expire", Failpoint.EXPIRE_DELETED_ONE), ("sweep", Failpoint.SWEEP_DELETED_ONE)]
)

INSERT = """insert into public.{t}
select i, '{at}'::timestamptz + interval '1 h' * i, 'late', 0 from generate_series(100, 106) i where i % {every} = 0"""
UPDATE = "update public.{t} set amount = amount + 1, status = 'changed {every}' where ts >= '{at}' and id % {every} = 0"
DELETE = "delete from public.{t} where ts >= '{at}' and ts < '{next}' and id % {every} = 0"
FILL = "update public.{t} set COLUMN = VALUE where ts >= '{at}' and id % {every} = 0"
MOVE = """update public.{t} set id = id + 1000, ts = ts + interval '{days} days'
 where ts >= '{at}' and ts < '{next}' and id % {every} = 0 and id < 1000"""


DEFAULTS = {
    "int": "5",
    "text": "'it''s'",
    "numeric": "1.50",
    "numeric(12,2)": "-0.5",
    "timestamptz": "'1960-02-29 12:00+00'",
    "timestamptz[]": "array[timestamptz '1960-02-29 12:00+00', null]",
}
"""The kinds of columns that are added, and a default of each."""
ADDED = (
    "",
    "default {value}",
    "not null default {value}",
    "default {value}; alter column {name} drop default",
    "default {now}; alter column {name} set default null",
    "not null default {now}; alter column {name} drop not null; alter column {name} set default {value}",
)
"""How. Rows that come later do not get their own now(), which would differ from table to table."""
REFUSALS = {"23505", "23514"}
"""Of a statement with a key that exists and a row below R, either may come first."""


class Life(RuleBasedStateMachine):
    """What a table can go through. Readers and a writer may stay open meanwhile."""

    world: World
    make: Callable[[], World]

    @initialize()
    def begin(self) -> None:
        self.world = self.make()
        self.world.keep_states("0")
        self.reader: psycopg.Connection | None = None
        self.seen: list[Any] = []
        self.writer: psycopg.Connection | None = None
        self.kinds: list[str] = []

    @property
    def lake(self) -> Lake:
        return self.world.lake

    # Writing

    @rule()
    @precondition(lambda self: not self.writer and self.world.month < 8)
    def add_a_month(self) -> None:
        self.world.fill()

    @rule(every=rows_of, back=months_back, ending=endings)
    @precondition(lambda self: not self.writer)
    def insert(self, every: int, back: int, ending: str) -> None:
        self._write(self.world.connection, INSERT, ending, every=every, back=back)

    @rule(every=rows_of, back=months_back, ending=endings)
    @precondition(lambda self: not self.writer)
    def update(self, every: int, back: int, ending: str) -> None:
        self._write(self.world.connection, UPDATE, ending, every=every, back=back)

    @rule(every=rows_of, back=months_back, ending=endings)
    @precondition(lambda self: not self.writer)
    def delete(self, every: int, back: int, ending: str) -> None:
        self._write(self.world.connection, DELETE, ending, every=every, back=back)

    @rule(every=rows_of, back=months_back, ending=endings, days=st.sampled_from([-40, -3, 0, 3, 40, 365]))
    @precondition(lambda self: not self.writer)
    def move(self, every: int, back: int, ending: str, days: int) -> None:
        self._write(self.world.connection, MOVE, ending, every=every, back=back, days=days)

    # A transaction that has read a table keeps ALTER TABLE and the sync out.
    @rule(kind=st.sampled_from(list(DEFAULTS)), default=st.sampled_from(ADDED), later=st.booleans())
    @precondition(lambda self: not self.writer and not self.reader and len(self.kinds) < 4)
    def add_a_column(self, kind: str, default: str, later: bool) -> None:
        self.kinds.append(kind)
        name = f"c{len(self.kinds)}"
        value = DEFAULTS[kind]
        now = "now()" if kind in ("timestamptz", "text") else value
        first, *afterwards = default.format(name=name, value=value, now=now).split("; ")
        with self.lake.catalog.transaction():  # in which now() is one time
            for heap in ("_events", "plain"):
                for change in (f"add column {name} {kind} {first}", *afterwards):
                    run(self.lake.catalog, f"alter table public.{heap} {change}")
        if later:
            (archived,) = self.lake.archive()
            assert isinstance(archived.error, UsageError)
        following.follow(self.lake.catalog, self.lake.table())

    @rule(every=rows_of, back=months_back, ending=endings)
    @precondition(lambda self: not self.writer and bool(self.kinds))
    def fill_the_column(self, every: int, back: int, ending: str) -> None:
        value = {"timestamptz[]": "array[ts]", "timestamptz": "ts"}.get(self.kinds[-1], "id")
        statement = FILL.replace("COLUMN", f"c{len(self.kinds)}").replace("VALUE", value)
        self._write(self.world.connection, statement, ending, every=every, back=back)

    def _write(
        self, connection: psycopg.Connection, statement: str, ending: str, *, every: int, back: int, days: int = 0
    ) -> None:
        month = max(1, self.world.month - back)
        values = {"at": beginning(month), "next": beginning(month + 1), "every": every, "days": days}
        with connection.transaction(force_rollback=ending == "rollback"):
            keep = ending != "savepoint"
            ours, theirs = (
                _outcome(connection, statement.format(t=t, **values), keep=keep) for t in ("events", "plain")
            )
        assert ours == theirs or {ours, theirs} == REFUSALS

    # Transactions that stay open

    @rule()
    @precondition(lambda self: not self.reader)
    def open_a_reader(self) -> None:
        self.reader = self.world.connect()
        run(self.reader, "begin isolation level repeatable read")
        self.seen = contents(self.reader, "events")
        assert self.seen == contents(self.reader, "plain")

    @rule(closes=st.booleans())
    @precondition(lambda self: bool(self.reader))
    def look_again(self, closes: bool) -> None:
        assert self.reader is not None
        assert contents(self.reader, "events") == self.seen
        if closes:
            self.reader.close()
            self.reader = None

    @rule(every=rows_of, back=months_back)
    @precondition(lambda self: not self.writer)
    def open_a_writer(self, every: int, back: int) -> None:
        self.writer = self.world.connect()
        run(self.writer, "begin")
        self._write(self.writer, UPDATE, "commit", every=every, back=back)

    @rule(ending=st.sampled_from(["commit", "rollback"]))
    @precondition(lambda self: bool(self.writer))
    def close_the_writer(self, ending: str) -> None:
        assert self.writer is not None
        run(self.writer, ending)
        self.writer.close()
        self.writer = None

    # Jobs

    @rule()
    @precondition(lambda self: not self.writer)
    def archive(self) -> None:
        (result,) = self.lake.archive()
        assert result.error is None, result.error

    @rule()
    def fold(self) -> None:
        (result,) = self.lake.fold()
        assert result.error is None, result.error

    @rule()
    def clean(self) -> None:
        self.lake.clean()

    @rule()
    def compact(self) -> None:
        (result,) = self.lake.compact()
        assert result.error is None, result.error

    @rule(back=months_back)
    @precondition(lambda self: not self.writer)
    def retain(self, back: int) -> None:
        self.world.keep_from(beginning(max(1, self.world.month - back)))
        (result,) = self.lake.retain()
        assert result.error is None, result.error

    @rule()
    def expire(self) -> None:
        states.expired(self.lake)

    @rule()
    def sweep(self) -> None:
        states.age(self.lake)
        states.swept(self.lake)

    @rule(retention=st.sampled_from(["0", "7 days"]))
    def keep_states(self, retention: str) -> None:
        self.world.keep_states(retention)

    @rule(grace=st.sampled_from(["0", "1 day"]))
    def set_grace(self, grace: str) -> None:
        self.world.set_grace(grace)

    @rule()
    @precondition(lambda self: not self.writer)
    def undo(self) -> None:
        _unless_refused(self.lake.undo)

    @rule(back=months_back)
    @precondition(lambda self: not self.writer)
    def thaw(self, back: int) -> None:
        _unless_refused(lambda: self.lake.thaw(first=beginning(max(1, self.world.month - back))))

    @rule()
    def release(self) -> None:
        self.world.release()

    @rule(every=rows_of, back=months_back)
    @precondition(lambda self: not self.writer and not self.reader)
    def stand_beside_for_a_while(self, every: int, back: int) -> None:
        form.change(self.lake.catalog, self.lake.table(), "events_all")
        assert contents(self.world.connection, "events_all") == contents(self.world.connection, "plain")
        self._write(self.world.connection, INSERT, "commit", every=every, back=back)
        assert contents(self.world.connection, "events_all") == contents(self.world.connection, "plain")
        form.change(self.lake.catalog, self.lake.table(), "events")

    @rule(death=deaths, back=months_back)
    @precondition(lambda self: not self.writer)
    def crash(self, death: tuple[str, Failpoint], back: int) -> None:
        action, failpoint = death
        arguments = [beginning(max(1, self.world.month - back))] if action == "thaw" else []
        ended = killed.run(self.lake, action, *arguments, failpoint=failpoint)
        assert ended.returncode in (0, 1, killed.KILLED), ended.said

    @invariant()
    def both_tables_have_the_same_rows(self) -> None:
        self.world.compare()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for connection in (self.reader, self.writer, self.world.connection):
            if connection:
                connection.close()
        removal.remove(self.lake.catalog, self.lake.table().name, keep_lake=True)
        run(self.lake.catalog, "drop table public.events, public.plain")


def _outcome(connection: psycopg.Connection, statement: str, *, keep: bool) -> object:
    """How many rows it changed, or how it failed; a savepoint that is rolled back keeps nothing."""
    try:
        with connection.transaction(force_rollback=not keep):
            return run(connection, statement).rowcount
    except psycopg.Error as error:
        return error.sqlstate


def _unless_refused(job: Callable[[], object]) -> None:
    """There may be nothing to undo or to thaw just now."""
    try:
        job()
    except UsageError:
        return


def _live(lake: Lake, chosen: settings) -> None:
    class OfThisLake(Life):
        def make(self) -> World:
            return World(lake)

    run_state_machine_as_test(OfThisLake, settings=chosen)


BASE = settings(
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate],
)


def test_a_few_lives(shared_lake: Lake) -> None:
    _live(shared_lake, settings(BASE, max_examples=4, stateful_step_count=25, derandomize=True))


@pytest.mark.skipif(not MINUTES, reason="make soak runs it")
def test_lives_for_as_long_as_asked(shared_lake: Lake) -> None:
    until = time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        _live(shared_lake, settings(BASE, max_examples=1, stateful_step_count=60))
