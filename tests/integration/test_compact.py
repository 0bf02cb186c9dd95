"""Compact: small lake files become larger ones, and nobody who reads or writes can tell."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
from tests.fixtures.cold_twins import APRIL, MARCH, both, change, compare, make_archived, shown, while_staging
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events
from tests.fixtures.type_zoo import EVERY_KIND, OPTIONAL, SETUP

from frostline.catalog import lake_files, seams
from frostline.errors import CorruptionError
from frostline.lake import ducksql, paths, snapshots
from frostline.model import upkeep
from frostline.model.policy import MIN_FILE_SIZE
from frostline.model.tables import RecordedFile
from frostline.pipeline import compact, verify
from frostline.pipeline import spark as pipeline_spark

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.events e"


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Three months of rows in the lake only, in three files of one lake partition; and a plain table with the same."""
    make_archived(lake, grace="0", lake_partition="year")
    lake.clean()
    return lake


@pytest.fixture
def reader(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


def files(lake: Lake, name: str = "events") -> list[RecordedFile]:
    return lake_files.recorded(lake.catalog, lake.table(name))


def local(file: RecordedFile) -> Path:
    path = paths.local_path(file.path)
    assert path is not None
    return path


def test_the_files_of_a_lake_partition_become_one_that_is_sorted(cold: Lake) -> None:
    before = files(cold)
    (result,) = cold.compact()
    assert (result.error, result.merged_files, result.written_files) == (None, 3, 1)
    compare(cold)
    (all_files,) = files(cold)
    assert (all_files.lower, all_files.upper) == (before[0].lower, before[-1].upper)
    times: list[Any] = pq.read_table(local(all_files)).column("ts").to_pylist()
    assert len(times) == 60
    assert times == sorted(times)
    assert verify.run(cold.catalog, cold.table()).faults == ()
    assert all(local(file).exists() for file in before), "older readers need them"


def test_a_second_run_does_nothing(cold: Lake) -> None:
    cold.compact()
    seam, count = seams.get(cold.catalog, cold.table()), cold.value("select count(*) from frostline.job")
    (result,) = cold.compact()
    assert not result.changed
    assert seams.get(cold.catalog, cold.table()) == seam
    assert cold.value("select count(*) from frostline.job") == count


@pytest.mark.slow
def test_merged_files_have_about_the_target_size(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, rows_a_month=400)
    wide = "(select string_agg(md5(random()::text || id || n), '') from generate_series(1, 40) n)"
    run(lake.catalog, f"update public.events set status = {wide}")
    lake.add(lake_partition="year", target_file_size=MIN_FILE_SIZE)
    lake.archive()
    before = lake.value(EVERYTHING)
    old = sorted(file.size_bytes for file in files(lake))
    assert MIN_FILE_SIZE / 8 < old[0] < old[-1] < MIN_FILE_SIZE / 2
    (result,) = lake.compact()
    new = [file.size_bytes for file in files(lake)]
    assert (result.merged_files, len(new)) == (6, result.written_files)
    assert len(new) == 2
    assert all(size < 1.2 * MIN_FILE_SIZE for size in new)
    assert lake.value(EVERYTHING) == before
    assert lake.compact()[0].written_files == 0


@pytest.mark.slow
def test_lake_partitions_stay_apart(lake: Lake) -> None:
    make_archived(lake, grace="0", lake_partition="month")
    lake.clean()
    (result,) = lake.compact()
    assert not result.changed
    assert len(files(lake)) == 3


def test_a_worker_compacts_what_is_due_only(cold: Lake) -> None:
    table = cold.table()
    done = compact.compact_table(cold.jobs(), table, only_due=True)
    assert not done.changed
    assert len(files(cold)) == 3
    assert compact.plan(cold.catalog, table).files == 3


@pytest.mark.slow
def test_rows_that_changed_stay_changed_and_can_be_folded_and_undone(lake: Lake) -> None:
    make_archived(lake, lake_partition="year")
    change(lake)
    (result,) = lake.compact()
    assert (result.error, result.merged_files) == (None, 3)
    compare(lake)
    lake.fold()
    compare(lake)
    lake.compact()
    assert lake.undo(to=MARCH).trimmed_files == 1
    compare(lake)
    run(lake.catalog, "update frostline.managed_table set held_from = null, grace_period = '0'")
    lake.archive()
    lake.compact()
    compare(lake)
    assert verify.run(lake.catalog, lake.table()).faults == ()


def test_a_reader_from_before_keeps_what_it_sees(cold: Lake, reader: psycopg.Connection) -> None:
    reader.execute("begin isolation level repeatable read")
    before = shown(reader)
    cold.compact()
    with cold.connect() as connection:
        both(connection, "delete from public.{t} where id < 30")
    cold.fold()
    assert shown(reader) == before
    reader.execute("commit")
    assert shown(reader) == shown(reader, "plain") != before


def test_a_row_changed_while_it_runs_is_not_lost(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = [
        "update public.{t} set status = 'meanwhile' where id in (1, 41)",
        "delete from public.{t} where id = 2",
        "insert into public.{t} (id, ts, status) values (600, '2024-02-20', 'meanwhile')",
    ]
    while_staging(cold, monkeypatch, statements)
    (result,) = cold.compact()
    assert (result.error, result.written_files, statements) == (None, 1, [])
    compare(cold)
    cold.fold()
    compare(cold)


def test_an_update_that_read_the_old_files_is_refused_or_right(cold: Lake, reader: psycopg.Connection) -> None:
    """It found its row at the old S; a fold may have run since, so it must look again."""
    reader.execute("begin isolation level repeatable read")
    shown(reader)
    cold.compact()
    with pytest.raises(psycopg.errors.SerializationFailure):
        reader.execute("update public.events set status = 'x' where id = 1")
    reader.execute("rollback")
    both(reader, "update public.{t} set status = 'x' where id = 1")
    compare(cold)


def _garbage(file: RecordedFile, _lake: Lake) -> None:
    content = bytearray(local(file).read_bytes())
    content[4:200] = bytes(196)
    local(file).write_bytes(content)


def _another_value(file: RecordedFile, lake: Lake) -> None:
    """A whole Parquet file with one value changed."""
    table, target = lake.table(), str(local(file))
    ids = ", ".join(f"{ducksql.literal(column.name)}: {column.field_id}" for column in table.columns)
    with duckdb.connect() as connection:
        connection.execute(f"create table t as from read_parquet({ducksql.literal(target)})")
        connection.execute("update t set status = 'forged' where id = 21")
        connection.execute(f"copy t to {ducksql.literal(target)} (format parquet, field_ids {{{ids}}})")


def _no_file(file: RecordedFile, _lake: Lake) -> None:
    local(file).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_garbage, _another_value, _no_file])
