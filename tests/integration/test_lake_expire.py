"""Expiry of lake tables: what somebody may read stays, and the rest is deleted, whoever commits meanwhile."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from tests.fixtures import lake_past
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.lake_past import ROWS, age, expired, files, forget, history, needed, pointer
from tests.fixtures.statements import run, value

from frostline.catalog.lake_tables import NoSuchLakeTable
from frostline.lake import lake_upkeep
from frostline.pipeline import lake_compact, lake_expire, lake_properties, lake_register, lake_tables, lake_verify
from frostline.pipeline.lake_properties import Wanted


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    """A table of six commits, merged into one file by a seventh."""
    lake_past.make(lake)
    with lake.connect() as connection:
        for first in (1, 11, 21, 31):
            connection.execute(
                "insert into readings select n, 'a', n from generate_series(%s::int, %s) n", (first, first + 9)
            )
        connection.execute("delete from readings where id in (2, 13, 24)")
        connection.execute("update readings set value = 0 where id = 35")
        (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
        assert done.error is None
        yield connection


def test_what_was_replaced_longer_ago_than_the_policy_says_goes_with_its_files(
    lake: Lake, session: psycopg.Connection
) -> None:
    before, location = session.execute(ROWS).fetchall(), pointer(lake).metadata_location
    assert expired(lake).files == 0, "nothing is old enough"
    assert pointer(lake).metadata_location == location
    age(lake)
    planned = expired(lake, dry_run=True)
    assert (planned.snapshots, pointer(lake).metadata_location) == (6, location)
    done = expired(lake)
    assert (done.snapshots, done.files) == (6, planned.files)
    assert len(history(lake)) == 1
    assert files(lake) == needed(lake)
    assert session.execute(ROWS).fetchall() == before
    session.execute("insert into readings values (99, 'z', 9)")
    table = StaticTable.from_metadata(pointer(lake).metadata_location)
    assert table.scan().to_arrow().num_rows == len(before) + 1
    assert [entry.metadata_file in files(lake) for entry in table.metadata.metadata_log] == [True, True]
    assert expired(lake).files == 0, "nothing is left to expire"


def test_an_idle_table_is_not_committed_to_again_and_again(lake: Lake, session: psycopg.Connection) -> None:
    age(lake)
    expired(lake)
    location = pointer(lake).metadata_location
    age(lake)
    done = expired(lake)
    assert (done.snapshots, done.files) == (0, 1), "the metadata file that the first one has replaced"
    assert pointer(lake).metadata_location == location
    assert files(lake) == needed(lake)
    assert session.execute(ROWS).fetchall()
    assert lake_verify.run(lake.catalog, pointer(lake), history=True).faults == ()


def test_an_old_snapshot_that_was_replaced_a_moment_ago_stays(lake: Lake, session: psycopg.Connection) -> None:
    """A transaction may have read it since: the time when it was made says nothing."""
    age(lake)
    expired(lake)
    with lake.connect() as other:
        other.execute("begin")
        before = other.execute(ROWS).fetchall()
        session.execute("delete from readings")
        run(lake.catalog, "update frostline.former_lake_state set replaced_at = replaced_at - interval '4 days'")
        expired(lake)
        assert other.execute(ROWS).fetchall() == before
        other.execute("commit")


def test_a_transaction_with_a_cut_that_has_expired_is_told_so_and_the_next_one_goes_on(
    lake: Lake, session: psycopg.Connection
) -> None:
    rows = session.execute(ROWS).fetchall()
    with lake.connect() as reader, lake.connect() as writer:
        for each in (reader, writer):
            each.execute("begin")
            each.execute("select count(*) from readings")
        writer.execute("insert into readings values (77, 'late', 7)")
        session.execute("update readings set value = 1")
        (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
        assert done.error is None
        age(lake)
        assert expired(lake).snapshots
        with pytest.raises(psycopg.Error) as refused:
            reader.execute(ROWS)
        assert refused.value.sqlstate == "72000"
        assert "frostline lake set public.readings --snapshot-retention" in (refused.value.diag.message_hint or "")
        reader.execute("rollback")
        assert reader.execute("select count(*) from readings").fetchone() == (len(rows),)
        writer.execute("commit")
        assert reader.execute("select count(*) from readings").fetchone() == (len(rows) + 1,)


def test_one_that_has_changed_rows_of_an_expired_state_conflicts_or_commits_as_ever(
    lake: Lake, session: psycopg.Connection
) -> None:
    session.execute("insert into readings select n, 'b', n from generate_series(101, 110) n")
    with lake.connect() as kept, lake.connect() as lost:
        for each, row in ((kept, 105), (lost, 5)):
            each.execute("begin")
            each.execute("delete from readings where id = %s", (row,))
        session.execute("delete from readings where id = 5")
        age(lake)
        assert expired(lake).snapshots
        kept.execute("commit")
        with pytest.raises(psycopg.errors.SerializationFailure):
            lost.execute("commit")
    assert session.execute("select count(*) from readings where id in (5, 105)").fetchone() == (0,)
    age(lake)
    expired(lake)
    assert files(lake) == needed(lake)


def test_a_commit_that_was_faster_is_kept_and_the_expiry_decides_anew(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(lake)
    before = session.execute(ROWS).fetchall()
    stage, waiting = lake_upkeep.stage_expiry, [1, 2]

    def staged(*args: object) -> object:
        made = stage(*args)  # pyright: ignore[reportArgumentType]
        if waiting:
            session.execute("insert into readings values (%s, 'meanwhile', 1)", (1000 + waiting.pop(),))
        return made

    monkeypatch.setattr(lake_upkeep, "stage_expiry", staged)
    assert expired(lake).snapshots == 6
    assert session.execute(ROWS).fetchall() == [*before, (1001, "meanwhile", "1"), (1002, "meanwhile", "1")]
    assert files(lake) == needed(lake)


def test_one_who_registers_a_state_that_is_over_meanwhile_keeps_its_metadata(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot goes, so the expiry moves no pointer: it has to look by itself where the table is."""
    age(lake)
    expired(lake)
    age(lake)
    table, rows, plan = pointer(lake), session.execute(ROWS).fetchall(), lake_expire.plan

    def planned(*arguments: Any) -> lake_expire.Plan:
        monkeypatch.setattr(lake_expire, "plan", registered)  # the job begins, and decides anew
        return plan(*arguments)

    def registered(*arguments: Any) -> lake_expire.Plan:
        monkeypatch.undo()
        anew = plan(*arguments)
        assert (len(anew.over), anew.snapshots) == (1, frozenset())
        with lake.connect() as other:
            lake_tables.drop(other, lake.settings, table.name, purge=False)
            location = anew.over[0].metadata_location
            lake_register.register(other, lake.settings, table.pointer, table.name, location)
        return anew

    monkeypatch.setattr(lake_expire, "plan", planned)
    (done,) = lake_expire.run(lake.catalog, lake.settings, [table])
    assert isinstance(done.error, NoSuchLakeTable)
    forget()
    assert session.execute(ROWS).fetchall() == rows


