"""`frostline repair`: shows what somebody else committed, points back, or takes the rows of an append into the table."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.command import Command, Said
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.outsider import append, drop, forget, identifier, lake_table, outsider, rename, row
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until_true

from frostline.catalog import pointers
from frostline.catalog.pointers import Pointer
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.failpoints import VARIABLE, Failpoint
from frostline.model.names import Name
from frostline.pipeline import repair, verify
from frostline.relation import policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.events e"
COUNT = "select count(*) from public.events"
FOREIGN = (
    "select id, ts at time zone 'UTC', status, amount, data from public.events where status = 'foreign' order by id"
)
STATE = """
select (select array_agg(t::text order by 1) from frostline.iceberg_tables t),
       (select array_agg(s::text) from frostline.seam s),
       (select array_agg(f::text order by 1) from frostline.lake_file f),
       (select count(*) from frostline.applied_batch),
       (select count(*) from pg_tables where schemaname = 'frostline_stage')"""


@pytest.fixture
def cold(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Three months of rows in the lake only."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    make_archived_events(lake, months=3, rows_a_month=100)
    return lake


def add(lake: Lake, *given: Any) -> None:
    """Rows that an outsider appends."""
    with outsider(lake.dsn) as catalog:
        for statement in given:
            lake_table(catalog, lake).append(statement)


def shown(command: Command, *words: str) -> dict[str, Any]:
    said: Said = command("repair", "events", "--output", "json", *words)
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


def is_sound(lake: Lake) -> None:
    """As if nobody had ever been there: every job works, and every value is what was recorded."""
    assert not repair.look(lake.catalog, lake.table()).is_foreign
    assert verify.run(lake.catalog, lake.table()).faults == ()
    before = lake.value(EVERYTHING)
    run(lake.catalog, "update public.events set status = status where id = 7")
    for result in (*lake.fold(), *lake.archive(), *lake.compact()):
        assert result.error is None
    assert lake.value(EVERYTHING) == before
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.quick
def test_a_delete_is_shown_and_taken_back(cold: Lake, command: Command) -> None:
    before = cold.value(EVERYTHING)
    with outsider(cold.dsn) as catalog:
        lake_table(catalog, cold).delete("id < 100")
    record = shown(command)
    assert (record["rows"], record["foreign_rows"]) == (300, 201)
    assert (len(record["added_files"]), len(record["removed_files"])) == (1, 1)
    assert record["operations"] == ["overwrite"]
    assert "deleted or changed" in record["not_adoptable"]
    assert cold.value("select count(*) from frostline.job where kind = 'repair'") == 0, "it only looked"
    assert shown(command, "--restore")["done"] == "restored"
    assert shown(command)["is_foreign"] is False
    assert cold.value(EVERYTHING) == before
    is_sound(cold)


def test_what_it_says_to_people_leads_them_out(cold: Lake, command: Command) -> None:
    said = command("repair", "events")
    assert (said.exit_code, "nobody else has committed" in said.stdout) == (0, True)
    add(cold, row(1_000_001))
    said = command("repair", "events")
    assert "frostline repair public.events --restore" in said.stdout
    assert "frostline repair public.events --adopt" in said.stdout
    assert "its lake was committed to by somebody else" in said.stdout
    said = command("repair", "events", "--adopt")
    assert (said.exit_code, "adopted" in said.stdout) == (0, True)


@pytest.mark.parametrize("deed", [drop, rename, forget, append], ids=lambda deed: deed.__name__)
def test_whatever_was_done_the_pointer_comes_back(cold: Lake, command: Command, deed: Any) -> None:
    before, pointer = cold.value(EVERYTHING), pointers.find(cold.catalog, Pointer.of(cold.table()))
    deed(cold)
    assert shown(command, "--restore")["done"] == "restored"
    assert pointers.find(cold.catalog, Pointer.of(cold.table())) == pointer
    assert value(cold.catalog, "select count(*) from frostline.iceberg_tables") == 1, "no other name is left"
    assert cold.value(EVERYTHING) == before
    is_sound(cold)


def test_a_renamed_table_that_was_made_anew_gets_its_name_back(cold: Lake, command: Command) -> None:
    rename(cold)
    with outsider(cold.dsn) as catalog:
        catalog.create_table(identifier(cold), row(1).schema, location=f"file://{cold.warehouse}/theirs")
    record = shown(command)
    assert record["other_names"] == ["public.mine"]
    assert record["not_adoptable"] == "it is another Iceberg table"
    shown(command, "--restore")
    is_sound(cold)


def test_a_name_that_somebody_took_before_the_first_archive_is_freed(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=10)
    lake.add(hot="1 month")
    with outsider(lake.dsn) as catalog:
        catalog.create_namespace_if_not_exists("public")
        catalog.create_table(identifier(lake), row(1).schema, location=f"file://{lake.warehouse}/theirs")
    (result,) = lake.archive()
    assert isinstance(result.error, ConflictError)
    with pytest.raises(UsageError, match="nothing into the lake yet"):
        repair.adopt(lake.catalog, lake.settings, lake.table())
    repair.restore(lake.catalog, lake.settings, lake.table())
    assert pointers.find(lake.catalog, Pointer.of(lake.table())) is None
    (result,) = lake.archive()
    assert (result.error, result.rows) == (None, 20)


def test_a_file_of_ours_that_is_gone_stops_both_ways(cold: Lake) -> None:
    """The other's state may be all that is left of its rows."""
    append(cold)
    first: Path = cold.data_files()[0]
    paths = [path for (path,) in rows(cold.catalog, "select path from frostline.lake_file order by 1")]
    Path(paths[0].removeprefix("file://")).unlink()
    before = rows(cold.catalog, STATE)
    assert repair.look(cold.catalog, cold.table()).missing == (paths[0],)
    for way in (repair.restore, repair.adopt):
        with pytest.raises(CorruptionError, match=r"1 files of public\.events are gone"):
            way(cold.catalog, cold.settings, cold.table())
    assert rows(cold.catalog, STATE) == before
    assert first.parent.exists()


