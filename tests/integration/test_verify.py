"""Verify: a sound lake passes; one changed value, one missing row or one touched file does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.pipeline import verify
from frostline.pipeline.verify import Fault, Report

ROWS = 300


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Three months in the lake, and by their long grace period still in the heap too."""
    make_archived_events(lake, months=3, rows_a_month=ROWS, grace="10 years")
    return lake


@pytest.fixture
def lake_only(archived: Lake) -> Lake:
    """Three months that are only in the lake."""
    run(archived.catalog, "update frostline.managed_table set grace_period = '0'")
    assert len(archived.clean().emptied) == 3
    return archived


def verified(lake: Lake) -> Report:
    return verify.run(lake.catalog, lake.table())


def only_fault(lake: Lake) -> Fault:
    (fault,) = verified(lake).faults
    return fault


def change_behind_our_back(lake: Lake, partition: str, change: str) -> None:
    """What only somebody who switches the marking trigger off can do."""
    run(lake.catalog, f'alter table {partition} disable trigger "!frostline_mark"')
    assert run(lake.catalog, change).rowcount == 1
    run(lake.catalog, f'alter table {partition} enable always trigger "!frostline_mark"')


def rewrite(lake: Lake, file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write another file in its place, and forge the recorded size, so that only the fingerprint can tell."""
    changed = change(pq.read_table(file))
    pq.write_table(changed, file, compression="zstd")
    statement = "update frostline.lake_file set size_bytes = %s where path like %s"
    assert run(lake.catalog, statement, [file.stat().st_size, f"%{file.name}"]).rowcount == 1


def with_one_value_changed(data: pa.Table) -> pa.Table:
    position = data.schema.get_field_index("status")
    values: list[Any] = data.column(position).to_pylist()
    values[7] = f"{values[7]}!"
    return data.set_column(position, data.schema.field(position), pa.array(values, data.schema.field(position).type))


def test_a_sound_lake_passes_while_the_heap_still_has_it(archived: Lake) -> None:
    report = verified(archived)
    assert (report.files, report.rows, report.partitions, report.faults) == (3, 3 * ROWS, 3, ())


def test_a_sound_lake_passes_after_the_heap_is_cleaned(lake_only: Lake) -> None:
    report = verified(lake_only)
    assert (report.files, report.rows, report.partitions, report.faults) == (3, 3 * ROWS, 0, ())


def test_a_table_with_nothing_archived_passes(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    assert verified(lake).faults == ()


def test_one_changed_value_in_the_heap_is_noticed(archived: Lake) -> None:
    change_behind_our_back(
        archived, "public.events_2", "update public.events_2 set amount = amount + 0.01 where id = 400"
    )
    fault = only_fault(archived)
    assert fault.where == "public.events_2"
    assert "differs from the lake" in fault.what


@pytest.mark.slow
def test_one_missing_row_in_the_heap_is_noticed(archived: Lake) -> None:
    change_behind_our_back(archived, "public.events_3", "delete from public.events_3 where id = 700")
    assert only_fault(archived).where == "public.events_3"


@pytest.mark.slow
def test_one_row_too_many_in_the_heap_is_noticed(archived: Lake) -> None:
    extra = "insert into public.events_1 overriding system value values (99999, '2024-01-05')"
    change_behind_our_back(archived, "public.events_1", extra)
    assert only_fault(archived).where == "public.events_1"


@pytest.mark.slow
def test_two_values_that_changed_places_are_noticed(archived: Lake) -> None:
    """A sum over columns would not see it."""
    run(archived.catalog, 'alter table public.events_1 disable trigger "!frostline_mark"')
    swap = (
        "update public.events_1 set amount = total - amount from (select sum(amount) as total from public.events_1"
        " where id in (10, 20)) as both_of_them where id in (10, 20)"
    )
    assert run(archived.catalog, swap).rowcount == 2
    assert only_fault(archived).where == "public.events_1"


def test_rows_changed_after_the_archive_are_no_fault(archived: Lake) -> None:
    for change in (
        "update public.events set status = 'changed' where id = 5",
        "update public._events set status = 'changed' where id = 6",
        "delete from public.events where id = 400",
        "update public.events set ts = ts + interval '1 month' where id = 7",
        "insert into public.events (ts, status) values ('2024-02-02', 'late')",
    ):
        assert run(archived.catalog, change).rowcount == 1
    assert verified(archived).faults == ()


@pytest.mark.slow
def test_a_change_next_to_marked_rows_is_still_noticed(archived: Lake) -> None:
    run(archived.catalog, "update public.events set status = 'changed' where id = 5")
    change_behind_our_back(archived, "public.events_1", "update public.events_1 set status = 'forged' where id = 6")
    assert only_fault(archived).where == "public.events_1"


@pytest.mark.parametrize("state", first(1, ["archived", "lake_only"]))
def test_one_changed_value_in_a_file_is_noticed(state: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(state)
    file = lake.data_files()[1]
    rewrite(lake, file, with_one_value_changed)
    fault = only_fault(lake)
    assert fault.where.endswith(file.name)
    assert "other values than were written" in fault.what


def test_one_missing_row_in_a_file_is_noticed(lake_only: Lake) -> None:
    file = lake_only.data_files()[0]
    rewrite(lake_only, file, lambda data: data.slice(1))
    fault = only_fault(lake_only)
    assert fault.where.endswith(file.name)
    assert f"{ROWS - 1} rows instead of {ROWS}" in fault.what


@pytest.mark.slow
def test_a_rewritten_file_with_the_same_values_is_noticed_by_its_checksum_only(lake_only: Lake) -> None:
    """The fingerprint is of the values, not of the bytes. Reads go by the bytes."""
    file = lake_only.data_files()[0]
    rewrite(lake_only, file, lambda data: data.take(list(reversed(range(ROWS)))))
    assert only_fault(lake_only).what == "has other bytes than were written, though its values are the same"
    run(lake_only.catalog, "delete from frostline.file_checksum where path like %s", [f"%{file.name}"])
    assert verified(lake_only).faults == ()


def test_a_deleted_file_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[2]
    file.unlink()
    fault = only_fault(lake_only)
    assert fault.where.endswith(file.name)
    assert fault.what == "is missing"


@pytest.mark.slow
def test_a_truncated_file_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[2]
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[: size // 2])
    fault = only_fault(lake_only)
    assert fault.where.endswith(file.name)
    assert f"instead of {size}" in fault.what


@pytest.mark.slow
def test_a_file_of_the_right_size_that_is_no_parquet_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[2]
    file.write_bytes(bytes(file.stat().st_size))
    fault = only_fault(lake_only)
    assert fault.where.endswith(file.name)
    assert "cannot be read" in fault.what
    assert "\n" not in fault.what


@pytest.mark.slow
def test_a_file_with_flipped_bits_in_the_middle_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[0]
    content = bytearray(file.read_bytes())
    for position in range(200, 240):
        content[position] ^= 0xFF
    file.write_bytes(content)
    assert only_fault(lake_only).where.endswith(file.name)


@pytest.mark.slow
def test_a_file_that_was_never_recorded_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[0]
    run(lake_only.catalog, "delete from frostline.lake_file where path like %s", [f"%{file.name}"])
    fault = only_fault(lake_only)
    assert fault.where.endswith(file.name)
    assert "never recorded" in fault.what


@pytest.mark.slow
def test_a_recorded_file_that_the_snapshot_lacks_is_named(lake_only: Lake) -> None:
    file = lake_only.data_files()[0]
    other = file.with_name("other.parquet")
    other.write_bytes(file.read_bytes())
    run(
        lake_only.catalog,
        "insert into frostline.lake_file select table_id, replace(path, %s, 'other.parquet'), rows, size_bytes, lower,"
        " upper, hash_sum, job_id from frostline.lake_file where path like %s",
        [file.name, f"%{file.name}"],
    )
    fault = only_fault(lake_only)
    assert fault.where.endswith("other.parquet")
    assert "not in the lake snapshot" in fault.what


@pytest.mark.slow
def test_every_fault_is_listed(lake_only: Lake) -> None:
    first, second, _ = lake_only.data_files()
    first.unlink()
    rewrite(lake_only, second, with_one_value_changed)
    assert len(verified(lake_only).faults) == 2


@pytest.fixture
def environment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))


@pytest.mark.usefixtures("environment")
def test_the_command_exits_with_one_and_names_the_file(lake_only: Lake, command: Command) -> None:
    said = command("verify", "events", "--output", "json")
    assert (said.exit_code, json.loads(said.stdout)[0]["faults"]) == (0, [])
    file = lake_only.data_files()[0]
    rewrite(lake_only, file, with_one_value_changed)
    said = command("verify", "events", "--output", "json")
    assert said.exit_code == 1
    (fault,) = json.loads(said.stdout)[0]["faults"]
    assert file.name in fault
    text = command("verify")
    assert text.exit_code == 1
    assert file.name in "".join(text.stdout.split())


@pytest.mark.usefixtures("environment")
def test_the_command_refuses_a_table_that_is_not_managed(command: Command) -> None:
    said = command("verify", "nosuch")
    assert (said.exit_code, said.stdout) == (2, "")
    assert "public.nosuch is not managed" in said.stderr
