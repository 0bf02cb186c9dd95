"""A statement that meets a row several times writes it once and counts it once, as on a plain table; and its siblings."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import Twins, begun, make_twins
from tests.fixtures.waiting import until_true

pytestmark = pytest.mark.spark

LEVELS = ("read committed", "repeatable read", "serializable")
IDS = {
    "hot": "(values (63), (63), (64))",
    "cold": "(values (3), (3), (4))",
    "both": "(values (3), (63), (63), (3), (3))",
}
STATEMENTS = {
    "update": "update {{t}} set status = 'q' from {ids} o(i) where o.i = {{t}}.id",
    "update with nothing new": "update {{t}} set status = status from {ids} o(i) where o.i = {{t}}.id",
    "update the key": "update {{t}} set id = id + 1000 from {ids} o(i) where o.i = {{t}}.id",
    "update the tier key": "update {{t}} set ts = ts + interval '1 month' from {ids} o(i) where o.i = {{t}}.id",
    "update the tier": "update {{t}} set ts = case when ts < '2090-01-01' then timestamptz '2090-07-01 00:00+00'"
    " else timestamptz '2024-02-20 00:00+00' end from {ids} o(i) where o.i = {{t}}.id",
    "update returning": "update {{t}} set status = 'q' from {ids} o(i) where o.i = {{t}}.id returning {{t}}.*",
    "delete": "delete from {{t}} using {ids} o(i) where o.i = {{t}}.id",
    "delete returning": "delete from {{t}} using {ids} o(i) where o.i = {{t}}.id returning {{t}}.id",
    "delete the duplicates": "delete from {{t}} a using {{t}} b where a.amount = b.amount and a.id > b.id and a.amount < 3",
}


@pytest.fixture(scope="module")
def twin(shared_lake: Lake) -> Lake:
    make_twins(shared_lake)
    return shared_lake


@pytest.fixture(params=some(LEVELS, "read committed"))
def twins(twin: Lake, request: pytest.FixtureRequest) -> Iterator[Twins]:
    with begun(twin) as session:
        run(session.connection, f"set transaction isolation level {request.param}")
        yield session


@pytest.mark.parametrize("tier", IDS)
@pytest.mark.parametrize("what", STATEMENTS)
def test_rows_that_are_met_several_times(twins: Twins, what: str, tier: str) -> None:
    twins.both(STATEMENTS[what].format(ids=IDS[tier]))
    twins.both("update {t} set status = status || '!' where id in (3, 63)")


@pytest.mark.parametrize("tier", IDS)
@pytest.mark.parametrize("what", ["update", "update with nothing new", "delete"])
def test_rows_that_this_transaction_has_written_before(twins: Twins, what: str, tier: str) -> None:
    twins.both("update {t} set amount = amount + 1 where id in (3, 4, 63, 64)")
    run(twins.connection, "savepoint later")
    twins.both("update {t} set status = 'once' where id in (3, 63)")
    twins.both(STATEMENTS[what].format(ids=IDS[tier]))
    run(twins.connection, "rollback to later")
    twins.compare()
    twins.both(STATEMENTS[what].format(ids=IDS[tier]))


@pytest.mark.parametrize("number", [3, 63])
def test_a_statement_and_its_with_write_one_row(twins: Twins, number: int) -> None:
    """Which of the two does is not said; that one of them does, and that it counts once, is."""
    for verb in (f"update events set status = 'main' where id = {number}", f"delete from events where id = {number}"):
        run(twins.connection, "savepoint before")
        statement = (
            f"with w as (update events set status = 'with' where id = {number} returning id) {verb} returning id"
        )
        both = rows(
            twins.connection,
            f"with w as (update events set amount = 7 where id = {number} returning id), "
            f"m as ({verb} returning id) select (select count(*) from w), (select count(*) from m)",
        )
        assert sorted(both[0]) == [0, 1]
        run(twins.connection, "rollback to before")
        run(twins.connection, statement)
        assert value(twins.connection, f"select count(*) from events where id = {number}") in {0, 1}
        run(twins.connection, "rollback to before")


KEEPERS = {
    "update": ("before update", "update {t} set status = 'x' where id in (3, 63, 64)"),
    "delete": ("before delete", "delete from {t} where id in (63, 64)"),
}


@pytest.mark.parametrize("what", KEEPERS)
def test_a_trigger_that_keeps_a_hot_row_as_it_is(twins: Twins, what: str) -> None:
    when, statement = KEEPERS[what]
    run(
        twins.connection,
        "create function public.keep() returns trigger language plpgsql as $$ begin"
        " if old.id = 63 then return null; end if; return coalesce(new, old); end $$;"
        f" create trigger keep {when} on public._events for each row execute function public.keep();"
        f" create trigger keep {when} on public.plain for each row execute function public.keep()",
    )
    twins.both(statement)


def test_a_trigger_that_keeps_a_cold_row_from_being_inserted_loses_nothing(twins: Twins) -> None:
    run(
        twins.connection,
        "create function public.keep() returns trigger language plpgsql as $$ begin return null; end $$;"
        " create trigger keep before insert on public._events for each row execute function public.keep()",
    )
    assert run(twins.connection, "update events set status = 'x' where id = 3").rowcount == 0
    twins.compare()


OTHERS: dict[str, str] = {
    "update": "update public.events set status = 'other' where id = {id}",
    "delete": "delete from public.events where id = {id}",
    "move the key": "update public.events set id = id + 5000 where id = {id}",
    "move to another partition": "update public.events set ts = ts + interval '1 month' where id = {id}",
}


@pytest.fixture
def fresh(lake: Lake) -> Lake:
    make_twins(lake)
    return lake


@pytest.mark.parametrize(
    "mine", ["update public.events set status = 'mine' where id = {id}", "delete from public.events where id = {id}"]
)
@pytest.mark.parametrize("other", some(OTHERS, "update"))
def test_what_somebody_else_has_changed_is_still_told(
    fresh: Lake, connect: Callable[[str], psycopg.Connection], mine: str, other: str
) -> None:
    """At READ COMMITTED, while the statement waits: a row that another transaction took is not taken for our own work."""
    for number in (63, 3):
        first, second = connect(fresh.dsn), connect(fresh.dsn)
        run(first, "begin")
        run(first, OTHERS[other].format(id=number))
        with ThreadPoolExecutor(1) as pool:
            run(second, "begin")
            pid = second.info.backend_pid
            waiting = pool.submit(run, second, mine.format(id=number))
            until_true(first, f"select exists (select from pg_locks where pid = {pid} and not granted)")
            run(first, "commit")
            with pytest.raises(psycopg.errors.SerializationFailure):
                waiting.result()
        run(second, "rollback")


@pytest.mark.parametrize("tier", IDS)
@pytest.mark.parametrize("what", ["update", "update with nothing new", "update the key", "delete"])
def test_it_is_our_own_work_also_when_others_have_committed_since(twin: Lake, what: str, tier: str) -> None:
    """Our transaction's number is older than that of another which has ended; whose a row version is does not hang on that."""
    with begun(twin) as session, twin.connect() as other:
        run(session.connection, "set transaction isolation level read committed")
        value(session.connection, "select pg_current_xact_id()")
        run(other, "create temp table passing (x int); insert into passing values (1)")
        session.both(STATEMENTS[what].format(ids=IDS[tier]))