@pytest.mark.quick
def test_an_append_is_adopted_as_postgres_would_write_it(cold: Lake, command: Command) -> None:
    before = cold.value(COUNT)
    add(cold, row(1_000_001), row(1_000_002, ts="2024-01-02T03:04:05.678901"), row(1_000_003, data=None, amount=None))
    record = shown(command)
    assert (record["rows"], record["foreign_rows"], record["operations"]) == (300, 303, ["append"] * 3)
    assert record["not_adoptable"] is None
    assert shown(command, "--adopt")["adopted_rows"] == 3
    assert cold.value(COUNT) == before + 3  # pyright: ignore[reportOperatorIssue]
    with cold.connect() as connection:
        found_rows = rows(connection, FOREIGN)
        assert [found_row[0] for found_row in found_rows] == [1_000_001, 1_000_002, 1_000_003]
        assert value(connection, "select data::text from events where id = 1000001") == '{"a": 2, "b": 1}'
        assert value(connection, "select count(*) from events where data @> '{\"a\": 2}'") == 2
    assert value(cold.catalog, "select count(*) from frostline.lake_file") == 5, (
        "files of our own, in two lake partitions"
    )
    names = [path for (path,) in rows(cold.catalog, "select path from frostline.lake_file")]
    assert all("/data/job-" in path for path in names)
    is_sound(cold)


