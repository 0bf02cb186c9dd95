"""GENERATED columns that `table alter` adds while the lake has rows: in the end each row has what a plain table gives it."""

import shlex
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.fixtures import cold_twins, copies, killed
from tests.fixtures.cold_twins import both, compare
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.roles import role
from tests.fixtures.sparkrows import in_postgres, in_spark
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until

from frostline import spark as connector
from frostline.catalog import fillings
from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.pipeline import fill_columns, verify
from frostline.relation import columns, following, rowsecurity

pytestmark = pytest.mark.spark

TOTAL = "add column total numeric generated always as ((amount * 1.5)) stored"
BEFORE = [
    "update public.{t} set amount = 1000 where id in (4, 28, 48, 71)",
    "delete from public.{t} where id = 5",
    "insert into public.{t} (id, ts, amount) values (601, '2024-02-20', null), (602, '2090-02-20', 7)",
]
MEANWHILE = [
    "update public.{t} set amount = amount + 0.25 where id in (6, 29, 49, 72, 601)",
    "delete from public.{t} where id in (7, 30)",
    "insert into public.{t} (id, ts, amount) values (603, '2024-01-21', 3.5), (604, '2090-02-21', 8)",
    "update public.{t} set ts = ts + interval '1 month' where id = 31",
]
KNOWN = "id, ts, status, amount, data"
CHANGES = {
    "numbers": TOTAL,
    "not null": "add column total int not null generated always as (coalesce(amount, 0)::int % 7) stored",
    "rounded": "add column total numeric(6,1) generated always as (amount / 3) stored",
    "floats": "add column total double precision generated always as (sqrt(amount::double precision) / 3) stored",
    "text": """add column "it's" text collate "C" generated always as (upper(status) || '''' || coalesce(data ->> 'i', '')) stored""",
    "a type without equality": "add column total point generated always as (point(id::float8, amount::float8)) stored",
    "a function": "add column total bigint generated always as (public.hashed(status)) stored",
    "two": "add column a int generated always as ((id * 2)::int) stored, add column b text generated always as (status || id) stored",
}
WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
FUNCTION = """
create function public.hashed(told text) returns bigint language sql immutable return hashtextextended(told, 3)"""


@pytest.fixture
def cold(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Three months that only the lake has, with changed rows, and hot ones."""
    copies.without_spark(lake, monkeypatch)
    return _prepared(lake)


@pytest.fixture
def real(lake: Lake) -> Lake:
    """The same, and Spark runs."""
    return _prepared(lake)


def _prepared(lake: Lake) -> Lake:
    cold_twins.make_guarded(lake)
    return _changed(lake)


def _changed(lake: Lake) -> Lake:
    with lake.connect() as app:
        for statement in BEFORE:
            both(app, statement)
    run(lake.catalog, FUNCTION)
    return lake


@pytest.fixture
def waiting(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same months, which the heap still has, too; no event trigger could be made."""
    copies.without_spark(lake, monkeypatch)
    cold_twins.make_archived(lake)
    return _changed(lake)


def add(lake: Lake, change: str) -> int | None:
    """To both tables."""
    done = fill_columns.alter(lake.jobs(), lake.table(), change)
    run(lake.catalog, f"alter table public.plain {change}")
    return done


def is_whole(lake: Lake) -> None:
    compare(lake)
    types = "select attname, format_type(atttypid, atttypmod), attgenerated, attnotnull from pg_attribute where attrelid = '{}'::regclass and attnum > 5 and not attisdropped"
    assert rows(lake.catalog, types.format("public._events")) == rows(lake.catalog, types.format("public.plain"))
    assert fillings.list_all(lake.catalog, lake.table()) == []
    assert columns.difference(lake.catalog, lake.table()) is None
    assert verify.run(lake.catalog, lake.table()).faults == ()


def is_begun(lake: Lake) -> None:
    """Nobody finds the column under its name, all else is as it was, and no job finds a difference."""
    with lake.connect() as app:
        seen, there = (rows(app, f"select {KNOWN} from public.{name} order by id, ts") for name in ("events", "plain"))
        assert seen == there
        with pytest.raises(psycopg.errors.UndefinedColumn):
            run(app, "select total from public.events")
    assert verify.run(lake.catalog, lake.table()).faults == ()


def interrupt(lake: Lake, monkeypatch: pytest.MonkeyPatch, where: Failpoint) -> None:
    """Run TOTAL on `events` up to there."""

    def reached(here: Failpoint) -> None:
        if here is where:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fill_columns, "reached", reached)
        with pytest.raises(KeyboardInterrupt):
            fill_columns.alter(lake.jobs(), lake.table(), TOTAL)