def test_it_is_our_own_work_also_when_others_had_locked_the_row(
    fresh: Lake, connect: Callable[[str], psycopg.Connection]
) -> None:
    """Its xmax is then the number of a MultiXact, and not that of a transaction."""
    mine, other = connect(fresh.dsn), connect(fresh.dsn)
    for session in (other, mine):
        run(session, "begin")
        run(session, "select from public._events where id = 63 for share")
    run(other, "commit")
    assert run(mine, STATEMENTS["delete"].format(ids=IDS["hot"]).format(t="public.events")).rowcount == 2
    run(mine, "rollback")


def test_a_kept_cold_row_stays_also_when_others_have_committed_since(twin: Lake) -> None:
    with begun(twin) as session, twin.connect() as other:
        run(
            session.connection,
            "create function public.keep() returns trigger language plpgsql as $$ begin return null; end $$;"
            " create trigger keep before insert on public._events for each row execute function public.keep()",
        )
        run(other, "create temp table passing (x int); insert into passing values (1)")
        assert run(session.connection, "update events set status = 'x' where id = 3").rowcount == 0
        session.compare()


def test_a_row_that_somebody_takes_while_the_statement_runs_is_told(
    fresh: Lake, connect: Callable[[str], psycopg.Connection]
) -> None:
    """The other one's number is newer than ours, and not ours for that."""
    first, second = connect(fresh.dsn), connect(fresh.dsn)
    run(
        fresh.catalog,
        "create function public.slowly(n bigint) returns boolean language plpgsql as $$ begin"
        " if n = 62 then perform pg_advisory_lock(5); end if; return true; end $$",
    )
    run(first, "select pg_advisory_lock(5)")
    with ThreadPoolExecutor(1) as pool:
        run(second, "begin")
        value(second, "select pg_current_xact_id()")
        statement = (
            "update public.events set status = 'mine' where ts > '2090-01-01' and id in (62, 63) and public.slowly(id)"
        )
        pid = second.info.backend_pid
        waiting = pool.submit(run, second, statement)
        until_true(first, f"select exists (select from pg_locks where pid = {pid} and not granted)")
        run(first, "update public.events set id = 9063 where id = 63 and ts > '2090-01-01'")
        run(first, "select pg_advisory_unlock(5)")
        with pytest.raises(psycopg.errors.SerializationFailure):
            waiting.result()
    run(second, "rollback")