def test_adopted_rows_go_where_an_insert_would_bring_them(cold: Lake) -> None:
    """A hot row into the heap, one of a partition in its grace period through its triggers, one with a mark there too."""
    policy.change(cold.catalog, cold.table(), grace_period="1 day")
    run(
        cold.catalog,
        "create table public._events_4 partition of public._events for values from ('2024-04-01') to ('2024-05-01')",
    )
    run(cold.catalog, "insert into public.events (ts) values ('2024-04-05')")
    assert cold.archive()[0].rows == 1
    run(cold.catalog, "delete from public.events where id = 7")
    ((ts,),) = rows(cold.catalog, "select (timestamptz '2024-01-08 00:00:07+00')::text")
    given = [row(1, ts="2030-01-01T00:00:00", status="hot"), row(2, ts="2024-04-06T00:00:00", status="grace")]
    add(cold, *given, row(7, ts="2024-01-08T00:00:07", status="again"), row(8, ts="2023-01-01T00:00:00", status="cold"))
    findings = repair.adopt(cold.catalog, cold.settings, cold.table())
    assert findings.rows == 4
    assert rows(cold.catalog, "select status from public.events where status in ('hot', 'grace', 'again', 'cold') order by 1") == [
        ("again",), ("cold",), ("grace",), ("hot",)
    ]  # fmt: skip
    assert rows(cold.catalog, "select status from only public._events_4 where status is distinct from 'new'") == [
        ("grace",)
    ]
    assert ts
    assert verify.run(cold.catalog, cold.table()).faults == ()
    assert cold.undo().partitions == ("public._events_4",)