def test_refs_and_the_newest_of_each_branch_stay(lake: Lake, session: psycopg.Connection) -> None:
    there = history(lake)
    known = StaticTable.from_metadata(pointer(lake).metadata_location)
    tag = SnapshotRef.model_validate({"snapshot-id": there[1], "type": "tag"})
    changed = known.metadata.model_copy(update={"refs": known.metadata.refs | {"keep": tag}})
    _commit(lake, changed)
    lake_properties.set_policy(lake.catalog, lake.settings, pointer(lake), Wanted(min_snapshots=3))
    age(lake)
    expired(lake)
    assert history(lake) == [there[1], *there[-3:]]
    assert known.scan(snapshot_id=there[1]).to_arrow().num_rows == 20
    assert files(lake) == needed(lake)


def _commit(lake: Lake, metadata: TableMetadata) -> None:
    """As another engine would."""
    place = pointer(lake).metadata_location
    path = Path(place.removeprefix("file://"))
    number = int(path.name[:5]) + 1
    new = path.with_name(f"{number:05}-{path.name[6:]}")
    new.write_text(metadata.model_dump_json())
    run(
        lake.catalog,
        "update frostline.iceberg_tables set metadata_location = %s, previous_metadata_location = metadata_location "
        "where metadata_location = %s",
        (f"file://{new}", place),
    )
    forget()


def test_what_another_engine_has_expired_can_be_read_by_whom_has_it(lake: Lake, session: psycopg.Connection) -> None:
    """Its files are those of a state that somebody may read, though no metadata but its own names them."""
    age(lake)
    with lake.connect() as reader:
        reader.execute("begin")
        rows = reader.execute(ROWS).fetchall()
        session.execute("update readings set value = 5")
        session.execute("insert into readings values (500, 'x', 1)")
        (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
        assert done.error is None
        known = StaticTable.from_metadata(pointer(lake).metadata_location).metadata
        _commit(
            lake, known.model_copy(update={"snapshots": known.snapshots[-1:], "snapshot_log": known.snapshot_log[-1:]})
        )
        session.execute("insert into readings values (501, 'x', 1)")
        expired(lake)
        lake_past.swept(lake)
        assert reader.execute(ROWS).fetchall() == rows
        reader.execute("commit")


def test_many_states_without_a_policy_stay_for_an_hour_only(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.catalog.lake_upkeep.MANY_STATES", 3)
    age(lake, days=0.1)
    expired(lake)
    assert len(history(lake)) == 3
    assert session.execute("select count(*) from readings").fetchone() == (37,)


def test_a_restored_database_deletes_nothing_before_it_has_taken_over(
    lake: Lake, session: psycopg.Connection, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(lake)
    run(lake.catalog, "update frostline.lake_table set server = 'elsewhere'")
    there = files(lake)
    done = expired(lake)
    assert (done.snapshots, done.files) == (0, 0)
    assert "frostline sweep --take-over" in done.waiting[0]
    assert "frostline sweep --take-over" in lake_past.swept(lake).waiting[0]
    assert files(lake) == there
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", lake.settings.warehouse)
    assert command("sweep", "--take-over").exit_code == 0
    assert expired(lake).snapshots == 6


def test_a_file_of_another_table_is_not_deleted_with_a_snapshot_that_names_it(
    lake: Lake, session: psycopg.Connection, tmp_path: Path
) -> None:
    """Whoever may commit to a table could have us delete what is not its own."""
    other = tmp_path / "other.metadata.json"
    shutil.copy(pointer(lake).metadata_location.removeprefix("file://"), other)
    run(
        lake.catalog,
        "insert into frostline.former_lake_state values (%s, %s, now())",
        (pointer(lake).id, f"file://{other}"),
    )
    age(lake)
    expired(lake)
    assert other.exists()
    assert value(lake.catalog, "select count(*) from frostline.former_lake_state") == 1
    assert session.execute(ROWS).fetchall()
