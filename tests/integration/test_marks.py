"""Marks and heap rows agree whatever is done to the heap: triggers of the user, moved, truncated, dropped partitions."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.cold_twins import APRIL, FEBRUARY, at, both, compare, make_archived, release
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.catalog import patience
from frostline.errors import UnavailableError
from frostline.failpoints import Failpoint
from frostline.pipeline import archive, verify
from frostline.relation import marks

MOVE = """
begin;
create table public.moved (like public._events including all excluding identity);
with gone as (delete from only public.events_default where ts >= '{lower}' and ts < '{upper}' returning *)
insert into public.moved select * from gone;
alter table public._events attach partition public.moved for values from ('{lower}') to ('{upper}');
commit
"""
MAY = "2024-05-01 00:00:00+00"


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Rows of three months in the lake and, in their grace period, in the heap; and a plain table with the same rows."""
    make_archived(lake)
    return lake


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, and a plain table with the same rows."""
    make_twins(lake)
    return lake


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


MEDDLE = """
create function public.meddle_{name}() returns trigger language plpgsql as $$
begin
    if new.status = 'first' then
        {what};
    end if;
    return null;
end $$;
create trigger meddle after insert or update on public.{name} for each row execute function public.meddle_{name}()
"""
MEDDLING = {
    "update": "update public.{name} set status = 'by the trigger' where id = new.id + 1",
    "delete": "delete from public.{name} where id = new.id + 1",
    "another key": "update public.{name} set id = id + 5000, status = 'by the trigger' where id = new.id + 1",
    "another time": "update public.{name} set ts = ts + interval '1 year' where id = new.id + 1",
    "delete and insert": "delete from public.{name} where id = new.id + 1; "
    "insert into public.{name} (id, ts, status) values (new.id + 1, new.ts + interval '1 hour', 'again')",
}
STATEMENT = "update public.{name} set status = case id when 5 then 'first' else 'second' end where id in (5, 6)"


@pytest.mark.parametrize("case", first(1, MEDDLING))
def test_a_trigger_of_one_row_that_changes_the_next_row_of_the_statement(archived: Lake, case: str) -> None:
    """The mark of the next row comes after the trigger, and what the statement made of that row is old by then."""
    for name in ("_events", "plain"):
        run(archived.catalog, MEDDLE.format(name=name, what=MEDDLING[case].format(name=name)))
        run(archived.catalog, STATEMENT.format(name=name))
    assert value(archived.catalog, "select count(*) from public.plain where status = 'second'") == (
        1 if case == "another time" else 0
    )
    compare(archived)
    archived.fold()
    compare(archived)


def test_rows_moved_from_default_into_a_partition_of_their_own_are_archived(archived: Lake) -> None:
    both(
        archived.catalog,
        "insert into public.{t} (id, ts, status) values (901, '2024-04-02', 'a'), (902, '2024-04-03', 'b')",
    )
    run(archived.catalog, MOVE.format(lower=APRIL, upper=MAY))
    both(archived.catalog, "update public.{t} set status = 'later' where id = 902")
    (result,) = archived.archive("events")
    assert (result.error, result.partitions) == (None, 1)
    compare(archived)


@pytest.mark.slow
def test_rows_moved_from_default_into_a_partition_below_the_line_are_adopted(archived: Lake) -> None:
    both(
        archived.catalog,
        "insert into public.{t} (id, ts, status) values (901, '2023-01-02', 'a'), (902, '2023-01-03', 'b')",
    )
    run(archived.catalog, MOVE.format(lower="2023-01-01", upper="2023-02-01"))
    run(archived.catalog, "update public._events set status = 'later' where id = 902")
    run(archived.catalog, "update public.plain set status = 'later' where id = 902")
    archived.archive("events")
    compare(archived)
    archived.fold()
    compare(archived)


def undone(lake: Lake) -> None:
    """Everything hot again, with marks above the frost line."""
    both(lake.catalog, "update public.{t} set status = 'changed' where id in (5, 25)")
    both(lake.catalog, "delete from public.{t} where id = 6")
    lake.undo()


def archive_again(lake: Lake) -> None:
    release(lake)
    (result,) = lake.archive("events")
    assert result.error is None
    compare(lake)
    lake.fold()
    compare(lake)


def test_a_partition_truncated_above_the_line_stays_empty(archived: Lake) -> None:
    undone(archived)
    run(archived.catalog, "truncate public.events_1")
    run(archived.catalog, f"delete from public.plain where ts < '{FEBRUARY}'")
    both(archived.catalog, "insert into public.{t} (id, ts, status) values (7, '2024-01-01 07:00+00', 'new')")
    archive_again(archived)


@pytest.mark.slow
def test_a_partition_truncated_while_it_is_archived_stays_empty(
    archived: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have been exported by then."""
    undone(archived)

    def reached(here: Failpoint) -> None:
        if here is Failpoint.ARCHIVE_STAGED:
            with archived.connect() as connection:
                run(connection, "truncate public.events_1")

    run(archived.catalog, f"delete from public.plain where ts < '{FEBRUARY}'")
    monkeypatch.setattr(archive, "reached", reached)
    archive_again(archived)


