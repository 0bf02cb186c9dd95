"""`frostline table adopt --from-lake`: the catalog is lost, and a table is managed again from the files of its lake."""

import json
import os
from typing import Any

import pytest
from tests.fixtures import forks, states
from tests.fixtures.cold_twins import APRIL, at, both, change, compare, line, make_archived, shown
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.remembered import anew
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import PARTITIONS, TABLE
from tests.fixtures.waiting import until_noticed

from frostline.catalog import lake_files, migrations, seams, warehouses
from frostline.catalog.connect import connect
from frostline.errors import CorruptionError, FrostlineError, UsageError
from frostline.failpoints import VARIABLE, Failpoint
from frostline.lake import claim, commit, paths, snapshots, warehouse
from frostline.model.names import OWN_SCHEMAS, Name
from frostline.model.policy import Policy
from frostline.pipeline import adopt, verify
from frostline.relation import altering, following, foreign_server, objects, policy
from frostline.relation.registration import Request
from frostline.settings import Settings

pytestmark = pytest.mark.spark
POLICY = Policy("1 month", "0")


def folder(lake: Lake) -> str:
    """Where the lake of `events` is, while somebody knows."""
    return paths.table_location(lake.settings.warehouse, lake.table())


def lose(lake: Lake, heap: str = "kept") -> None:
    """Frostline's schemas are dropped, and it is installed anew; the heap is what the application has left."""
    catalog = lake.catalog
    run(catalog, f"drop schema if exists {', '.join((*OWN_SCHEMAS, 'frostline_guard'))} cascade")
    if heap == "empty":
        run(catalog, "drop table public._events")
        run(catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    else:
        run(catalog, "alter table public._events rename to events")
    install(lake)


def install(lake: Lake) -> None:
    migrations.apply(lake.catalog)
    objects.ensure_generator(lake.catalog)
    claim.claim(lake.catalog, lake.settings.warehouse)
    port = lake.server.port
    foreign_server.ensure(lake.catalog, host="127.0.0.1", port=port, user="frostline", password="secret")
    commit.snapshots.read_metadata.cache_clear()


def ask(location: str, name: str = "events", relation: str | None = None, **options: bool) -> adopt.Request:
    return adopt.Request(Request(Name.parse(name), POLICY, None, relation), location, **options)


def adopted(lake: Lake, location: str, **options: Any) -> adopt.Result:
    return adopt.run(lake.catalog, lake.settings, ask(location, **options))


def live_on(lake: Lake) -> None:
    """Writes of every kind, archive, fold, clean, expiry; and nothing is wrong."""
    compare(lake)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'again' where id in (5, 30, 70)")
        both(connection, "delete from public.{t} where id in (6, 31, 71)")
        both(
            connection,
            "insert into public.{t} (id, ts, status) values (801, '2024-02-03', 'late'), (802, '2090-02-02', 'hot')",
        )
    compare(lake)
    for result in (*lake.archive(), *lake.fold(), *lake.compact()):
        assert result.error is None
    compare(lake)
    policy.change(lake.catalog, lake.table(), snapshot_retention="0")
    states.expired(lake)
    states.expired(lake)
    states.swept(lake)
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_every_row_comes_back_from_the_files(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where, before = folder(lake), seams.get(lake.catalog, lake.table())
    recorded = lake_files.recorded(lake.catalog, lake.table())
    lose(lake)
    assert lake.value("select count(*) from public.events") == 20, "the cold rows are missing"
    done = adopted(lake, where, take_over=True)
    assert (done.rows, done.files, done.heap_rows, done.line) == (60, 3, 0, before.frost_line)
    assert folder(lake) == where
    assert seams.get(lake.catalog, lake.table()).snapshot_id == before.snapshot_id
    assert lake_files.recorded(lake.catalog, lake.table()) == recorded, (
        "ranges, fingerprints and checksums are the same"
    )
    live_on(lake)


def test_what_a_dropped_column_had_does_not_come_back_in_another(lake: Lake) -> None:
    """Two files still have it, and the catalog that knew of it is lost: its field must not be given to a new column."""
    make_archived(lake, grace="0")
    altering.alter(lake.catalog, lake.table(), "drop column data")
    run(lake.catalog, "alter table public.plain drop column data")
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'again' where id = 5")
    assert lake.fold()[0].error is None
    where = folder(lake)
    lose(lake)
    adopted(lake, where, take_over=True)
    run(lake.catalog, "alter table public._events add column note text; alter table public.plain add column note text")
    following.follow(lake.catalog, lake.table())
    compare(lake)
    assert value(lake.catalog, "select name from frostline.dropped_column") == "data"


def test_changes_that_only_the_heap_has_are_kept(lake: Lake) -> None:
    """Changed cold rows have their newest version there, and partitions in grace all their rows; deletions are folded."""
    make_archived(lake)
    change(lake)
    lake.fold()
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'not folded' where id in (7, 33)")
    where = folder(lake)
    lose(lake)
    with pytest.raises(UsageError, match=r"has \d+ rows before .*, where the lake has rows: nobody knows") as raised:
        adopted(lake, where, take_over=True)
    assert "--heap-is-newer" in (raised.value.hint or "")
    assert rows(lake.catalog, "select from frostline.managed_table") == []
    done = adopted(lake, where, take_over=True, heap_is_newer=True)
    # Of 60 rows three were deleted, one moved beyond, and two are new; the one before everything was folded and left DEFAULT.
    assert (done.heap_rows, line(lake)) == (58, at(lake, APRIL))
    live_on(lake)


def test_a_row_that_was_deleted_and_not_folded_is_back_and_that_is_said(lake: Lake) -> None:
    make_archived(lake, grace="0")
    with lake.connect() as connection:
        run(connection, "delete from public.events where id = 5")
    where = folder(lake)
    lose(lake)
    done = adopted(lake, where, take_over=True)
    assert "rows that were deleted are back" in done.unknown[0]
    compare(lake)


def test_into_an_empty_table_and_beside_it(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where = folder(lake)
    run(lake.catalog, "delete from public.plain where ts >= '2090-01-01'")
    lose(lake, heap="empty")
    adopted(lake, where, take_over=True, relation="everything")
    with lake.connect() as connection:
        assert shown(connection, "everything") == shown(connection, "plain")
        assert shown(connection, "events") == []
        run(
            connection,
            "update public.everything set status = 'x' where id = 1; update public.plain set status = 'x' where id = 1",
        )
        run(connection, "insert into public.events (id, ts) values (900, '2090-02-02')")
        run(connection, "insert into public.plain (id, ts) values (900, '2090-02-02')")
        assert shown(connection, "everything") == shown(connection, "plain")
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_no_job_gets_a_number_that_files_have(lake: Lake) -> None:
    """What a failed job has left is deleted by its number: that must not be the lake."""
    make_archived(lake, grace="0")
    where = folder(lake)
    last = max(filter(None, (paths.job_of(file.location) for file in paths.stored(where))))
    lose(lake)
    adopted(lake, where, take_over=True)
    assert value(lake.catalog, "select min(job_id) from frostline.job") > last
    files = lake.data_files()
    run(
        lake.catalog,
        "insert into frostline.job (table_id, kind, state, tidied) select table_id, 'fold', 'failed', false from frostline.managed_table",
    )
    lake.clean()
    assert lake.data_files() == files


WRONG = {
    "a column less": ("alter table public.events drop data", "the lake has a column data"),
    "a column more": ("alter table public.events add more int", "column more of public.events is not in the lake"),
    "another name": ("alter table public.events rename amount to price", "column price of public.events is not in the"),
    "another type": ("alter table public.events alter amount type float8", "column amount of public.events is double"),
    "a type of the same encoding": (
        "alter table public.events alter data type text",
        "column data of public.events is",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_table_with_other_columns_is_refused(lake: Lake, what: str) -> None:
    statement, said = WRONG[what]
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    run(lake.catalog, statement)
    with pytest.raises(UsageError, match=said):
        adopted(lake, where, take_over=True)
    assert rows(lake.catalog, "select from frostline.managed_table") == []


def test_another_key_another_name_or_no_table_are_refused(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    run(lake.catalog, "alter table public.events rename to renamed")
    with pytest.raises(UsageError, match=r"the lake is in .*, and that of public\.renamed would be in"):
        adopted(lake, where, take_over=True, name="renamed")
    run(lake.catalog, "alter table public.renamed rename to _events")
    with pytest.raises(UsageError, match=r"public\.events is not there, but its heap public\._events is"):
        adopted(lake, where, take_over=True)
    run(lake.catalog, "alter table public._events rename to events")
    run(
        lake.catalog,
        "alter table public.events drop constraint events_pkey; alter table public.events add primary key (ts, id)",
    )
    with pytest.raises(UsageError, match=r"the primary key of public\.events is another one"):
        adopted(lake, where, take_over=True)


@pytest.mark.parametrize("how", ["gone", "short", "garbage", "manifest"])
def test_a_damaged_file_is_named_and_nothing_is_changed(lake: Lake, how: str) -> None:
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    victim = lake.data_files()[1] if how != "manifest" else next(lake.warehouse.rglob("*-m0.avro"))
    content = victim.read_bytes()
    if how == "gone":
        victim.unlink()
    elif how == "short":
        victim.write_bytes(content[:-100])
    else:
        victim.write_bytes(b"\0" * len(content))
    with pytest.raises((CorruptionError, FrostlineError), match=victim.name):
        adopted(lake, where, take_over=True)
    assert rows(lake.catalog, "select from frostline.managed_table") == []
    victim.write_bytes(content)
    adopted(lake, where, take_over=True)
    live_on(lake)


def test_the_lake_of_a_living_database_is_refused(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where, other = folder(lake), warehouses.find(lake.catalog)
    assert other is not None
    lose(lake)
    with pytest.raises(UsageError, match=f"belongs to another database, {other.identity}") as raised:
        adopted(lake, where)
    assert "--take-over" in (raised.value.hint or "")
    assert rows(lake.catalog, "select from frostline.managed_table") == []
    adopted(lake, where, take_over=True)
    marker = warehouse.Marker(paths.warehouse_location(lake.settings.warehouse), other.identity)
    assert not warehouse.is_there(marker), "a database that is there after all refuses to write and delete from now on"
    now = snapshots.metadata_now(str(seams.get(lake.catalog, lake.table()).metadata_location))
    ours = warehouses.find(lake.catalog)
    assert ours is not None
    assert now.properties[commit.WAREHOUSE_IDENTITY] == ours.identity != other.identity


def test_a_lake_of_an_earlier_version_does_not_say_whose_it_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(commit, "_own_properties", lambda table: {"frostline.table-id": str(table.id)})
        anew(make_archived)(lake, grace="0")
    where = folder(lake)
    lose(lake)
    with pytest.raises(UsageError, match="does not say whose it is"):
        adopted(lake, where)
    done = adopted(lake, where, take_over=True)
    assert "does not say which Postgres types" in done.unknown[-1]
    live_on(lake)


def test_the_newest_metadata_is_taken_and_an_older_one_refused(lake: Lake) -> None:
    make_archived(lake, grace="0")
    old = seams.get(lake.catalog, lake.table()).metadata_location
    change(lake)
    lake.fold()
    where, newest = folder(lake), seams.get(lake.catalog, lake.table()).metadata_location
    assert old is not None
    lose(lake)
    with pytest.raises(UsageError, match="is not the newest metadata of this lake") as raised:
        adopted(lake, old, take_over=True)
    assert str(newest) in (raised.value.hint or "")
    with pytest.raises(UsageError, match="there is no lake in"):
        adopted(lake, f"{where}/data", take_over=True)
    done = adopt.run(lake.catalog, lake.settings, ask(where.removeprefix("file://"), take_over=True), dry_run=True)
    assert done.location == newest
    assert rows(lake.catalog, "select from frostline.managed_table") == []
    adopted(lake, where, take_over=True)
    live_on(lake)


def test_a_number_that_another_table_has_is_refused(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    run(lake.catalog, TABLE.format(name="other", partitioned="partition by range (ts)"))
    lake.add("other")
    with pytest.raises(UsageError, match="another managed table has number 1, which"):
        adopted(lake, where, take_over=True)


def test_tables_that_are_added_later_get_other_numbers(lake: Lake) -> None:
    make_archived(lake, grace="0")
    where, number = folder(lake), lake.table().id
    lose(lake)
    adopted(lake, where, take_over=True)
    run(lake.catalog, TABLE.format(name="other", partitioned="partition by range (ts)"))
    assert lake.add("other").id > number


def _adopt(dsn: str, place: str, where: str) -> int:
    settings = Settings(dsn=dsn, warehouse=place)
    with connect(dsn, purpose="doomed") as connection:
        adopt.run(connection, settings, ask(where, take_over=True))
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", [point for point in Failpoint if point.value.startswith("adopt_")])
def test_killed_in_adopt(lake: Lake, failpoint: Failpoint) -> None:
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    environment = os.environ | {VARIABLE: failpoint.value}
    ended = forks.run(_adopt, lake.dsn, lake.settings.warehouse, where, environment=environment)
    assert ended.returncode == -9, ended.said
    until_noticed(lake.catalog)
    if failpoint is not Failpoint.ADOPT_PUBLISHED:
        assert rows(lake.catalog, "select from frostline.managed_table") == []
        adopted(lake, where, take_over=True)
    live_on(lake)


def test_the_command_says_what_cannot_be_known(lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    make_archived(lake, grace="0")
    where = folder(lake)
    lose(lake)
    words = ("table", "adopt", "events", "--from-lake", where, "--take-over", "--output", "json")
    assert command(*words).exit_code == 2, "how long rows stay hot is not known"
    said = command(*words, "--hot", "1 month", "--grace", "0 s")
    told = json.loads(said.stdout)
    assert (said.exit_code, told["lake_rows"], told["frost_line"], len(told["unknown"])) == (0, 60, APRIL, 4)
    assert command("table", "adopt", "events", "--hot", "1 month").exit_code == 2
    assert "is managed already" in command(*words, "--hot", "1 month").stderr
    live_on(lake)
