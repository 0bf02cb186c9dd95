"""What a job or a question does must not grow with the lake: counts of work, and what may not be forgotten for them."""

from dataclasses import replace

import pytest
from pyiceberg.manifest import ManifestFile
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import lake_files, seams
from frostline.catalog.connect import Connection
from frostline.errors import CorruptionError, UsageError
from frostline.lake import snapshots
from frostline.model.partitions import Partition
from frostline.model.tables import Seam, Table
from frostline.observe import status
from frostline.relation import bound, heap, removal

LAKE = "frostline_lake.events_1"
STATISTICS = f"select min(xmin::text) from pg_statistic where starelid = '{LAKE}'::regclass"
KNOWN_ROWS = f"""
select sum(c.reltuples)::bigint from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = '{LAKE}'::regclass and c.relkind = 'f'"""
TOTALS = "select files, rows, size_bytes from frostline.lake_total"
RECORDS = (
    "select count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(size_bytes), 0)::bigint from frostline.lake_file"
)

COPY_OF_ONE = """
select table_id, path || 'x', rows, size_bytes, lower, upper, hash_sum, job_id
  from frostline.lake_file order by lower desc limit 1"""


@pytest.fixture
def events(lake: Lake) -> Lake:
    """Three months of 200 rows, all in the lake only."""
    make_archived_events(lake, months=3, rows_a_month=200)
    return lake


def one_more(lake: Lake, month: int, rows: int, *, archive: bool = True) -> None:
    """A month of so many rows, which goes into the lake."""
    values = f"for values from ('2024-{month:02}-01') to ('2024-{month + 1:02}-01')"
    run(lake.catalog, f"create table public.events_{month} partition of public._events {values}")
    run(lake.catalog, f"insert into public.events (ts) select '2024-{month:02}-05' from generate_series(1, {rows})")
    if archive:
        assert lake.archive()[0].error is None


@pytest.mark.slow
def test_only_an_archive_of_much_analyzes_the_whole_lake(events: Lake) -> None:
    before = value(events.catalog, STATISTICS)
    one_more(events, 4, 50)
    assert value(events.catalog, STATISTICS) == before
    one_more(events, 5, 50)
    assert value(events.catalog, STATISTICS) != before
    assert value(events.catalog, KNOWN_ROWS) == 650  # the 50 were merged into them afterwards


@pytest.mark.slow
def test_what_is_known_of_the_rows_outlives_the_merging_of_foreign_tables(events: Lake) -> None:
    one_more(events, 4, 50)
    assert value(events.catalog, "select count(*) from pg_foreign_table") == 1
    assert value(events.catalog, KNOWN_ROWS) == 600
    assert value(events.catalog, "select count(*) from public.events") == 650


def test_an_attached_foreign_table_has_statistics_of_its_own_until_it_is_merged(events: Lake) -> None:
    one_more(events, 4, 50, archive=False)
    with events.connect() as reader, reader.transaction():
        run(reader, "select count(*) from public.events")
        events.archive()
        assert value(events.catalog, "select count(*) from pg_foreign_table") == 2
        assert value(events.catalog, KNOWN_ROWS) == 650


@pytest.mark.slow
def test_merging_foreign_tables_waits_for_nobody_who_holds_a_heap_partition(events: Lake) -> None:
    """It holds the lake table, so that every reader would wait with it."""
    one_more(events, 4, 50, archive=False)
    with events.connect() as reader, reader.transaction():
        run(reader, "select count(*) from public.events")
        events.archive()
    run(
        events.catalog,
        "create table public.events_5 partition of public._events for values from ('2024-05-01') to ('2024-06-01')",
    )
    with events.connect() as other, other.transaction():
        run(other, "lock table public.events_5 in access exclusive mode")
        run(events.catalog, "set lock_timeout = '1s'")
        assert bound.merge(events.catalog, events.table())
    assert value(events.catalog, "select count(*) from pg_foreign_table") == 1
    assert value(events.catalog, "select count(*) from public.events") == 650


