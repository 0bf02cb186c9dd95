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
from tests.fixtures.months import World, beginning, contents, identifier
from tests.fixtures.statements import run, value
from tests.property.alterations import CHECKS, MOST, Change, Shape, Widen, changes
from tests.property.steps import DELETE, FILL, FILLED, INSERT, MOVE, UPDATE, deaths

from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.relation import columns, following, form, guard, removal

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTES = float(os.environ.get("FROSTLINE_TEST_SOAK_MINUTES", "0"))

rows_of = st.integers(2, 9)
"""Every so manieth row."""
months_back = st.integers(0, 4)
endings = st.sampled_from(["commit", "rollback", "savepoint"])
written = st.lists(st.tuples(st.sampled_from([INSERT, UPDATE, DELETE, FILL]), rows_of, months_back), max_size=2)
"""Statements in a transaction that alters the table."""
REFUSALS = {"23505", "23514"}
"""Of a statement with a key that exists and a row below R, either may come first."""


class Life(RuleBasedStateMachine):
    """What a table can go through. Readers and a writer may stay open meanwhile."""

    world: World
    make: Callable[[], World]

    @initialize(follows=st.booleans())
    def begin(self, follows: bool) -> None:
        self.world = self.make()
        self.world.keep_states("0")
        for _ in range(2):
            self.world.fill()
        self.world.archive()  # so that there are cold rows from the beginning
        self.follows = follows
        _have_event_triggers(self.lake, follows)
        self.shape = Shape()
        self.checks: set[str] = set()
        self.reader: psycopg.Connection | None = None
        self.seen: list[Any] | None = None
        self.is_rewritten = False
        self.writer: psycopg.Connection | None = None

    @property
    def lake(self) -> Lake:
        return self.world.lake

    # Writing

    # A transaction that has read DEFAULT keeps new partitions out.
    @rule()
    @precondition(lambda self: not self.writer and self.seen is None and self.world.month < 8)
    def add_a_month(self) -> None:
        if not (self.reader and self.world.holds_rows_of_the_next_month()):
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

    @rule(every=rows_of, back=months_back, ending=endings, column=st.integers(2, 9))
    @precondition(lambda self: not self.writer)
    def fill(self, every: int, back: int, ending: str, column: int) -> None:
        self._write(self.world.connection, FILL, ending, every=every, back=back, column=column)

    def _write(
        self,
        connection: psycopg.Connection,
        statement: str,
        ending: str,
        *,
        every: int,
        back: int,
        days: int = 0,
        column: int = 0,
        relation: str = "events",
    ) -> None:
        month = max(1, self.world.month - back)
        column %= len(self.shape.names)
        named = self.world.named | {"column": identifier(self.shape.names[column])}
        values = {"at": beginning(month), "next": beginning(month + 1), "every": every, "days": days}
        filled = FILLED[self.shape.kinds[column]].format(**named)
        with connection.transaction(force_rollback=ending == "rollback"):
            keep = ending != "savepoint"
            ours, theirs = (
                _outcome(connection, statement.format(t=t, value=filled, **values, **named), keep=keep)
                for t in (relation, "plain")
            )
        assert ours == theirs or {ours, theirs} == REFUSALS

    # Altering. A transaction that has read a table keeps ALTER TABLE and the sync out.

    @rule(altered=st.lists(changes, min_size=1, max_size=3), written=written, ending=endings)
    @precondition(lambda self: not self.writer and self.seen is None)
    def alter_in_a_transaction(self, altered: list[Change], written: list[tuple[str, int, int]], ending: str) -> None:
        before, connection = self.shape.copy(), self.world.connection
        with connection.transaction(force_rollback=ending == "rollback"):
            if not self.follows:
                self._write_several(written)  # the relation has the new columns after the sync
            with connection.transaction(force_rollback=ending == "savepoint"):
                for change in altered:
                    self._alter(change)
                    if self.follows:
                        self._write_several(written)
            if ending == "savepoint":
                self._become(before)
                self._write_several(written)
        if ending == "rollback":
            self._become(before)
        if not self.follows:
            following.follow(self.lake.catalog, self.lake.table())
        assert columns.difference(self.lake.catalog, self.lake.table()) is None

    @rule(change=changes, every=rows_of, back=months_back)
    @precondition(lambda self: not self.writer and self.seen is None)
    def alter_and_write(self, change: Change, every: int, back: int) -> None:
        """In transactions of their own."""
        self.alter_in_a_transaction([change], [], "commit")
        self._write_several([(UPDATE, every, back), (FILL, every + 1, back)])

    def _alter(self, change: Change) -> None:
        altered = change.alter(self.shape, self.follows)
        self.is_rewritten = self.is_rewritten or isinstance(change, Widen)
        for name in ("events" if self.follows and change.on_relation else "_events", "plain"):
            for statement in altered:
                run(self.world.connection, f"alter table public.{name} {statement}")
        self._become(self.shape)

    def _become(self, shape: Shape) -> None:
        self.shape = shape
        self.world.roles = {role: name for role, name in zip(shape.roles, shape.names, strict=True) if role}

    def _write_several(self, written: list[tuple[str, int, int]]) -> None:
        for statement, every, back in written:
            last = len(self.shape.names) - 1
            self._write(self.world.connection, statement, "commit", every=every, back=back, column=last)

    # Its twin is rewritten, which no older snapshot sees.
    @rule(every=rows_of)
    @precondition(lambda self: not self.writer and not self.reader and len(self.shape.names) < MOST)
    def add_a_column_whose_default_is_volatile(self, every: int) -> None:
        """If rows of the lake would need one, as the guide says: without it, and then the default, and then values."""
        called = self.shape.free_name("made")
        name = identifier(called)
        try:
            self._alter_both(f"add column {name} int default (random() * 0)::int + {every}")
            following.follow(self.lake.catalog, self.lake.table())
        except (psycopg.NotSupportedError, UsageError) as refused:
            if isinstance(refused, UsageError):  # without event triggers the column is there
                self._alter_both(f"drop column {name}")
            self._alter_both(f"add column {name} int")
            following.tried(self.lake.catalog, self.lake.table().name)
            self._alter_both(f"alter column {name} set default {every}")
            following.follow(self.lake.catalog, self.lake.table())
        self.shape.add(called, "int")

    def _alter_both(self, change: str) -> None:
        for heap in ("_events", "plain"):
            run(self.world.connection, f"alter table public.{heap} {change}")

    @rule()
    @precondition(lambda self: self.follows and not self.writer and not self.reader and len(self.shape.names) < MOST)
    def give_each_row_a_uuid(self) -> None:
        """Another one each, and from then on always the same: the plain table has what was shown then."""
        called = self.shape.free_name("token")
        name, named = identifier(called), self.world.named
        with self.world.connection.transaction():
            run(self.world.connection, f"alter table public._events add column {name} uuid default gen_random_uuid()")
            run(self.world.connection, f"alter table public._events alter column {name} drop default")
            run(self.world.connection, f"alter table public.plain add column {name} uuid")
            same = "p.{id} = e.{id} and p.{ts} = e.{ts}".format(**named)
            run(self.world.connection, f"update public.plain p set {name} = e.{name} from public.events e where {same}")
        distinct = f"select count(distinct {name}) = count(*) from public.events"
        assert value(self.world.connection, distinct)
        self.shape.add(called, "uuid")

    # Constraints. Without event triggers nobody looks at rows of the lake.

    @rule(check=st.sampled_from(sorted(CHECKS)))
    @precondition(lambda self: self.follows and not self.writer and self.seen is None)
    def hold_a_check_or_no_more(self, check: str) -> None:
        if check in self.checks:
            self._alter_both(f"drop constraint {check}")
            self.checks.remove(check)
        elif self._is_valid(check, CHECKS[check].format(**self.world.named)):
            self.checks.add(check)

    @rule(role=st.sampled_from(["status", "amount"]))
    @precondition(lambda self: self.follows and not self.writer and self.seen is None)
    def refuse_null_or_allow_it(self, role: str) -> None:
        if role not in self.world.roles:
            return
        name, column = self.world.named[role], self.shape.roles.index(role)
        if column in self.shape.required:
            self._alter_both(f"alter column {name} drop not null")
            self.shape.required.remove(column)
        elif self._is_valid("is_there", f"{name} is not null"):
            self._alter_both(f"alter column {name} set not null")
            self._alter_both("drop constraint is_there")
            self.shape.required.add(column)

    def _is_valid(self, check: str, condition: str) -> bool:
        """Add it, and have old rows looked at; it goes again if some break it."""
        self._alter_both(f"add constraint {check} check ({condition}) not valid")
        validate = f"alter table public.{{}} validate constraint {check}"
        ours, theirs = (
            _outcome(self.world.connection, validate.format(heap), keep=True) for heap in ("_events", "plain")
        )
        assert ours == theirs
        if isinstance(ours, str):
            self._alter_both(f"drop constraint {check}")
        return not isinstance(ours, str)

    # Transactions that stay open

    @rule(reads=st.booleans())
    @precondition(lambda self: not self.reader)
    def open_a_reader(self, reads: bool) -> None:
        """It has a Postgres snapshot; one that has not read either table yet lets them be altered."""
        self.reader = self.world.connect()
        self.is_rewritten = False
        run(self.reader, "begin isolation level repeatable read; select 1")
        if reads:
            self._look()

    def _look(self) -> None:
        """All is as at the snapshot; but tables that were rewritten since show no row, and the relation says so."""
        assert self.reader is not None
        try:
            now = contents(self.reader, "events")
        except psycopg.errors.SerializationFailure:
            assert self.is_rewritten
            self._close_the_reader()
            return
        if self.seen is None:
            self.seen = contents(self.reader, "plain")
        assert now == self.seen

    def _close_the_reader(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.reader = self.seen = None

    @rule(closes=st.booleans())
    @precondition(lambda self: bool(self.reader))
    def look_again(self, closes: bool) -> None:
        assert self.reader is not None
        self._look()
        if closes and self.reader:
            self._close_the_reader()

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

    # A transaction that has read DEFAULT keeps new partitions out: the thaw gives up, and names it.
    @rule(back=months_back)
    @precondition(lambda self: not self.writer and self.seen is None)
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

    @rule(every=rows_of, back=months_back)
    @precondition(lambda self: self.follows and not self.writer and not self.reader)
    def have_another_name_for_a_while(self, every: int, back: int) -> None:
        run(self.world.connection, "alter view public.events rename to happenings")
        assert contents(self.world.connection, "happenings") == contents(self.world.connection, "plain")
        self._write(self.world.connection, UPDATE, "commit", every=every, back=back, relation="happenings")
        (result,) = self.lake.fold("happenings")
        assert result.error is None, result.error
        assert contents(self.world.connection, "happenings") == contents(self.world.connection, "plain")
        run(self.world.connection, "alter view public.happenings rename to events")

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


def _have_event_triggers(lake: Lake, wanted: bool) -> None:
    """With them a relation follows its heap at once; without, as on some managed Postgres, when it is told to."""
    if wanted:
        assert guard.ensure(lake.catalog)
    else:
        for name in guard.TRIGGERS:
            run(lake.catalog, f"drop event trigger if exists {name}")


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
        # The first life that Hypothesis tries is always the shortest that there is.
        _live(shared_lake, settings(BASE, max_examples=10, stateful_step_count=60))
