"""Which tables a snapshot takes, and that each of them is copied whole."""

from typing import Any

import pytest
from hypothesis import strategies as st
from tests.fixtures import copies, every_type
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run

from frostline.errors import UnavailableError, UsageError
from frostline.model.names import Name

pytestmark = pytest.mark.spark

KINDS = """
create table public.empty (id int);
create table public.no_key as select 1 as a union all select 1;
create table public.computed (a int, b int generated always as (a * 2) stored);
insert into public.computed values (1), (2);
create unlogged table public.unlogged as select 1 as a;
create table public.parent (a int, note text);
create table public.child (own text) inherits (public.parent);
create table public.grandchild () inherits (public.child);
insert into public.parent values (1, 'parent');
insert into public.child values (2, 'child', 'more');
insert into public.grandchild values (3, 'grandchild', 'most');
create table public.parts (k int, v text) partition by list (k);
create table public.parts_1 (v text, k int);
alter table public.parts attach partition public.parts_1 for values in (1);
create table public.parts_2 partition of public.parts for values in (2, 3) partition by list (k);
create table public.parts_2_2 partition of public.parts_2 for values in (2);
create table public.parts_2_other partition of public.parts_2 default;
create table public.parts_other partition of public.parts default;
insert into public.parts select i, 'v' || i from generate_series(1, 9) i;
create schema "We.ird ""schema"" s";
create table "We.ird ""schema"" s"."T*b l'e~" ("A" int, "a" text, "we""ird '%" int);
insert into "We.ird ""schema"" s"."T*b l'e~" values (1, 'x', 2);
create view public.a_view as select 1 as a;
create materialized view public.a_matview as select 1 as a;
create temp table temporary as select 1 as a;
create schema frostline_mine;
create table frostline_mine.notes as select 1 as a;
"""
FOREIGN = """
create table public.odd (a int) partition by list (a);
create server elsewhere foreign data wrapper postgres_fdw;
create foreign table public.far partition of public.odd default server elsewhere
"""


@pytest.fixture(scope="module")
def there(shared_lake: Lake) -> dict[Name, Any]:
    """The copies of one table of each kind."""
    run(shared_lake.catalog, KINDS)
    copies.create(shared_lake, "*.*")
    return copies.shown(shared_lake)


def content(copy: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in copies.by_pyiceberg(copy).to_pylist()), key=repr)


def public(name: str) -> Name:
    return Name("public", name)


def test_all_tables_are_there_and_nothing_else(there: dict[Name, Any]) -> None:
    names = ["child", "computed", "empty", "grandchild", "no_key", "parent", "parts", "unlogged"]
    strange = [Name('We.ird "schema" s', "T*b l'e~"), Name("frostline_mine", "notes")]
    assert list(there) == [*strange, *map(public, names)]


def test_an_empty_table_has_no_rows_for_any_engine(there: dict[Name, Any], shared_lake: Lake) -> None:
    copy = there[public("empty")]
    assert copy.lake_snapshot_id is not None
    assert (content(copy), copies.by_duckdb(copy), copies.files(copy)) == ([], [], [])
    assert shared_lake.warehouse.exists()


def test_rows_that_are_twice_there_are_copied_twice(there: dict[Name, Any]) -> None:
    assert content(there[public("no_key")]) == [(1,), (1,)]


def test_generated_columns_and_unlogged_tables(there: dict[Name, Any]) -> None:
    assert content(there[public("computed")]) == [(1, 2), (2, 4)]
    assert content(there[public("unlogged")]) == [(1,)]


def test_a_parent_has_what_a_query_of_it_has(there: dict[Name, Any]) -> None:
    assert content(there[public("parent")]) == [(1, "parent"), (2, "child"), (3, "grandchild")]
    assert content(there[public("child")]) == [(2, "child", "more"), (3, "grandchild", "most")]
    assert content(there[public("grandchild")]) == [(3, "grandchild", "most")]


def test_a_partitioned_table_is_one_table(there: dict[Name, Any]) -> None:
    assert content(there[public("parts")]) == [(i, f"v{i}") for i in range(1, 10)]


def test_hostile_names_travel(there: dict[Name, Any]) -> None:
    copy = there[Name('We.ird "schema" s', "T*b l'e~")]
    assert (copy.namespace, copy.lake_table) == ('nightly.We.ird "schema" s', "T*b l'e~")
    assert copies.by_pyiceberg(copy).to_pylist() == [{"A": 1, "a": "x", "we\"ird '%": 2}]
    assert copies.by_duckdb(copy, "select count(*) from copy") == [(1,)]