def test_the_empty_partition_of_an_earlier_version_comes_to_the_lower_end(events: Lake) -> None:
    """At the upper end it is part of every hot plan."""
    lake, empty = (f'frostline_lake."{events.table().internal}{suffix}"' for suffix in ("", " nothing"))
    foreign = value(events.catalog, "select ftrelid::regclass::text from pg_foreign_table")
    run(
        events.catalog,
        f"drop table {empty}; alter table {lake} detach partition {foreign};"
        f"create table {empty} partition of {lake} for values from ('infinity') to (maxvalue);"
        f"alter table {lake} attach partition {foreign} for values from (minvalue) to ('2024-04-01 00:00+00')",
    )
    one_more(events, 4, 50)
    bound_of = "select pg_get_expr(relpartbound, oid) from pg_class where oid = '{}'::regclass"
    assert value(events.catalog, bound_of.format(empty)) == "FOR VALUES FROM (MINVALUE) TO ('-infinity')"
    assert value(events.catalog, "select count(*) from pg_foreign_table") == 1
    assert value(events.catalog, "select count(*) from public.events") == 650
    assert not bound.merge(events.catalog, events.table())


@pytest.mark.slow
def test_after_many_small_archives_the_merged_table_is_analyzed(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=4)
    fill_events(lake.catalog, months=4, rows_a_month=200)
    lake.add()
    replace(lake, settings=lake.settings.model_copy(update={"archive_batch_bytes": 1})).archive()
    assert value(lake.catalog, "select count(*) from pg_foreign_table") == 1
    assert value(lake.catalog, KNOWN_ROWS) == 800


@pytest.mark.slow
def test_tables_whose_names_differ_only_at_their_ends_are_archived_side_by_side(lake: Lake) -> None:
    for ending in ("eu", "us"):
        name = f"public.customer_interaction_events_history_{ending}"
        make_events(lake.catalog, name, months=1)
        run(lake.catalog, f"insert into {name} (ts) values ('2024-01-05')")
        lake.add(name)
        assert lake.archive(name)[0].error is None
    names = rows(lake.catalog, "select c.relname from pg_foreign_table f join pg_class c on c.oid = f.ftrelid")
    assert len(names) == 2
    assert all(len(name) <= 63 for (name,) in names)