@pytest.mark.parametrize("name", first(1, ["public.events_1", "public.events_default", "public._events"]))
def test_rows_below_the_line_cannot_be_truncated(archived: Lake, name: str) -> None:
    both(archived.catalog, "insert into public.{t} (id, ts, status) values (901, '2019-01-02', 'in default')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        run(archived.catalog, f"truncate {name}")
    # Of the whole heap it is refused before any partition is looked at.
    is_all = name == "public._events"
    message, hint = ("rows in the lake", "frostline truncate") if is_all else ("below the frost line", "delete from")
    assert message in str(refused.value)
    assert f"{hint} public.events" in (refused.value.diag.message_hint or "")
    compare(archived)


@pytest.mark.slow
def test_default_can_be_truncated_when_it_has_no_cold_rows(archived: Lake) -> None:
    both(archived.catalog, "insert into public.{t} (id, ts, status) values (901, '2095-01-02', 'in default')")
    run(archived.catalog, "truncate public.events_default")
    run(archived.catalog, "delete from public.plain where id = 901")
    compare(archived)


def test_truncate_marks_keys_of_any_name_as_gone(lake: Lake) -> None:
    run(
        lake.catalog,
        """
        create table public.events ("it's %s" int, "t%I" int, "a ""quoted"" one" text, primary key ("it's %s", "t%I"))
            partition by range ("t%I");
        create table public.events_1 partition of public.events for values from (1) to (10)""",
    )
    table = lake.add(hot="1", lake_partition="truncate[10]")
    run(lake.catalog, "insert into public.events values (1, 50, 'in default'), (2, 51, null)")
    run(lake.catalog, "truncate public.events_default")
    marks_there = rows(lake.catalog, f'select * from frostline_overlay."{table.internal}" order by 1')
    assert [row[:4] for row in marks_there] == [(1, 50, None, False), (2, 51, None, False)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["drop table public.events_1", "alter table public._events detach partition public.events_1"]
)
def test_marks_of_a_lost_partition_are_forgotten(archived: Lake, way: str) -> None:
    undone(archived)
    run(archived.catalog, way)
    run(archived.catalog, f"delete from public.plain where ts < '{FEBRUARY}'")
    table = archived.table()
    with archived.catalog.transaction():
        lost = marks.forget_lost(archived.catalog, table, table.tier_kind.lowest, at(archived, APRIL))
    assert lost == 1  # and not the mark of row 25, which is there
    archive_again(archived)


@pytest.mark.slow
def test_a_lost_mark_whose_key_is_used_again_at_that_moment_is_kept(archived: Lake, other: psycopg.Connection) -> None:
    undone(archived)
    run(archived.catalog, "drop table public.events_1")
    run(archived.catalog, f"delete from public.plain where ts < '{FEBRUARY}'")
    table = archived.table()
    other.execute("begin")
    both(other, "insert into public.{t} (id, ts, status) values (5, '2024-01-01 05:00+00', 'new')")
    with archived.catalog.transaction():
        assert marks.forget_lost(archived.catalog, table, table.tier_kind.lowest, at(archived, APRIL)) == 0
    other.execute("commit")
    archive_again(archived)


@pytest.mark.slow
def test_a_detached_partition_is_no_part_of_the_relation(archived: Lake) -> None:
    run(archived.catalog, "alter table public._events detach partition public.events_1")
    run(archived.catalog, "delete from public.events_1 where id = 5")
    run(archived.catalog, "update public.events_1 set status = 'mine' where id = 6")
    run(archived.catalog, "truncate public.events_1")
    compare(archived)


WATCH = """
create table public.seen (id bigint, name text);
create function public.watch() returns trigger language plpgsql as $$
begin
    insert into public.seen values (old.id, tg_name);
    return null;
end $$;
create trigger normal after delete on public._events for each row execute function public.watch();
create trigger replicas after delete on public.events_default for each row execute function public.watch();
create trigger ever after delete on public.events_default for each row execute function public.watch();
create trigger never after delete on public.events_default for each row execute function public.watch();
alter table public.events_default enable replica trigger replicas;
alter table public.events_default enable always trigger ever;
alter table public.events_default disable trigger never
"""
STATES = "select tgname, tgenabled from pg_trigger where tgrelid = 'public.events_default'::regclass order by 1"


@pytest.mark.slow
def test_no_trigger_of_the_user_notices_a_thaw(cold: Lake) -> None:
    run(cold.catalog, WATCH)
    before = rows(cold.catalog, STATES)
    both(cold.catalog, "update public.{t} set status = 'changed' where id in (1, 25, 45)")
    cold.thaw()
    assert rows(cold.catalog, "select * from public.seen") == []
    assert rows(cold.catalog, STATES) == before
    compare(cold)


@pytest.mark.slow
def test_ordinary_triggers_of_the_user_do_not_notice_a_fold(cold: Lake) -> None:
    run(cold.catalog, WATCH)
    both(cold.catalog, "update public.{t} set status = 'changed' where id in (1, 25, 45)")
    (result,) = cold.fold()
    assert result.taken == 3
    assert rows(cold.catalog, "select count(*) from public.seen where name = 'normal'") == [(0,)]
    assert value(cold.catalog, "show session_replication_role") == "origin"
    compare(cold)


def test_what_a_trigger_writes_during_a_fold_is_marked(cold: Lake) -> None:
    run(
        cold.catalog,
        """
        create function public.more() returns trigger language plpgsql set frostline.check_cold_keys = off as $$
        begin
            insert into public._events (id, ts, status) values (old.id + 7000, '2024-01-05', 'by the trigger');
            return null;
        end $$;
        create trigger more after delete on public.events_default for each row execute function public.more();
        alter table public.events_default enable always trigger more""",
    )
    both(cold.catalog, "update public.{t} set status = 'changed' where id = 1")
    cold.fold()
    run(cold.catalog, "insert into public.plain (id, ts, status) values (7001, '2024-01-05', 'by the trigger')")
    compare(cold)


@pytest.mark.slow
def test_a_thaw_without_a_default_partition_waits_for_those_who_use_the_heap(
    cold: Lake, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may have looked for its row there, and be about to mark it as gone."""
    run(cold.catalog, "drop table public.events_default")
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    other.execute("begin")
    other.execute("lock table only public._events in row exclusive mode")
    with pytest.raises(UnavailableError, match=f"pids {other.info.backend_pid} hold"):
        cold.thaw()
    other.execute("commit")
    cold.thaw()
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()
