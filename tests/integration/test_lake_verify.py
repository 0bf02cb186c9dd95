"""`frostline verify` of lake tables: whatever happens to a file is found and named, and nothing else is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from tests.fixtures.catalogserver import serving
from tests.fixtures.command import Command
from tests.fixtures.damage import DAMAGES, damaged, rewriting
from tests.fixtures.lake import Lake

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.lake import lake_commit, lake_rows, lake_table, paths, snapshots
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import Layout, State
from frostline.model.names import Name
from frostline.pipeline import lake_tables, lake_verify
from frostline.pipeline.lake_verify import Report

COLUMNS = (
    "id bigint not null",
    "ts timestamptz",
    "day date",
    "kind text",
    "price numeric(9,2)",
    "flag boolean",
    "raw bytea",
)
LAYOUT = Layout(["month(ts)", "day", "truncate(2, kind)", "bucket(3, price)", "flag", "bucket(4, raw)"], ["id"])
FILL = """
insert into readings
select n, case when n %% 5 > 0 then timestamptz '1969-12-01 00:00+00' + n * interval '20 days' end, date '2024-01-01' + n %% 2,
       (array['even', 'odd', null, 'é€x'])[1 + n %% 4], n / 3.0, n %% 3 = 0, int4send(n %% 3)
  from generate_series(%s::int, %s::int) n
"""


@pytest.fixture
def readings(lake: Lake) -> Lake:
    """A table with data and delete files in many partitions, and some history."""
    lake_tables.create(lake.catalog, lake.settings, Name("public", "readings"), COLUMNS, LAYOUT)
    with lake.connect() as session:
        session.execute(FILL, (1, 12))
        session.execute(FILL, (13, 24))
        session.execute("delete from readings where id in (2, 3, 13, 24)")
        session.execute("insert into readings (id, day) select n, '2024-01-01' from generate_series(100, 104) n")
        session.execute("insert into readings values (30, 'infinity', '-infinity', 'None', 0, null, null)")
    return lake


def pointer(lake: Lake, table: str = "readings") -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", table))


def state(lake: Lake) -> State:
    return lake_table.state(pointer(lake).metadata_location)


def verified(lake: Lake, table: str = "readings", *, history: bool = False) -> Report:
    return lake_verify.run(lake.catalog, pointer(lake, table), history=history)


def place(location: str) -> Path:
    return Path(lake_rows.local(location))


def named(report: Report) -> dict[str, str]:
    """What is wrong, by the file's name."""
    return {fault.where.rpartition("/")[2]: fault.what for fault in report.faults}


def files_of(lake: Lake) -> dict[str, str]:
    """A file of each kind."""
    location = pointer(lake).metadata_location
    snapshot = snapshots.metadata_now(location).current_snapshot()
    assert snapshot is not None
    io = paths.file_io(location)
    return {
        "metadata": location,
        "manifest list": snapshot.manifest_list,
        "manifest": snapshots.manifests(snapshot, io)[0].manifest_path,
        "data": next(iter(state(lake).data)),
        "deletes": next(iter(state(lake).deletes)),
    }


def test_a_sound_table_has_no_fault_whoever_has_written_it(lake: Lake, readings: Lake) -> None:
    with serving(lake.dsn, lake.settings.warehouse) as rest:
        table = rest.client(write=True).load_table("public.readings")
        table.append(table.scan(row_filter="id < 20 or id > 99").to_arrow())
    now = state(readings)
    report = verified(readings)
    assert (report.files, report.faults) == (len(now.data) + len(now.deletes), ())
    assert report.rows == sum(file.record_count for file in now.data.values())
    assert verified(readings, history=True).faults == ()
    lake_tables.create(lake.catalog, lake.settings, Name("public", "empty"), COLUMNS, Layout())
    assert verified(lake, "empty", history=True) == Report(pointer(lake, "empty"), 0, 0, ())


@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest", "data", "deletes"])
def test_what_is_damaged_or_gone_is_named(readings: Lake, kind: str) -> None:
    file = place(files_of(readings)[kind])
    for change in ("cut short", "emptied", "zeroed"):
        with damaged(file, DAMAGES[change]):
            assert set(named(verified(readings))) == {file.name}, change
    content = file.read_bytes()
    file.unlink()
    assert named(verified(readings)) == {file.name: "is missing"}
    file.write_bytes(content)
    assert verified(readings).faults == ()


def test_of_former_states_files_are_looked_at_where_that_is_wanted(readings: Lake) -> None:
    before = files_of(readings)
    with readings.connect() as session:
        session.execute("delete from readings")
    for kind in ("metadata", "manifest list"):
        file = place(before[kind])
        content = file.read_bytes()
        file.unlink()
        assert verified(readings).faults == ()
        assert named(verified(readings, history=True)) == {file.name: "is missing"}
        file.write_bytes(content)