def test_a_table_with_cold_rows_is_not_removed_even_if_the_totals_are_wrong(events: Lake) -> None:
    run(events.catalog, "delete from frostline.lake_total")
    with pytest.raises(UsageError, match="has 600 rows in the lake"):
        removal.remove(events.catalog, events.table().name, keep_lake=False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The manifests that are opened."""
    statements: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(manifest: ManifestFile, *arguments: object, **options: object) -> object:
        statements.append(manifest.manifest_path)
        return fetch(manifest, *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    for known in (snapshots.files, snapshots._manifest_files):  # pyright: ignore[reportPrivateUsage]
        known.cache_clear()
    return statements


@pytest.mark.slow
def test_clean_opens_only_manifests_of_its_range(events: Lake, opened: list[str]) -> None:
    run(events.catalog, "update frostline.managed_table set grace_period = '1 day'")
    one_more(events, 4, 10)
    one_more(events, 5, 10)
    run(events.catalog, "update frostline.managed_table set grace_period = '0'")
    snapshots._manifest_files.cache_clear()  # pyright: ignore[reportPrivateUsage]
    opened.clear()
    assert events.clean().emptied == ("public.events_4", "public.events_5")
    assert len(opened) == 2
    assert len(snapshots.files(*_current(events))) == 5


def _current(lake: Lake) -> tuple[str, int, int]:
    location, snapshot = lake.catalog.execute("select metadata_location, snapshot_id from frostline.seam").fetchall()[0]
    return location, snapshot, lake.table().column("ts").field_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            "delete from frostline.lake_file where lower = (select max(lower) from frostline.lake_file)",
            "never recorded",
        ),
        (
            f"insert into frostline.lake_file {COPY_OF_ONE}",
            "not in the lake snapshot",
        ),
    ],
)
def test_clean_refuses_when_the_files_of_its_range_are_not_those_recorded(events: Lake, spoil: str, said: str) -> None:
    run(events.catalog, "update frostline.managed_table set grace_period = '1 day'")
    one_more(events, 4, 10)
    run(events.catalog, "update frostline.managed_table set grace_period = '0'")
    run(events.catalog, spoil)
    with pytest.raises(CorruptionError, match=said):
        events.clean()
    assert value(events.catalog, "select count(*) from public.events_4") == 10


@pytest.mark.slow
def test_the_totals_are_those_of_the_records_whatever_changes_them(events: Lake) -> None:
    def check() -> None:
        assert events.catalog.execute(TOTALS).fetchone() == events.catalog.execute(RECORDS).fetchone()

    check()
    run(events.catalog, "update public.events set status = 'changed' where id in (3, 300)")
    assert events.fold()[0].error is None
    check()
    one_more(events, 4, 10)
    check()
    run(events.catalog, "update frostline.lake_file set rows = rows + 1, size_bytes = size_bytes + 2")
    check()
    run(
        events.catalog,
        "update frostline.job set schema_name = 'public', table_name = 'events'; delete from frostline.managed_table",
    )
    assert value(events.catalog, "select count(*) from frostline.lake_total") == 0


@pytest.mark.slow
def test_status_reads_the_records_only_of_lake_partitions_that_changed(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = lake_files.within
    seen: list[int] = []

    def counted(*arguments: object) -> object:
        partitions = read(*arguments)  # pyright: ignore[reportArgumentType]
        seen.append(len(partitions))
        return partitions

    monkeypatch.setattr(lake_files, "within", counted)
    monkeypatch.setattr(lake_files, "recorded", None)
    status.of_table(events.catalog, events.table())
    assert seen == []
    run(
        events.catalog,
        "update frostline.lake_file set size_bytes = size_bytes where lower = (select max(lower) from frostline.lake_file)",
    )
    status.of_table(events.catalog, events.table())
    assert seen == [1]


def test_small_files_of_a_lake_partition_are_found_though_they_came_one_by_one(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=50)
    lake.add(lake_partition="year")
    lake.archive()
    assert not lake_files.due_merges(lake.catalog, lake.table())
    one_more(lake, 4, 5)
    assert not lake_files.due_merges(lake.catalog, lake.table())
    one_more(lake, 5, 5)
    assert [len(files) for files in lake_files.due_merges(lake.catalog, lake.table())] == [5]
    assert lake.compact()[0].error is None
    assert not lake_files.due_merges(lake.catalog, lake.table())


@pytest.mark.slow
def test_another_target_size_makes_every_file_count_again(events: Lake) -> None:
    run(events.catalog, "update frostline.managed_table set target_file_size = target_file_size * 2")
    assert not lake_files.due_merges(events.catalog, events.table())
    lake_files.settle_merges(events.catalog, events.table())
    target = events.table().policy.target_file_size
    assert value(events.catalog, "select settled_for from frostline.lake_total") == target


def test_status_reads_the_seam_and_the_partitions_of_a_table_once(
    events: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(events.catalog, "update frostline.managed_table set premake = 2, retention_interval = '10 years'")
    asked = {"seam": 0, "partitions": 0}
    seam, partitions = seams.get, heap.partitions

    def counted_seam(connection: Connection, table: Table) -> Seam:
        asked["seam"] += 1
        return seam(connection, table)

    def counted_partitions(connection: Connection, table: Table, *, sizes: bool = True) -> list[Partition]:
        asked["partitions"] += 1
        return partitions(connection, table, sizes=sizes)

    monkeypatch.setattr(seams, "get", counted_seam)
    monkeypatch.setattr(heap, "partitions", counted_partitions)
    assert len(status.read(events.catalog).tables) == 1
    assert asked == {"seam": 1, "partitions": 1}