KEY_7 = "select ts::text from public.events where id = 7"
WRONG = {
    "a key of the lake": (lambda ts: row(7, ts=ts), "the lake has a row with"),
    "a key of the heap": (lambda _: row(500, ts="2030-01-01T00:00:00"), "a key is there twice"),
    "no key": (lambda _: row(1, id=None), "null value in column"),
    "no tier key": (lambda _: row(1, ts=None), "have no ts that a row can have"),
    "not JSON": (lambda _: row(1, data="{"), "invalid input syntax for type json"),
    "below the retention line": (lambda _: row(1, ts="2001-01-01T00:00:00"), "retention period"),
    "a check": (lambda _: row(1, amount=-1), "violates check constraint"),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_row_that_an_insert_would_refuse_is_not_adopted(cold: Lake, which: str) -> None:
    run(
        cold.catalog,
        "create table public._events_new partition of public._events for values from ('2030-01-01') to ('2030-02-01')",
    )
    run(cold.catalog, "insert into public._events (id, ts) overriding system value values (500, '2030-01-01 00:00+00')")
    run(cold.catalog, "alter table public._events add check (amount >= 0)")
    if which == "below the retention line":
        policy.change(cold.catalog, cold.table(), retention_period="20 years")
        cold.retain()
    moment = value(
        cold.catalog,
        "select to_char(ts at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') from public.events where id = 7",
    )
    make, message = WRONG[which]
    add(cold, row(1_000_001), make(moment))
    before, files = rows(cold.catalog, STATE), cold.value(EVERYTHING)
    with pytest.raises(UsageError, match=message):
        repair.adopt(cold.catalog, cold.settings, cold.table())
    assert rows(cold.catalog, STATE) == before
    assert cold.value(EVERYTHING) == files
    repair.restore(cold.catalog, cold.settings, cold.table())
    is_sound(cold)


def test_an_append_of_one_key_twice_is_not_adopted(cold: Lake) -> None:
    add(cold, row(1_000_001), row(1_000_001))
    with pytest.raises(UsageError, match="is duplicated"):
        repair.adopt(cold.catalog, cold.settings, cold.table())


@pytest.mark.parametrize("obstacle", ["trigger", "row security"])
def test_a_table_whose_inserts_do_more_does_not_adopt_files(cold: Lake, obstacle: str) -> None:
    statements = {
        "trigger": "create function public.f() returns trigger language plpgsql as 'begin return new; end'; create trigger t before insert on public._events for each row execute function public.f()",
        "row security": "alter table public._events enable row level security",
    }
    run(cold.catalog, statements[obstacle])
    append(cold)
    with pytest.raises(UsageError, match=r"which a commit to the lake does not heed"):
        repair.adopt(cold.catalog, cold.settings, cold.table())


def test_another_commit_while_it_repairs_stops_it(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    append(cold)
    real = repair.point_back

    numbers = iter((1_000_002, 1_000_003))

    def late(*arguments: Any) -> None:
        add(cold, row(next(numbers)))
        real(*arguments)

    monkeypatch.setattr(repair, "point_back", late)
    for way in (repair.restore, repair.adopt):
        with pytest.raises(ConflictError, match="just now"):
            way(cold.catalog, cold.settings, cold.table())
    assert repair.look(cold.catalog, cold.table()).is_foreign
    monkeypatch.undo()
    assert repair.adopt(cold.catalog, cold.settings, cold.table()).rows == 3
    is_sound(cold)


def test_two_who_write_one_key_are_told_apart(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer inserts the very key between the look and the publish."""
    append(cold)
    real = repair.Adoption.publish_all

    def late(job: repair.Adoption) -> None:
        with cold.connect() as connection:
            text = "insert into events (id, ts) overriding system value values (1000001, '2024-02-03 04:05:06+00')"
            run(connection, text)
        real(job)

    monkeypatch.setattr(repair.Adoption, "publish_all", late)
    with pytest.raises(ConflictError, match="others write the same keys"):
        repair.adopt(cold.catalog, cold.settings, cold.table())
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot be adopted"):
        repair.adopt(cold.catalog, cold.settings, cold.table())
    assert cold.value("select count(*) from events where id = 1000001") == 1


def test_both_ways_at_once_are_refused(cold: Lake, command: Command) -> None:
    assert command("repair", "events", "--restore", "--adopt").exit_code == 2
    assert command("repair", "events", "--adopt").exit_code == 2, "there is nothing to adopt"
    assert command("repair", "nothing").exit_code == 2
    assert shown(command, "--restore")["done"] is None


def test_the_other_names_are_those_of_this_folder_only(cold: Lake) -> None:
    with outsider(cold.dsn) as catalog:
        catalog.create_table(("public", "theirs"), row(1).schema, location=f"file://{cold.warehouse}/theirs")
    assert repair.look(cold.catalog, cold.table()).other_names == ()
    assert pointers.other_names(cold.catalog, cold.table(), f"file://{cold.warehouse}/theirs") == [
        Name("public", "theirs")
    ]


@pytest.mark.parametrize("place", [Failpoint.LOAD_STARTED, Failpoint.EXPORT_WROTE_FILE, Failpoint.LOAD_STAGED])
def test_a_killed_adoption_changes_nothing_and_can_be_repeated(cold: Lake, place: Failpoint) -> None:
    append(cold)
    before, pointers = cold.value(EVERYTHING), rows(cold.catalog, "select * from frostline.iceberg_tables")
    words = [sys.executable, "-m", "frostline.cli.main", "repair", "events", "--adopt"]
    died = subprocess.run(words, env=os.environ | {VARIABLE: place.value}, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert cold.value(EVERYTHING) == before
    assert rows(cold.catalog, "select * from frostline.iceberg_tables") == pointers
    until_true(cold.catalog, "select count(*) = 0 from pg_stat_activity where application_name = 'frostline command'")
    assert repair.adopt(cold.catalog, cold.settings, cold.table()).rows == 1
    is_sound(cold)
    assert value(cold.catalog, "select count(*) from frostline.job where not tidied") == 0
    assert value(cold.catalog, "select count(*) from public.events where status = 'foreign'") == 1


def test_a_pointer_that_leads_nowhere_is_shown_and_restored(cold: Lake, command: Command) -> None:
    with cold.connect() as other:
        run(other, "set session_replication_role = replica")
        run(other, "update frostline.iceberg_tables set metadata_location = 'file:///nowhere/1.metadata.json'")
    (result,) = cold.archive()
    assert isinstance(result.error, ConflictError)
    assert "file:///nowhere/1.metadata.json" in str(result.error)
    record = shown(command)
    assert (record["rows"], record["foreign_rows"], record["foreign_snapshot_id"]) == (300, None, None)
    assert "cannot be read" in record["not_adoptable"]
    assert "cannot be adopted: its metadata cannot be read" in command("repair", "events").stdout
    shown(command, "--restore")
    is_sound(cold)