def test_a_partition_that_is_named_is_taken(shared_lake: Lake, there: dict[Name, Any]) -> None:
    assert there
    copies.create(shared_lake, "public.parts_2", name="part")
    (copy,) = copies.shown(shared_lake, "part").values()
    assert content(copy) == [(2, "v2"), (3, "v3")]


def test_rows_that_row_security_hides_are_an_error(lake: Lake) -> None:
    run(lake.catalog, "create table public.secret as select 1 as a")
    run(lake.catalog, "alter table public.secret enable row level security")
    run(lake.catalog, "create policy none on public.secret using (false)")
    run(lake.catalog, "create role snapshot_reader login password 'x' in role pg_read_all_data")
    run(lake.catalog, "grant execute on all functions in schema frostline to snapshot_reader")
    # The tasks connect as the settings say; the catalog's own connection is the superuser's.
    settings = lake.settings.model_copy(update={"dsn": _as(lake.dsn, "snapshot_reader")})
    lake.settings = settings
    try:
        with pytest.raises(UnavailableError, match="row-level security"):
            copies.create(lake, "public.secret")
    finally:
        run(lake.catalog, "drop owned by snapshot_reader; drop role snapshot_reader")


def _as(dsn: str, role: str) -> str:
    from psycopg.conninfo import make_conninfo

    return make_conninfo(dsn, user=role, password="x")


@pytest.mark.parametrize(
    ("definition", "named", "said"),
    [
        ("create table public.odd ()", "public.*", "public.odd has no columns"),
        ("create view public.odd as select 1", "public.odd", "public.odd is a view, and snapshots take tables only"),
        (
            "create materialized view public.odd as select 1",
            "public.odd",
            "public.odd is a materialized view, and snapshots take tables only",
        ),
        (
            FOREIGN,
            "public.odd",
            "public.odd has the foreign table public.far in it",
        ),
        ("select", "public.nothing*", "--tables 'public.nothing*' names no table"),
        ("select", "frostline.seam", "--tables 'frostline.seam' names no table"),
        ("select", "pg_catalog.pg_class", "--tables 'pg_catalog.pg_class' names no table"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(lake: Lake, definition: str, named: str, said: str) -> None:
    run(lake.catalog, definition)
    with pytest.raises(UsageError) as refusal:
        copies.create(lake, named)
    assert said in str(refusal.value)


def test_every_type_is_carried(lake: Lake) -> None:
    run(lake.catalog, every_type.definition())
    names = list(every_type.VALUES)
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in ("id", "at", *names))
    samples = {name: _samples(strategy) for name, strategy in every_type.VALUES.items()}
    with lake.connect() as connection:
        for number in range(40):
            values = [samples[name][number % len(samples[name])] for name in names]
            statement = f"insert into public.\"Every 'type'\" ({columns}) values (%s, '2024-01-02', {', '.join(['%s'] * len(names))})"
            run(connection, statement, (number, *values))
        run(connection, "insert into public.\"Every 'type'\" (id) values (1000)")
    copies.create(lake, "public.*")
    (copy,) = copies.shown(lake).values()
    assert copy.rows == 41
    assert copies.by_pyiceberg(copy).num_rows == 41
    assert copies.by_duckdb(copy, "select count(*) from copy") == [(41,)]
    texts = rows(
        lake.catalog,
        'select id, jsonb::text, "interval"::text, mood::text, pair::text, "num any"::text, int8, bytea from public."Every \'type\'"',
    )
    copied = copies.by_duckdb(copy, 'select id, jsonb, "interval", mood, pair, "num any", int8, bytea from copy')
    assert sorted(copied, key=lambda row: row[0]) == sorted(texts, key=lambda row: row[0])


def _samples(strategy: st.SearchStrategy[str]) -> list[str]:
    import warnings

    from hypothesis.errors import NonInteractiveExampleWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonInteractiveExampleWarning)
        return [strategy.example() for _ in range(12)]


@pytest.mark.slow
def test_five_hundred_tables_are_one_snapshot(lake: Lake) -> None:
    run(
        lake.catalog,
        "do $$ begin for i in 1..500 loop execute format('create table public.t%s as select %s as id, ''row'' as note', i, i); "
        "end loop; end $$",
    )
    result = copies.create(lake, "public.*")
    assert (len(result.tables), sum(table.fingerprint.rows for table in result.tables)) == (500, 500)
    assert content(copies.shown(lake)[public("t250")]) == [(250, "row")]


def test_the_dry_run_says_what_would_be_taken(lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.catalog, "create table public.a (id int); create table public.b (id int)")
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    said = command(
        "snapshot", "create", "x", "--tables", "public.*", "--exclude", "public.b", "--dry-run", "--output", "json"
    )
    assert (said.exit_code, said.stdout) == (
        0,
        '[{"table": "public.a", "managed": false, "lake_table": false}]\n',
    )