def test_a_damaged_file_stops_it_and_is_named(cold: Lake, damage: Callable[[RecordedFile, Lake], None]) -> None:
    before, seam = files(cold), seams.get(cold.catalog, cold.table())
    sound = local(before[1]).read_bytes()
    damage(before[1], cold)
    (result,) = cold.compact()
    assert isinstance(result.error, CorruptionError), result.error
    assert before[1].path in str(result.error)
    assert (files(cold), seams.get(cold.catalog, cold.table())) == (before, seam)
    local(before[1]).write_bytes(sound)
    (result,) = cold.compact()
    assert result.error is None
    assert len(cold.data_files()) == 4, "what the failed job wrote is gone"
    compare(cold)


@pytest.mark.slow
def test_a_new_file_with_other_rows_is_never_published(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = compact.copying.rows
    monkeypatch.setattr(compact.copying, "rows", lambda table, chosen: real(table, chosen[1:]))
    (piece,) = upkeep.merges(cold.table(), files(cold))
    location = paths.table_location(cold.settings.warehouse, cold.table())
    with pytest.raises(CorruptionError, match=r"40 rows .* but 60"):
        compact.merge_files(compact.Merge(cold.table(), piece, location, 99, "256MB"))


@pytest.mark.slow
def test_every_value_survives(lake: Lake) -> None:
    run(lake.catalog, SETUP)
    kinds = [kind for kind in EVERY_KIND if kind.name not in OPTIONAL]
    columns = ", ".join(f"{kind.column} {kind.type}" for kind in kinds)
    run(lake.catalog, f"create table public.zoo (id int primary key, {columns}) partition by range (id)")
    for number in range(4):
        bounds = f"from ({number * 5}) to ({number * 5 + 5})" if number < 3 else "from (100) to (2000)"
        run(lake.catalog, f"create table public.zoo_{number} partition of public.zoo for values {bounds}")
    places = ", ".join(f"%s::text::{kind.type.partition(' collate ')[0]}" for kind in kinds)
    for number in range(15):
        given = [kind.values[number] if number < len(kind.values) else None for kind in kinds]
        run(lake.catalog, f"insert into public.zoo values ({number}, {places})", given)
    run(lake.catalog, "insert into public.zoo (id) values (1000)")
    run(lake.catalog, "create table public.plain as table public.zoo")
    lake.add("zoo", hot="500", lake_partition="truncate[1024]")
    assert lake.archive("zoo")[0].partitions == 3
    (result,) = lake.compact("zoo")
    assert (result.error, result.merged_files, result.written_files) == (None, 3, 1)
    query = "select id, t::text from public.{} t order by id"
    with lake.connect() as connection:
        assert rows(connection, query.format("zoo")) == rows(connection, query.format("plain"))


@pytest.mark.slow
def test_many_manifests_become_few(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.settings = lake.settings.model_copy(update={"archive_batch_bytes": 1})
    lake.add()
    lake.archive()
    before = lake.value(EVERYTHING)
    seam = seams.get(lake.catalog, lake.table())
    monkeypatch.setattr(upkeep, "MANY_MANIFESTS", 5)
    assert compact.plan(lake.catalog, lake.table()).manifests == 6
    (result,) = lake.compact()
    assert (result.error, result.written_files, result.replaced_manifests) == (None, 0, 6)
    assert result.written_manifests == 1
    assert lake.value("select manifests from frostline.lake_state where replaced_at is null") == 1
    assert lake.value(EVERYTHING) == before
    after = seams.get(lake.catalog, lake.table())
    tier = lake.table().column("ts").field_id
    assert snapshots.files(after.metadata_location or "", after.snapshot_id or 0, tier) == snapshots.files(
        seam.metadata_location or "", seam.snapshot_id or 0, tier
    )
    assert verify.run(lake.catalog, lake.table()).faults == ()
    assert not lake.compact()[0].changed
    detail = lake.value("select detail from frostline.job where kind = 'compact'")
    assert detail == "6 manifests became 1"


def test_the_command_says_what_it_would_do_and_then_what_it_did(
    cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    session = cold.session()
    monkeypatch.setattr(pipeline_spark, "session", lambda *_, **__: session)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _: None)
    before = files(cold)
    (planned,) = _said(command("compact", "--dry-run", "--output", "json"))
    assert (planned["merged_files"], planned["written_files"]) == (3, 1)
    assert planned["read_bytes"] == sum(file.size_bytes for file in before)
    assert files(cold) == before
    (done,) = _said(command("compact", "events", "--output", "json"))
    assert done == {
        "table": "public.events",
        "merged_files": 3,
        "written_files": 1,
        "replaced_manifests": 0,
        "written_manifests": 0,
        "error": None,
    }
    (job, *_) = _said(command("jobs", "events", "--output", "json"))
    assert (job["kind"], job["state"], job["rows"], job["detail"]) == ("compact", "published", 60, "3 files became 1")
    compare(cold)


def _said(said: Any) -> list[dict[str, Any]]:
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


@pytest.mark.slow
def test_the_frost_line_stays(cold: Lake) -> None:
    before = seams.get(cold.catalog, cold.table())
    cold.compact()
    after = seams.get(cold.catalog, cold.table())
    assert after.frost_line == before.frost_line
    assert after.snapshot_id != before.snapshot_id
    with cold.connect() as connection:
        both(connection, f"insert into public.{{t}} (id, ts) values (700, '{APRIL}')")
    compare(cold)