@pytest.mark.parametrize("change", first(3, CHANGES.values()), ids=list(CHANGES))
def test_all_rows_have_what_a_plain_table_gives_them(cold: Lake, change: str) -> None:
    done = add(cold, change)
    assert done is not None
    assert done > 50
    is_whole(cold)
    with cold.connect() as app:
        for statement in MEANWHILE:
            both(app, statement)
    is_whole(cold)
    assert cold.fold()[0].error is None
    is_whole(cold)


def test_the_hint_of_the_refusal_does_it(cold: Lake) -> None:
    with cold.connect() as app, pytest.raises(psycopg.NotSupportedError, match="a value of its own") as refused:
        run(app, f"alter table public._events {TOTAL}")
    program, *arguments = shlex.split(str(refused.value.diag.message_hint))
    assert (program, arguments[:3]) == ("frostline", ["table", "alter", "public.events"])
    add(cold, arguments[3])
    is_whole(cold)


def test_a_virtual_column_too(cold: Lake) -> None:
    if cold.catalog.info.server_version < 180_000:
        pytest.skip("VIRTUAL came with PostgreSQL 18")
    add(cold, TOTAL.replace("stored", "virtual"))
    is_whole(cold)
    with cold.connect() as app:
        both(app, MEANWHILE[0])
    assert cold.fold()[0].error is None
    is_whole(cold)


