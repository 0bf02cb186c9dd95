"""A column that is added to the heap appears in the relation, whatever is in the lake already; nothing is rewritten."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.followed import TABLE, altered, archived, both, jobs, made, same
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until

from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.lake import snapshots
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.pipeline import verify
from frostline.relation import columns, following, loading, policy, registration, removal
from frostline.relation.registration import Request
from frostline.runtime.worker import Worker

WAITING = "select count(*) from pg_locks where not granted"
KINDS = {
    "text": "'new'",
    "bigint": "9223372036854775807",
    "numeric(12,4)": "12.3456",
    "jsonb": "to_jsonb(7)",
    "timestamptz": "timestamptz '2024-01-01+00'",
    "uuid": "uuid '7d444840-9dc0-11d1-b245-5ffdce74fad2'",
    "int[]": "array[1, 2]",
    "double precision": "double precision '-0'",
    "bytea": "decode('00ff', 'hex')",
}


@pytest.fixture
def pair(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return made(lake, monkeypatch)


@pytest.mark.parametrize(("kind", "sample"), first(4, KINDS.items()))
def test_a_new_column_is_read_and_written_in_both_tiers(pair: Lake, kind: str, sample: str) -> None:
    altered(pair, f"add column x {kind}")
    same(pair)
    both(pair, f"update public.{{}} set x = {sample} where id in (1, 4, 8)")
    both(
        pair,
        f"insert into public.{{}} (id, ts, x) values (100, '2024-01-05+00', {sample}), (101, '2030-01-01+00', {sample})",
    )
    both(pair, "update public.{} set a = 'once more', n = 3 where id in (8, 9)")
    same(pair)
    for _ in jobs(pair):
        same(pair)


def test_three_generations_of_files_are_one_table(pair: Lake) -> None:
    for number, name in enumerate(("x", "y", "z")):
        altered(pair, f"add column {name} int")
        both(pair, f"update public.{{}} set {name} = id * 10 where id % 3 = {number}")
        pair.fold()
        same(pair)
        both(pair, f"insert into public.{{}} (id, ts, {name}) values ({200 + number}, '2024-01-2{number}+00', 7)")
    for _ in jobs(pair):
        same(pair)
    assert verify.run(pair.catalog, pair.table("t")).faults == ()


def test_conditions_and_aggregates_on_a_new_column_are_asked_of_the_lake(pair: Lake) -> None:
    altered(pair, "add column x int")
    both(pair, "update public.{} set x = id where id in (2, 3)")
    pair.fold()
    for query in (
        "select count(*), count(x), sum(x), min(x) from public.{}",
        "select id from public.{} where x is null order by id",
        "select id from public.{} where x = 3",
        "select x, count(*) from public.{} group by x order by x",
        "select id from public.{} order by x desc nulls last, id limit 3",
        "select id from public.{} where ts < '2024-02-01+00' and coalesce(x, 0) = 0 order by id",
    ):
        assert rows(pair.catalog, query.format("t")) == rows(pair.catalog, query.format("p")), query


def test_changes_that_were_made_before_the_relation_followed_are_kept(pair: Lake) -> None:
    altered(pair, "add column x int", sync=False)
    for name in ("_t", "p"):
        run(pair.catalog, f"update public.{name} set x = 9 where id in (4, 5)")
    following.follow(pair.catalog, pair.table("t"))
    same(pair)
    pair.fold()
    same(pair)


def test_lake_files_are_neither_read_nor_written(pair: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(pair.catalog, "select path, rows, lower, upper from frostline.lake_file order by 1")
    pair.server.stop()
    monkeypatch.setattr("frostline.lake.paths.file_io", None)
    altered(pair, "add column x int")
    assert rows(pair.catalog, "select path, rows, lower, upper from frostline.lake_file order by 1") == before


def test_iceberg_follows_with_the_next_commit(pair: Lake) -> None:
    altered(pair, "add column x int")
    pair.fold()
    location = str(value(pair.catalog, "select metadata_location from frostline.seam"))
    schema = snapshots.read_metadata(location).schema()
    assert [(field.field_id, field.name) for field in schema.fields][-1] == (5, "x")


def test_views_and_rights_on_the_relation_stay(pair: Lake) -> None:
    run(pair.catalog, "create view public.reader as select id, a from public.t")
    run(pair.catalog, "grant select on public.t to public")
    altered(pair, "add column x int")
    assert value(pair.catalog, "select count(*) from public.reader") == 29
    assert value(pair.catalog, "select has_table_privilege('pg_monitor', 'public.t', 'select')") is True


def test_defaults_and_comments_come_along_where_nothing_is_cold(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.without_spark(lake, monkeypatch)
    for name in ("t", "p"):
        run(lake.catalog, TABLE.format(name))
    lake.add("t")
    altered(
        lake, "add column x int not null default 5, add column y int generated always as (id * 2) stored", sync=False
    )
    run(lake.catalog, "comment on column public._t.x is 'five'")
    following.follow(lake.catalog, lake.table("t"))
    both(lake, "insert into public.{} (id, ts) values (100, '2024-01-05+00')")
    same(lake)
    assert value(lake.catalog, "select col_description('public.t'::regclass, 5)") == "five"
    archived(lake)
    same(lake)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("add column x int generated always as (id * 2) stored", "is computed"),
        ("add column frostline_x int", "reserved name"),
        ("drop column a cascade", "it has no column a"),
    ],
)
def test_what_cannot_be_followed_is_refused_and_changes_nothing(pair: Lake, change: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        altered(pair, change)
    assert refused.value.hint
    assert columns.difference(pair.catalog, pair.table("t")) is not None
    assert value(pair.catalog, "select count(*) from frostline.managed_column") == 4


def test_a_table_with_row_security_is_followed_too(pair: Lake) -> None:
    from frostline.relation import rowsecurity

    run(pair.catalog, "create role clerk; grant select, update on public.t to clerk")
    rowsecurity.switch(pair.catalog, pair.table("t"), on=True)
    run(pair.catalog, "create policy few on public._t using (id % 2 = 0)")
    rowsecurity.follow(pair.catalog)
    altered(pair, "rename column a to b")
    altered(pair, "add column x int default 5")
    same(pair)
    with psycopg.connect(pair.dsn, autocommit=True) as clerk:
        run(clerk, "set role clerk")
        assert value(clerk, "select count(*) from public.t where x = 5") == 15
        assert run(clerk, "update public.t set x = 6 where id in (2, 3)").rowcount == 1
    run(pair.catalog, "update public.p set x = 6 where id = 2")
    same(pair)
    for _ in jobs(pair):
        same(pair)
    run(pair.catalog, "drop owned by clerk; drop role clerk")


def test_the_sync_follows_a_default_that_was_set_later(pair: Lake) -> None:
    """There are no event triggers here."""
    altered(pair, "add column x int default 5")
    both(pair, "insert into public.{} (id, ts) values (100, '2024-01-05+00')")
    altered(pair, "alter column x set default 6; alter table {0} alter column a set default 'none'", sync=False)
    assert following.follow_all(pair.catalog) == [Name.parse("t")]
    assert following.follow_all(pair.catalog) == []
    both(pair, "insert into public.{} (id, ts) values (101, '2024-01-05+00'), (102, '2030-01-01+00')")
    altered(pair, "alter column x drop default")
    both(pair, "insert into public.{} (id, ts) values (103, '2024-01-05+00')")
    same(pair)


def test_following_again_changes_nothing(pair: Lake) -> None:
    altered(pair, "add column x int")
    digests = value(pair.catalog, "select objects_digest from frostline.managed_table")
    assert following.follow(pair.catalog, pair.table("t")) == ()
    assert value(pair.catalog, "select objects_digest from frostline.managed_table") == digests


def test_the_worker_follows_by_itself(pair: Lake) -> None:
    altered(pair, "add column x int", sync=False)
    Worker(pair.jobs(), Event()).round()
    same(pair)


def test_a_relation_beside_its_table_follows_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.without_spark(lake, monkeypatch)
    for name in ("t", "p"):
        run(lake.catalog, TABLE.format(name))
    registration.add(lake.catalog, Request(Name.parse("t"), Policy("1 month", "0"), None, "t_all"))
    archived(lake)
    for name in ("t", "p"):
        run(lake.catalog, f"alter table public.{name} add column x int")
    following.follow(lake.catalog, lake.table("t"))
    for name in ("t_all", "p"):
        run(lake.catalog, f"update public.{name} set x = 1 where id < 5")
    query = "select * from public.{} order by id"
    assert rows(lake.catalog, query.format("t_all")) == rows(lake.catalog, query.format("p"))


def test_a_reader_keeps_the_columns_that_it_began_with(pair: Lake) -> None:
    with psycopg.connect(pair.dsn) as reader:
        reader.execute("set transaction isolation level repeatable read")
        assert reader.execute("select 1").fetchone() == (1,)
        altered(pair, "add column x int")
        assert reader.execute("select count(*) from public.t where a is not null").fetchone() == (29,)


def test_named_snapshots_have_the_new_column_from_then_on(pair: Lake) -> None:
    copies.create(pair, "public.t")
    altered(pair, "add column x int")
    both(pair, "update public.{} set x = id where id in (2, 4)")
    copies.create(pair, "public.t")
    pair.fold()
    copies.create(pair, "public.t")
    expected = rows(pair.catalog, "select id, a, x from public.p order by id")
    for version in (2, 3):
        copy = copies.shown(pair, version=version)[Name.parse("t")]
        arrow = copies.by_pyiceberg(copy).sort_by("id")
        assert list(zip(*(arrow[name].to_pylist() for name in ("id", "a", "x")), strict=True)) == expected
    before = copies.shown(pair, version=1)[Name.parse("t")]
    assert copies.by_pyiceberg(before).column_names == ["id", "ts", "a", "n"]


def test_a_table_goes_back_with_its_new_column(pair: Lake) -> None:
    altered(pair, "add column x int")
    both(pair, "update public.{} set x = id where id in (2, 4)")
    pair.thaw("t", "2024-01-01")
    removal.remove(pair.catalog, Name.parse("t"), keep_lake=True)
    same(pair)
    assert value(pair.catalog, "select relkind from pg_class where oid = 'public.t'::regclass") == "p"


def test_undo_and_retention_go_on_over_files_of_both_kinds(pair: Lake) -> None:
    altered(pair, "add column x int")
    policy.change(pair.catalog, pair.table("t"), grace_period="10 years")
    both(pair, "insert into public.{} (id, ts, x) values (300, '2024-04-05+00', 1)")
    for name in ("_t", "p"):
        run(pair.catalog, f"delete from public.{name} where id = 300")
        run(
            pair.catalog,
            f"create table public.{name}_4 partition of public.{name} for values from ('2024-04-01+00') to ('2024-05-01+00')",
        )
    both(pair, "insert into public.{} (id, ts, x) values (300, '2024-04-05+00', 1)")
    archived(pair)
    same(pair)
    pair.undo("t", "2024-04-01")
    same(pair)
    run(pair.catalog, "update frostline.managed_table set held_from = null")
    policy.change(
        pair.catalog,
        pair.table("t"),
        retention_period=str(value(pair.catalog, "select (now() - '2024-02-15'::date)::text")),
    )
    (retained,) = pair.retain()
    assert retained.error is None, retained
    run(pair.catalog, "delete from public.p where ts < (select retained_timestamptz from frostline.seam)")
    same(pair)


@pytest.mark.parametrize(
    "statement",
    ["update public._t set x = 9, a = 'late' where id = 4", "update public.t set a = 'late' where id = 4"],
    ids=["of the heap", "through the relation"],
)
def test_a_writer_that_has_not_committed_is_waited_for(pair: Lake, statement: str) -> None:
    altered(pair, "add column x int", sync=False)
    run(pair.catalog, "update public._t set x = 9 where id = 4")
    run(pair.catalog, "update public.p set x = 9, a = 'late' where id = 4")
    table = pair.table("t")
    with pair.connect() as other, ThreadPoolExecutor(1) as pool, psycopg.connect(pair.dsn) as writer:
        writer.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]
        with open_connection(pair.dsn, purpose="tests") as own:
            done = pool.submit(following.follow, own, table)
            until(lambda: value(other, WAITING) or done.done())
            assert not done.done()
            writer.commit()
            assert done.result() == ("x",)
    same(pair)
    pair.fold()
    same(pair)


def test_values_that_a_default_left_in_partitions_that_wait_are_noticed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLE.format("t"))
    lake.add("t", grace="10 years")
    archived(lake)
    run(lake.catalog, "alter table public._t add column x uuid default gen_random_uuid()")
    run(lake.catalog, "alter table public._t alter column x drop default")
    with pytest.raises(UsageError, match="got other values"):
        following.follow(lake.catalog, lake.table("t"))


def test_a_restored_dump_numbers_its_columns_anew(pair: Lake) -> None:
    """A dump leaves the gaps of dropped columns out; here they come into our numbers instead."""
    altered(pair, "add column x int")
    both(pair, "update public.{} set x = 1 where id in (1, 2)")
    run(pair.catalog, "update frostline.managed_column set attnum = attnum + 7 where field_id = 5")
    for field_id in (4, 3):
        run(pair.catalog, f"update frostline.managed_column set attnum = attnum + 1 where field_id = {field_id}")
    same(pair)
    altered(pair, "add column y int")
    both(pair, "update public.{} set y = 2 where id in (2, 3)")
    same(pair)
    assert rows(pair.catalog, "select attnum, field_id from frostline.managed_column order by 1") == [
        (number, number) for number in range(1, 7)
    ]
    for _ in jobs(pair):
        same(pair)


def test_a_column_that_was_made_anew_is_no_column_of_the_relation(pair: Lake) -> None:
    run(pair.catalog, "alter table public._t drop column n cascade")
    run(pair.catalog, "alter table public._t add column n numeric(9, 2)")
    assert "made anew the column n" in (columns.difference(pair.catalog, pair.table("t")) or "")
    with pytest.raises(UsageError, match="made anew the column n"):
        following.follow(pair.catalog, pair.table("t"))
    (result,) = pair.archive()
    assert isinstance(result.error, UsageError)


def test_a_spark_load_waits_for_the_sync(pair: Lake) -> None:
    altered(pair, "add column x int", sync=False)
    assert "frostline table sync public.t" in (loading.obstacle(pair.catalog, pair.table("t")) or "")
    following.follow(pair.catalog, pair.table("t"))
    assert loading.obstacle(pair.catalog, pair.table("t")) is None
