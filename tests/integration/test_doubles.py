"""Keys that stand in two places: verify says which, and a fold refuses to choose between two rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.fixtures.damage import record_as_sound, rewriting, with_row_of
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.catalog import lake_files
from frostline.pipeline import doubles, verify
from frostline.pipeline.verify import Fault


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Three months that are only in the lake; February has two files, the second of them with one row."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=100)
    lake.add()
    assert [result.error for result in lake.archive()] == [None]
    run(lake.catalog, "insert into public.events (ts, status) values ('2024-02-10+00', 'late')")
    assert [result.error for result in lake.fold()] == [None]
    return lake


def february(lake: Lake) -> tuple[Path, Path]:
    """Its large file and its small one."""
    recorded = lake_files.recorded(lake.catalog, lake.table())
    (small,) = (file for file in recorded if file.fingerprint.rows == 1)
    (large,) = (file for file in recorded if file is not small and file.lower <= small.lower <= file.upper)
    return Path(large.path.removeprefix("file://")), Path(small.path.removeprefix("file://"))


def change(lake: Lake, file: Path, content: bytes) -> None:
    """Let it look as if it had been written so."""
    file.write_bytes(content)
    record_as_sound(lake, file)
    lake.server.backend.tables.managed._checksums.clear()  # type: ignore[attr-defined]


def faults(lake: Lake) -> list[Fault]:
    return list(verify.run(lake.catalog, lake.table()).faults)


def test_a_lake_without_doubles_passes(cold: Lake) -> None:
    assert faults(cold) == []


def test_a_key_in_two_files_is_named_with_both(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = february(cold)
    change(cold, small, rewriting(with_row_of(large, 150))(small.read_bytes()))
    (fault,) = faults(cold)
    assert {Path(fault.where).name, fault.what.partition(".parquet")[0].rpartition("/")[2] + ".parquet"} == {
        large.name,
        small.name,
    }
    assert "has 1 keys that are also in" in fault.what
    assert "(id, ts) = (150, 2024-02-" in fault.what
    monkeypatch.setattr(doubles, "_PASS_ROWS", 10)
    assert faults(cold) == [fault]  # in several passes, as for a large lake


@pytest.mark.slow
def test_a_key_twice_in_one_file_is_named(cold: Lake) -> None:
    large, _ = february(cold)
    change(cold, large, rewriting(with_row_of(large, 150))(large.read_bytes()))
    (fault,) = faults(cold)
    assert Path(fault.where).name == large.name
    assert "has 1 keys twice: (id, ts) = (150," in fault.what


@pytest.mark.slow
def test_two_rows_whose_keys_differ_only_in_the_tier_key_are_no_double(cold: Lake) -> None:
    large, small = february(cold)

    def shifted(data: pa.Table) -> pa.Table:
        row = with_row_of(large, 150)(data)
        index = row.schema.get_field_index("id")
        return row.set_column(index, row.schema.field(index), pa.array([150, 150], row.schema.field(index).type)).slice(
            0, 1
        )

    change(cold, small, rewriting(shifted)(small.read_bytes()))
    assert faults(cold) == []


def test_a_row_that_the_heap_has_without_a_mark_is_named_with_the_file_that_has_its_key(cold: Lake) -> None:
    large, _ = february(cold)
    run(cold.catalog, 'alter table public.events_default disable trigger "!frostline_mark"')
    run(cold.catalog, "insert into public._events overriding system value select * from public.events where id = 150")
    (fault,) = faults(cold)
    assert fault.where == "public.events_default"
    assert f"has a row without a mark whose key is also in file://{large}: (id, ts) = (150," in fault.what


@pytest.mark.slow
def test_marked_rows_and_partitions_in_their_grace_period_are_no_doubles(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=100)
    lake.add(grace="10 years")
    assert [result.error for result in lake.archive()] == [None]
    run(lake.catalog, "update public.events set status = 'new' where id in (5, 150)")
    assert faults(lake) == []
    assert [result.error for result in lake.fold()] == [None]
    assert faults(lake) == []


@pytest.mark.slow
def test_a_fold_over_a_key_that_the_lake_has_twice_refuses_and_names_the_files(cold: Lake) -> None:
    large, small = february(cold)
    run(cold.catalog, "update public.events set status = 'new' where id = 150")
    change(cold, small, rewriting(with_row_of(large, 150))(small.read_bytes()))
    before = rows(cold.catalog, "select * from frostline.seam")
    (result,) = cold.fold()
    assert "1 marked keys have more than one row in the lake" in str(result.error)
    assert str(large) in str(result.error)
    assert str(small) in str(result.error)
    assert rows(cold.catalog, "select * from frostline.seam") == before
    assert rows(cold.catalog, f"select count(*) from frostline_overlay.{cold.table().internal}") == [(1,)]
