"""Engines that know the Iceberg REST protocol and not Frostline: they read and write lake tables through the catalog server."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from tests.fixtures.catalogserver import NUMBERS, Served, numbers, serving
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.other_engines import attached, blocks, load
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.model import snapshot as rules
from frostline.pipeline import snapshot
from frostline.pipeline.snapshot_plan import Request


def ids(table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_pyiceberg_creates_appends_overwrites_evolves_and_drops(rest: Served) -> None:
    catalog = rest.client(write=True)
    catalog.create_namespace("app", {"owner": "me"})
    assert catalog.list_namespaces() == [("app",)]
    assert catalog.load_namespace_properties("app") == {"owner": "me"}
    table = catalog.create_table("app.numbers", NUMBERS)
    assert table.location().startswith(f"file://{rest.settings.warehouse}/~lake/app/numbers-")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("app.numbers", NUMBERS)
    table.append(numbers(1, 2, 3))
    table.append(numbers(4))
    assert ids(catalog.load_table("app.numbers")) == [1, 2, 3, 4]
    table.overwrite(numbers(10, 11, word="other"), overwrite_filter="id = 1")
    table.delete("id = 2")
    assert ids(table) == [3, 4, 10, 11]
    with table.update_schema() as update:
        update.add_column("more", IntegerType())
        update.rename_column("word", "text")
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    with table.transaction() as transaction:
        transaction.set_properties(colour="red")
        transaction.append(pa.Table.from_pylist([{"id": 12, "text": "x", "more": 7}], table.schema().as_arrow()))
    with table.manage_snapshots() as snapshots:
        snapshots.create_tag(table.metadata.current_snapshot_id or 0, "now")
    seen = rest.client().load_table("app.numbers")
    assert seen.schema().column_names == ["id", "text", "more"]
    assert seen.properties["colour"] == "red"
    assert len(seen.spec().fields) == 1
    assert ids(seen) == [3, 4, 10, 11, 12]
    assert set(seen.refs()) == {"main", "now"}
    catalog.create_namespace(("app", "deep"))
    catalog.rename_table("app.numbers", ("app", "deep", "renamed"))
    assert catalog.list_tables(("app", "deep")) == [("app", "deep", "renamed")]
    with pytest.raises(NoSuchTableError):
        catalog.load_table("app.numbers")
    last = catalog.load_table(("app", "deep", "renamed")).metadata_location
    catalog.drop_table(("app", "deep", "renamed"))
    assert not catalog.table_exists(("app", "deep", "renamed"))
    back = catalog.register_table("app.back", last)
    assert ids(back) == [3, 4, 10, 11, 12]


def test_a_table_is_created_with_its_first_rows_or_not_at_all(rest: Served) -> None:
    catalog, other = rest.client(write=True), rest.client(write=True)
    catalog.create_namespace("app")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "word", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
    creation = catalog.create_table_transaction("app.numbers", schema, partition_spec=spec)
    creation.append(numbers(1, 2, 3))
    assert not other.table_exists("app.numbers")
    creation.commit_transaction()
    assert ids(other.load_table("app.numbers")) == [1, 2, 3]
    late = other.create_table_transaction("app.late", NUMBERS)
    catalog.create_table("app.late", NUMBERS)
    with pytest.raises(CommitFailedException):
        late.commit_transaction()


def test_of_two_clients_that_commit_at_once_no_row_is_lost(rest: Served) -> None:
    rest.client(write=True).create_namespace("app")
    first = rest.client(write=True).create_table("app.numbers", NUMBERS, properties={"commit.retry.num-retries": "0"})
    second = rest.client(write=True).load_table("app.numbers")
    first.append(numbers(1))
    with pytest.raises(CommitFailedException, match="branch main"):
        second.append(numbers(2))
    second.refresh()
    second.append(numbers(2))
    first.refresh()

    def write(writer: int) -> list[int]:
        table, kept = rest.client(write=True).load_table("app.numbers"), []
        for number in range(100 * writer, 100 * writer + 8):
            for _ in range(200):
                try:
                    table.append(numbers(number))
                except CommitFailedException:
                    table.refresh()
                    continue
                kept.append(number)
                break
        return kept

    with ThreadPoolExecutor(3) as writers:
        kept = [number for each in writers.map(write, [1, 2, 3]) for number in each]
    assert len(kept) == 24
    assert ids(rest.client().load_table("app.numbers")) == sorted([1, 2, *kept])


def test_changes_that_do_not_touch_are_both_taken(rest: Served) -> None:
    rest.client(write=True).create_namespace("app")
    first = rest.client(write=True).create_table("app.numbers", NUMBERS)
    second = rest.client(write=True).load_table("app.numbers")
    first.append(numbers(1))
    with second.transaction() as transaction:
        transaction.set_properties(colour="red")
    first.refresh()
    assert (first.properties["colour"], ids(first)) == ("red", [1])
    assert isinstance(first.schema().find_type("id"), LongType)


def test_duckdb_attaches_the_catalog_reads_and_writes(rest: Served) -> None:
    client = rest.client(write=True)
    client.create_namespace("app")
    table = client.create_table("app.numbers", NUMBERS)
    table.append(numbers(1, 2, 3))
    with attached(rest) as engine:
        assert engine.execute("select id from lake.app.numbers order by id").fetchall() == [(1,), (2,), (3,)]
        table.delete("id = 2")
        with table.update_schema() as update:
            update.add_column("more", IntegerType())
        assert engine.execute("select id, more from lake.app.numbers order by id").fetchall() == [(1, None), (3, None)]
        engine.execute("insert into lake.app.numbers (id, more) values (4, 40)")
        engine.execute("create table lake.app.made as select 7 as id")
        engine.execute(
            "begin; insert into lake.app.made values (8); insert into lake.app.numbers (id) values (8); commit"
        )
        engine.execute("delete from lake.app.made where id = 7")
        engine.execute("begin; insert into lake.app.made values (9); rollback")
        assert engine.execute("select id from lake.app.made").fetchall() == [(8,)]
    assert ids(client.load_table("app.numbers")) == [1, 3, 4, 8]
    assert ids(client.load_table("app.made")) == [8], "PyIceberg reads DuckDB's position deletes"


def test_the_code_of_the_guide_works(rest: Served) -> None:
    code = blocks("python", "catalog-server.md")
    assert list(code) == ["PyIceberg", "DuckDB"]
    names: dict[str, Any] = {"uri": rest.uri, "token": rest.token(write=True), "rows": numbers(1, 2), "load": load}
    exec(code["PyIceberg"], names)
    exec(code["DuckDB"].replace('engine.execute("load httpfs; load iceberg")', "load(engine)"), names)
    assert names["rows"] == [(1, "new"), (2, "new"), (7, "from DuckDB")]


def create_snapshot(lake: Lake) -> None:
    request = Request("nightly", tuple(rules.parse_patterns(["public.*"])))
    snapshot.create(lake.catalog, lake.session, lake.settings, request, lambda *_: None)


@pytest.mark.spark
def test_tiered_tables_and_snapshots_are_read_by_all_and_written_by_frostline_only(
    lake: Lake, make_role: Callable[[str], str]
) -> None:
    make_events(lake.catalog, "public.events", months=2)
    fill_events(lake.catalog, months=2, rows_a_month=20)
    lake.add(hot="1 month")
    assert lake.archive()[0].error is None
    create_snapshot(lake)
    events, reader = lake.table().internal, make_role("reader")
    with serving(lake.dsn, lake.settings.warehouse) as rest:
        client = rest.client(reader)
        assert client.list_namespaces() == [("nightly",), ("public",)]
        assert client.list_tables("public") == [] == client.list_tables(("nightly", "public"))
        with pytest.raises(ForbiddenError, match="needs SELECT"):
            client.load_table(("public", events))
        run(lake.catalog, "grant select on public.events to reader")
        assert client.list_tables("public") == [("public", events)]
        assert client.list_tables(("nightly", "public")) == [("nightly", "public", "events")]
        cold = client.load_table(("public", events))
        assert (
            len(cold.scan().to_arrow())
            == 40
            == len(client.load_table(("nightly", "public", "events")).scan().to_arrow())
        )
        with lake.connect() as connection:
            run(connection, "delete from events where id % 2 = 0")
        lake.fold()
        assert len(cold.refresh().scan().to_arrow()) == 20
        with attached(rest) as engine:
            assert engine.execute(f"select count(*) from lake.public.{events}").fetchall() == [(20,)]
        refuse_writing(lake, rest, events)
        run(
            lake.catalog,
            "alter table public._events enable row level security; create policy p on public._events using (id < 5)",
        )
        with pytest.raises(ForbiddenError, match="row security"):
            client.load_table(("public", events))
        with pytest.raises(ForbiddenError, match="row security"):
            client.load_table(("nightly", "public", "events"))


@pytest.mark.spark
def test_the_copy_of_a_table_is_not_for_who_makes_another_one_of_its_name(
    lake: Lake, make_role: Callable[[str], str]
) -> None:
    run(lake.catalog, "create table public.payroll (id int primary key); insert into public.payroll values (1)")
    create_snapshot(lake)
    clerk, other, copy = make_role("clerk"), make_role("other"), ("nightly", "public", "payroll")
    run(lake.catalog, "grant select on public.payroll to clerk; grant create on schema public to other")
    with serving(lake.dsn, lake.settings.warehouse) as rest:
        assert len(rest.client(clerk).load_table(copy).scan().to_arrow()) == 1
        run(lake.catalog, "alter table public.payroll rename to salaries")
        run(lake.catalog, "set role other; create table public.payroll (id int); reset role")
        for role in (clerk, other):
            with pytest.raises(ForbiddenError):
                rest.client(role).load_table(copy)
        run(lake.catalog, "drop table public.payroll; alter table public.salaries rename to payroll")
        assert len(rest.client(clerk).load_table(copy).scan().to_arrow()) == 1


def refuse_writing(lake: Lake, rest: Served, events: str) -> None:
    """What belongs to Frostline stays as it is, whoever has the token."""
    before = rows(lake.catalog, "select * from frostline.iceberg_tables order by 2, 3")
    client, token = rest.client(write=True), rest.token(write=True)
    for name in (("public", events), ("nightly", "public", "events")):
        table = client.load_table(name)
        for deed in (
            lambda table=table: table.delete("id = 1"),
            lambda name=name: client.drop_table(name),
            lambda name=name: client.rename_table(name, ("public", "mine")),
        ):
            with pytest.raises(ForbiddenError, match="only Frostline commits to"):
                deed()
        body = {"name": "mine", "metadata-location": table.metadata_location}
        assert rest.ask("POST", "namespaces/public/register", token, json=body).status_code == 400
    with pytest.raises(ForbiddenError, match="belongs to the named snapshot"):
        client.create_table(("nightly", "public", "mine"), NUMBERS)
    with pytest.raises(ForbiddenError, match="belongs to the named snapshot"):
        client.create_namespace(("nightly", "mine"))
    make_events(lake.catalog, "public.later", months=1)
    later = lake.add("later").internal
    with pytest.raises(ForbiddenError, match=r"is the name of the lake of public\.later"):
        client.create_table(("public", later), NUMBERS)
    assert rows(lake.catalog, "select * from frostline.iceberg_tables order by 2, 3") == before
    client.create_table("public.free", NUMBERS).append(numbers(1))
    assert lake.archive("events")[0].error is None