def without_ids(data: pa.Table) -> pa.Table:
    schema: Any = data.schema
    return data.cast(pa.schema([field.remove_metadata() for field in schema]))


REWRITTEN: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a row less": (lambda data: data.slice(1), "rows instead of"),
    "no field ids": (without_ids, "its columns have no field ids"),
    "a value less": (
        lambda data: data.set_column(0, data.schema.field(0).with_nullable(True), pa.nulls(data.num_rows, pa.int64())),
        "NULLs in the column with field id 1 instead of 0",
    ),
    "rows of another partition": (
        lambda data: data.set_column(2, data.schema.field(2), pa.array([7] * data.num_rows, pa.date32())),
        "has rows of other partitions than",
    ),
}


@pytest.mark.parametrize("change", REWRITTEN)
def test_a_valid_file_with_other_rows_is_found(readings: Lake, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same size, as far as its metadata tells."""
    path, file = next((path, file) for path, file in state(readings).data.items() if file.record_count > 1)
    rewrite, message = REWRITTEN[change]
    with damaged(place(path), rewriting(rewrite)):
        assert "bytes instead of" in named(verified(readings))[place(path).name]
        monkeypatch.setattr(paths, "size_bytes", lambda _: file.file_size_in_bytes)
        monkeypatch.setattr(lake_verify._Reading, "_read", _without_sizes)
        assert message in "; ".join(fault.what for fault in verified(readings).faults if fault.where == path)


def _without_sizes(reading: Any, path: str, _: int | None, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except lake_verify.CorruptionError as error:
        reading._fault(path, error.message)


def commit(lake: Lake, added: Added) -> None:
    staged = lake_commit.stage(pointer(lake).id, state(lake), added)
    catalog.commit(lake.catalog, [staged.move])


def test_deleted_places_beyond_a_file_and_in_another_partition_are_found(readings: Lake) -> None:
    now = state(readings)
    (first, file), (second, other), *_ = now.data.items()
    (wrong,) = lake_rows.write_deletes(now.metadata, {first: file}, {first: {0, file.record_count}})
    commit(readings, Added(deletes=[wrong]))
    report = verified(readings)
    assert [fault.what for fault in report.faults] == [
        f"names row {file.record_count} of {first}, which has {file.record_count}"
    ]
    elsewhere = DataFile.from_args(partition=other.partition)
    elsewhere.spec_id = other.spec_id
    (stray,) = lake_rows.write_deletes(now.metadata, {first: elsewhere}, {first: {0}})
    commit(readings, Added(deletes=[stray]))
    assert f"is in another partition than {first}" in named(verified(readings))[place(stray.file_path).name]
    assert second != first


def test_what_expires_while_it_is_read_is_no_fault(readings: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = place(files_of(readings)["metadata"])
    with readings.connect() as session:

        def commit_and_expire(*_: object) -> None:
            monkeypatch.undo()
            session.execute("delete from readings where id = 1")
            gone.unlink()

        look = lake_verify._Reading.report

        def report(reading: Any, *, history: bool) -> Report:
            commit_and_expire()
            return look(reading, history=history)

        monkeypatch.setattr(lake_verify._Reading, "report", report)
        assert verified(readings).faults == ()


def test_the_command_checks_all_or_what_is_named_and_says_so_with_its_exit_code(
    readings: Lake, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", readings.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(readings.warehouse))
    for words in (["verify"], ["verify", "readings", "--history"]):
        said = command(*words, "--output", "json")
        (record,) = json.loads(said.stdout)
        assert (said.exit_code, record["table"], record["faults"]) == (0, "public.readings", [])
    file = place(files_of(readings)["data"])
    with damaged(file, DAMAGES["cut short"]):
        said = command("verify", "readings", "--output", "json")
        (record,) = json.loads(said.stdout)
        assert (said.exit_code, len(record["faults"])) == (1, 1)
        assert file.name in record["faults"][0]
        with readings.connect() as session, pytest.raises(psycopg.Error, match=file.stem):
            session.execute("select sum(id) from readings")


def test_a_delete_file_that_is_damaged_is_named_by_a_query_too(readings: Lake) -> None:
    file = place(files_of(readings)["deletes"])
    refused = pytest.raises(psycopg.Error, match=file.name)
    with damaged(file, DAMAGES["zeroed"]), readings.connect() as session, refused:
        session.execute("select sum(id) from readings")
    assert pq.read_table(file).num_rows > 0