def test_a_range_is_tried_again_when_a_row_of_it_is_written_meanwhile(
    cold: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(cold, monkeypatch, Failpoint.FILL_BEGUN)
    with cold.connect() as app, ThreadPoolExecutor() as pool:
        run(app, "begin")
        both(app, MEANWHILE[0])
        filling = pool.submit(fill_columns.alter, cold.jobs(), cold.table(), TOTAL)
        with cold.connect() as watcher:
            until(lambda: bool(value(watcher, WAITS)), "the fill waits for the writer")
        run(app, "commit")
        filling.result()
    run(cold.catalog, f"alter table public.plain {TOTAL}")
    is_whole(cold)


@pytest.mark.parametrize("where", first(1, [Failpoint.FILL_FILLED_ONE, Failpoint.FILL_BEGUN]))
def test_writers_and_jobs_go_on_while_it_is_filled(
    cold: Lake, monkeypatch: pytest.MonkeyPatch, where: Failpoint
) -> None:
    interrupt(cold, monkeypatch, where)
    is_begun(cold)
    with cold.connect() as app:
        for statement in MEANWHILE:
            both(app, statement)
    is_begun(cold)
    assert cold.fold()[0].error is None
    is_begun(cold)
    assert cold.compact()[0].error is None
    is_begun(cold)
    add(cold, TOTAL)
    is_whole(cold)


def test_what_it_is_computed_from_may_get_another_name_meanwhile(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
    for name in ("_events", "plain"):
        run(cold.catalog, f"alter table public.{name} rename column amount to price")
    fill_columns.alter(cold.jobs(), cold.table(), TOTAL)
    run(cold.catalog, f"alter table public.plain {TOTAL.replace('amount', 'price')}")
    is_whole(cold)


@pytest.mark.parametrize("where", some([None, Failpoint.FILL_BEGUN, Failpoint.FILL_FILLED_ONE], None))
def test_partitions_that_wait_for_their_clean_are_the_same_in_both_tiers(
    waiting: Lake, monkeypatch: pytest.MonkeyPatch, where: Failpoint | None
) -> None:
    if where:
        interrupt(waiting, monkeypatch, where)
        is_begun(waiting)
        with waiting.connect() as app:
            for statement in MEANWHILE:
                both(app, statement)
        is_begun(waiting)
    add(waiting, TOTAL)
    is_whole(waiting)
    assert waiting.fold()[0].error is None
    run(waiting.catalog, "update frostline.managed_table set grace_period = '0'")
    assert waiting.clean().waiting == ()
    is_whole(waiting)


def test_an_archive_can_be_undone_while_it_is_filled(waiting: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(waiting, monkeypatch, Failpoint.FILL_FILLED_ONE)
    waiting.undo(to=cold_twins.FEBRUARY)
    is_begun(waiting)
    add(waiting, TOTAL)
    is_whole(waiting)
    waiting.undo()
    is_whole(waiting)


def test_rows_that_a_trigger_keeps_as_they_are_are_not_passed_over(cold: Lake) -> None:
    run(
        cold.catalog,
        "create function public.no() returns trigger language plpgsql as 'begin return null; end';"
        "create trigger no before insert on public._events for each row when (new.id = 8) execute function public.no()",
    )
    with pytest.raises(UsageError, match="cannot become total: some rows lack its value") as refused:
        fill_columns.alter(cold.jobs(), cold.table(), TOTAL)
    give_up = str(refused.value.hint).partition("to give it up: ")[2]
    run(cold.catalog, "drop trigger no on public._events")
    add(cold, TOTAL)
    is_whole(cold)
    assert give_up == 'alter table "public"."_events" drop column "total_unfilled"'


def test_it_keeps_its_name_until_all_rows_have_its_value(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
    with cold.connect() as app, pytest.raises(psycopg.NotSupportedError, match="keeps its name until"):
        run(app, "alter table public._events rename column total_unfilled to total")
    is_begun(cold)
    add(cold, TOTAL)
    is_whole(cold)


def test_a_name_that_it_got_unseen_does_not_pass_for_its_own(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no event trigger looks, the sync refuses it, however often the command is tried."""
    interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
    renamed = "set session_replication_role = 'replica'; alter table public._events rename column {} to {}"
    with cold.connect() as app:
        run(app, renamed.format("total_unfilled", "total"))
    with pytest.raises(UsageError, match="already exists"):
        fill_columns.alter(cold.jobs(), cold.table(), TOTAL)
    with pytest.raises(psycopg.NotSupportedError, match="keeps its name until") as refused:
        following.follow(cold.catalog, cold.table())
    back = str(refused.value.diag.message_hint).partition("alter table public._events ")[2]
    assert back == "rename column total to total_unfilled"
    with cold.connect() as app:
        run(app, renamed.format("total", "total_unfilled"))
    add(cold, TOTAL)
    is_whole(cold)


def test_a_column_that_is_not_computed_any_more_is_not_filled(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
    run(cold.catalog, "alter table public._events alter column total_unfilled drop expression")
    assert fillings.list_all(cold.catalog, cold.table()) == []
    run(cold.catalog, "alter table public._events drop column total_unfilled")
    is_whole(cold)


def test_it_can_be_given_up(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
    run(cold.catalog, "alter table public._events drop column total_unfilled")
    is_whole(cold)
    add(cold, TOTAL)
    is_whole(cold)


def test_rows_that_the_owner_does_not_see_are_not_passed_over(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with role(cold.dsn, "frostline_filler"):
        run(
            cold.catalog,
            "grant usage, create on schema public to frostline_filler; alter table public._events owner to frostline_filler;"
            "alter table public._events enable row level security, force row level security;"
            "create policy few on public._events using (id > 40)",
        )
        rowsecurity.switch(cold.catalog, cold.table(), on=True)
        with pytest.raises(UsageError, match=r"row security of public\._events is forced upon its owner"):
            fill_columns.alter(cold.jobs(), cold.table(), TOTAL)
        assert fillings.list_all(cold.catalog, cold.table()) == []
        run(cold.catalog, "alter table public._events no force row level security")
        interrupt(cold, monkeypatch, Failpoint.FILL_FILLED_ONE)
        run(cold.catalog, "alter table public._events force row level security")
        with pytest.raises(UsageError, match="forced upon its owner"):
            fill_columns.alter(cold.jobs(), cold.table(), TOTAL)
        run(cold.catalog, "alter table public._events no force row level security")
        add(cold, TOTAL)
        run(cold.catalog, "alter table public._events owner to current_user")
        is_whole(cold)


@pytest.mark.parametrize("prepared", ["cold", "waiting"])
def test_code_that_would_run_with_other_rights_is_refused_at_once(
    request: pytest.FixtureRequest, prepared: str
) -> None:
    """With event triggers and without."""
    lake: Lake = request.getfixturevalue(prepared)
    with role(lake.dsn, "frostline_filler"):
        run(lake.catalog, "grant usage, create on schema public to frostline_filler")
        run(lake.catalog, "alter function public.hashed(text) owner to frostline_filler")
        run(lake.catalog, "alter table public._events owner to frostline_filler")
        with pytest.raises(UsageError, match=r"with the rights of Frostline|of a role with fewer rights"):
            fill_columns.alter(lake.jobs(), lake.table(), CHANGES["a function"])
        run(lake.catalog, "alter function public.hashed(text) owner to current_user")
        run(lake.catalog, "alter table public._events owner to current_user")
        is_whole(lake)


def test_what_comes_back_from_the_lake_has_the_values(cold: Lake) -> None:
    add(cold, TOTAL)
    assert cold.compact()[0].error is None
    is_whole(cold)
    cold.thaw(first=cold_twins.MARCH)
    is_whole(cold)


@pytest.mark.slow
@pytest.mark.usefixtures("spark", "released")
def test_spark_has_the_values(real: Lake) -> None:
    add(real, TOTAL)
    frame = connector.read(real.session(), "public.events", dsn=real.dsn)
    assert in_spark(frame) == in_postgres(real.catalog, "public.plain")


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("failpoint", [Failpoint.FILL_BEGUN, Failpoint.FILL_FILLED_ONE])
def test_killed_in_the_middle_the_same_command_goes_on(cold: Lake, failpoint: Failpoint) -> None:
    ended = killed.run(cold, "alter", TOTAL, failpoint=failpoint)
    assert ended.returncode == killed.KILLED, ended.said
    is_begun(cold)
    with cold.connect() as app:
        for statement in MEANWHILE:
            both(app, statement)
    add(cold, TOTAL)
    is_whole(cold)
