"""A column that is added with a default: cold rows have the value that Postgres gave the rows that were there."""

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import copies
from tests.fixtures.followed import TABLE, altered, archived, both, jobs, made, same
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.model import laketypes
from frostline.model.names import Name
from frostline.pipeline import verify
from frostline.relation import adoption, columns, following, policy
from frostline.tiers.proof import columnhash

DEFAULTS = {
    "boolean": "true",
    "smallint": "-7",
    "int": "5",
    "bigint": "9223372036854775807",
    "real": "0.1",
    "float4": "'NaN'",
    "double precision": "'-0'",
    "float8": "'-Infinity'",
    "numeric(12,4)": "-12.3456",
    "numeric(38,10)": "1234567890123456789012345678.0123456789",
    "numeric": "1.50",
    "date": "'0044-03-15 BC'",
    "timestamp": "'2024-02-29 12:00:00.000001'",
    "timestamp(0)": "'-infinity'",
    "timestamptz": "'2024-02-29 12:00:00.123456+05:30'",
    "timestamptz(3)": "'0044-03-15 12:00:00 BC'",
    "text": "E'it''s\\t\\\\ a {text} %s \\n' || chr(8364)",
    "varchar(9)": "''",
    "character(5)": "'ab'",
    'text collate "C"': "'byte order'",
    "bytea": "'\\x00ff5c27'",
    "uuid": "'7d444840-9dc0-11d1-b245-5ffdce74fad2'",
    "jsonb": """'{"a": [1, null], "b": "x"}'""",
    "json": "'[1,  2]'",
    "int[]": "array[1, null, 3]",
    "text[]": """array['a,b', '{"c"}', null]""",
    "timestamptz[]": "array[timestamptz '2024-01-01 00:00+02']",
    "interval": "'1 month 2 days 03:04:05'",
    "inet": "'10.0.0.1/8'",
    "point": "'(1,2)'",
    "int4range": "'[1,5)'",
    "public.colour": "'dark blue'",
    "public.pair": "row(1, 'x, y')",
    "public.five": "6",
}
"""By type, the value of each kind that a lake carries: all lake types, and types that travel as text."""
OWN_TYPES = """
create type public.colour as enum ('red', 'dark blue');
create type public.pair as (a int, b text);
create domain public.five as int default 5;
create domain public.positive as int check (value > 0);
create domain public.named as text not null default 'nobody';
"""
CONDITIONS = (
    "{c} = {v}", "{c} <> {v}", "{c} < {v}", "{c} <= {v}", "{c} > {v}", "{c} >= {v}", "{c} is null", "{c} is not null",
    "{c} in ({v}, {w})", "not {c} in ({w})", "{c} between {v} and {w}", "{c} is distinct from {v}",
    "{c} = {v} and {d} is not null", "{c} = {v} or {d} = {w}", "coalesce({c}, {w}) = {w}", "{c} = {w} and ts < '2024-02-01+00'",
)  # fmt: skip


@pytest.fixture
def pair(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made(lake, monkeypatch)
    run(lake.catalog, OWN_TYPES)
    return lake


def texts_same(lake: Lake) -> None:
    """By their text: types may have no equality, and a NaN equals nothing."""
    ours, plain = (rows(lake.catalog, f"select id, t::text from public.{name} t order by id") for name in ("t", "p"))
    assert ours == plain


def missing(lake: Lake) -> list[str | None]:
    return [column.missing for column in lake.table("t").columns][4:]


@pytest.mark.parametrize(("kind", "default"), some(list(DEFAULTS.items()), *list(DEFAULTS.items())[2:7:2]))
def test_a_default_of_each_type_is_shown_and_goes_through_every_job(pair: Lake, kind: str, default: str) -> None:
    altered(pair, f"add column x {kind} not null default {default}")
    texts_same(pair)
    assert missing(pair) == [value(pair.catalog, "select x::text from public.p where id = 1")]
    both(pair, "insert into public.{} (id, ts) values (100, '2024-01-05+00'), (101, '2030-01-01+00')")
    both(pair, "update public.{} set a = 'once more' where id in (4, 8, 9)")
    texts_same(pair)
    assert verify.run(pair.catalog, pair.table("t")).faults == ()
    for _ in jobs(pair):
        texts_same(pair)
    assert verify.run(pair.catalog, pair.table("t")).faults == ()


def generations(lake: Lake) -> None:
    """Files of four generations, in three of which a column is missing; each column has NULLs and other values too."""
    changes = (
        "add column x int default 5",
        "add column y text not null default 'why'",
        "add column z timestamptz default now()",
    )
    for number, (name, other, change) in enumerate(zip("xyz", ("id % 3", "'y' || id % 3", "ts"), changes, strict=True)):
        with lake.catalog.transaction():  # in which now() is one time
            for table in ("public._t", "public.p"):
                run(lake.catalog, f"alter table {table} {change}")
                if name == "z":
                    run(lake.catalog, f"alter table {table} alter column z set default '2024-02-10+00'")
        following.follow(lake.catalog, lake.table("t"))
        both(lake, f"update public.{{}} set {name} = {other} where id % 5 = {number}")
        if name != "y":
            both(lake, f"update public.{{}} set {name} = null where id % 7 = {number}")
        lake.fold()
        same(lake)
        both(lake, f"insert into public.{{}} (id, ts) values ({200 + number}, '2024-0{number + 1}-25+00')")
        lake.fold()


def test_files_of_four_generations_are_one_table_in_every_job(pair: Lake) -> None:
    generations(pair)
    same(pair)
    assert verify.run(pair.catalog, pair.table("t")).faults == ()
    for _ in jobs(pair):
        same(pair)
    assert verify.run(pair.catalog, pair.table("t")).faults == ()


def questions() -> Iterator[str]:
    values = {
        "x": ("5", "1", "y", "'why'"),
        "y": ("'why'", "'y1'", "x", "5"),
        "z": ("max_z", "'2024-02-10+00'", "x", "5"),
    }
    for name, (first, second, other, _) in values.items():
        for condition in CONDITIONS:
            for v, w in ((first, second), (second, first)):
                other_value = {"x": "5", "y": "'why'"}[other]
                filled = condition.replace("{d} = {w}", f"{other} = {other_value}")
                where = filled.format(c=name, v=v, w=w, d=other)
                yield f"select id from public.{{}} where {where} order by id"
                yield f"select count(*), count({name}), min({name}), max({name}) from public.{{}} where {where}"
        yield f"select {name}, count(*), sum(n) from public.{{}} group by {name} order by {name}"
        yield f"select {name}, id from public.{{}} order by {name} desc nulls last, id limit 7"
        yield f"select {name}, id from public.{{}} order by {name} nulls first, id limit 7 offset 2"
        yield f"select distinct {name} from public.{{}} order by 1"
        yield f"select count(distinct {name}), count(*) filter (where {name} is null) from public.{{}}"


def test_conditions_sort_and_groups_are_those_of_a_plain_table(pair: Lake) -> None:
    generations(pair)
    latest = value(pair.catalog, "select quote_literal(max(z)) || '::timestamptz' from public.p")
    for question in questions():
        query = question.replace("max_z", str(latest))
        ours, plain = (rows(pair.catalog, query.format(name)) for name in ("t", "p"))
        assert ours == plain, query


def test_a_look_up_that_comes_again_and_again_finds_missing_values(pair: Lake) -> None:
    """The lake server keeps what it needs for it in memory."""
    generations(pair)
    for x in (5, 1, 5, 2, 5, 7) * 12:
        query = f"select id, y from public.{{}} where x = {x} and ts < '2024-03-01+00' order by id"
        assert rows(pair.catalog, query.format("t")) == rows(pair.catalog, query.format("p"))


@pytest.mark.parametrize(
    "change",
    [
        "add column x int default 5; alter table {0} alter column x set default 6",
        "add column x int default 5; alter table {0} alter column x drop default",
        "add column x int not null default 5; alter table {0} alter column x drop default",
        "add column x int default null",
        "add column x public.five",
        "add column x public.five; alter table {0} alter column x set default 9",
        "add column x public.positive",
        "add column x text default current_setting('server_version')",
        "add column x date default current_date, add column y int, add column z text default 'z'",
    ],
)
def test_what_the_default_was_at_the_alter_counts(pair: Lake, change: str) -> None:
    altered(pair, change)
    same(pair)
    both(pair, "insert into public.{} (id, ts, x) select 100, '2024-01-05+00', x from public.p where id = 1")
    if "not null" not in change:
        both(pair, "insert into public.{} (id, ts) values (101, '2024-01-05+00'), (102, '2030-01-01+00')")
    same(pair)
    for _ in jobs(pair):
        same(pair)


def test_now_is_the_time_of_the_alter_at_every_read(pair: Lake) -> None:
    with pair.catalog.transaction():
        for name in ("_t", "p"):
            run(pair.catalog, f"alter table public.{name} add column x timestamptz not null default now()")
        then = value(pair.catalog, "select now()")
    following.follow(pair.catalog, pair.table("t"))
    assert value(pair.catalog, "select count(*) from public.t where x = %s", (then,)) == 29
    same(pair)
    pair.fold()
    same(pair)


def test_a_partition_that_came_later_does_not_count(pair: Lake) -> None:
    for name in ("_t", "p"):
        run(pair.catalog, f"alter table public.{name} add column x int default 5")
        run(pair.catalog, f"alter table public.{name} alter column x set default 6")
        part = f"create table public.{name}_9 partition of public.{name} for values from ('2025-01-01+00') to ('2025-02-01+00')"
        run(pair.catalog, part)
    following.follow(pair.catalog, pair.table("t"))
    same(pair)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("add column x uuid default gen_random_uuid()", "computed for each row"),
        ("add column x float8 default random()", "computed for each row"),
        ("add column x bigserial", "computed for each row"),
        ("add column x bigint generated by default as identity", "computed for each row"),
        ("add column x timestamptz default clock_timestamp()", "computed for each row"),
        ("add column x public.named", "computed for each row"),
        ("add column x int; alter table {0} alter column x set default 5", "set after the column was added"),
        ("add column x int generated always as (id * 2) stored", "is computed"),
        ("add column x numeric(9, 2) default 'NaN'", "cannot hold"),
        ("add column x timestamp default '294276-01-01'", "cannot hold"),
        ("add column x float8 default 'Infinity'::float8 - 'Infinity'::float8", "cannot hold"),
    ],
)
def test_what_is_not_known_is_refused_with_a_remedy_that_works(pair: Lake, change: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        altered(pair, change)
    assert columns.difference(pair.catalog, pair.table("t")) is not None
    assert value(pair.catalog, "select count(*) from frostline.managed_column") == 4
    hint = refused.value.hint or ""
    commands = hint.partition("to have NULL in them: ")[2].split("; ")
    assert [command.partition(" ")[0] for command in commands[:3]] == ["alter", "alter", "frostline"]
    for name in ("public._t", "public.p"):
        for command in commands[:2]:
            run(pair.catalog, command.replace("public._t", name))
    following.follow(pair.catalog, pair.table("t"))
    assert missing(pair) == [None]
    same(pair)


def test_not_null_without_a_value_is_refused_and_without_it_followed(pair: Lake) -> None:
    both(pair, "delete from public.{} where ts >= '2024-01-01+00'")
    pair.fold()
    run(pair.catalog, "insert into public.t (id, ts, a) values (1, '2024-01-05+00', 'cold')")
    pair.fold()
    run(pair.catalog, "alter table public._t add column x int not null")
    with pytest.raises(UsageError, match="NOT NULL, and rows in the lake have no value") as refused:
        following.follow(pair.catalog, pair.table("t"))
    command = (refused.value.hint or "").rpartition(": ")[2].split("; ")[0]
    assert command == "alter table public._t alter column x drop not null"
    run(pair.catalog, command)
    following.follow(pair.catalog, pair.table("t"))
    assert rows(pair.catalog, "select id, x from public.t") == [(1, None)]


def test_partitions_that_remember_different_values_are_refused(pair: Lake) -> None:
    run(pair.catalog, "create table public.own (like public._t)")
    run(pair.catalog, "alter table public.own add column x int default 7")
    run(pair.catalog, "alter table public._t add column x int default 5")
    attach = "alter table public._t attach partition public.own for values from ('2025-01-01+00') to ('2025-02-01+00')"
    run(pair.catalog, attach)
    with pytest.raises(UsageError, match="partitions differ"):
        following.follow(pair.catalog, pair.table("t"))


def test_a_partition_with_a_past_of_its_own_does_not_speak_for_the_lake(pair: Lake) -> None:
    run(pair.catalog, "create table public.own (like public._t)")
    run(pair.catalog, "alter table public.own add column x int default 7")
    run(pair.catalog, "alter table public._t add column x int")
    attach = "alter table public._t attach partition public.own for values from ('2025-01-01+00') to ('2025-02-01+00')"
    run(pair.catalog, attach)
    with pytest.raises(UsageError, match="partitions differ"):
        following.follow(pair.catalog, pair.table("t"))


def test_after_a_rewrite_of_the_heap_nobody_knows(pair: Lake) -> None:
    run(pair.catalog, "alter table public._t add column x int default 5")
    run(pair.catalog, "vacuum full public._t")
    with pytest.raises(UsageError, match="is not known"):
        following.follow(pair.catalog, pair.table("t"))


def test_images_have_the_value_also_for_readers_with_an_older_snapshot(pair: Lake) -> None:
    altered(pair, "add column x int default 5", sync=False)
    for name in ("_t", "p"):
        run(pair.catalog, f"update public.{name} set x = 9 where id = 5")
    with psycopg.connect(pair.dsn) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1")
        with open_connection(pair.dsn, purpose="tests") as own:
            following.follow(own, pair.table("t"))
        assert reader.execute("select x, count(*) from public.t where id <> 5 group by x").fetchall() == [(5, 28)]
    same(pair)
    both(pair, "delete from public.{} where id in (1, 4)")
    same(pair)
    pair.fold()
    same(pair)


def test_a_thaw_before_the_sync_brings_missing_values_along(pair: Lake) -> None:
    altered(pair, "add column x int default 5; alter table {0} alter column x set default 6", sync=False)
    pair.thaw("t", "2024-01-01")
    same(pair)
    assert value(pair.catalog, "select count(*) from public._t where x = 5") == 29


def test_lake_files_are_neither_read_nor_written(pair: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "select path, rows, lower, upper, hash_sum from frostline.lake_file order by 1"
    before = rows(pair.catalog, query)
    pair.server.stop()
    monkeypatch.setattr("frostline.lake.paths.file_io", None)
    altered(pair, "add column x int default 5")
    assert rows(pair.catalog, query) == before


def test_rows_in_their_grace_period_undo_and_retention(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.without_spark(lake, monkeypatch)
    for name in ("t", "p"):
        run(lake.catalog, TABLE.format(name))
    lake.add("t", grace="10 years")
    archived(lake)
    both(lake, "update public.{} set a = 'changed' where id in (4, 5)")
    altered(lake, "add column x int not null default 5, add column y numeric(9, 2) default 1.5")
    same(lake)
    assert verify.run(lake.catalog, lake.table("t")).faults == ()
    lake.undo("t", "2024-03-01")
    same(lake)
    run(lake.catalog, "update frostline.managed_table set held_from = null")
    archived(lake)
    same(lake)
    policy.change(lake.catalog, lake.table("t"), grace_period="0")
    lake.clean("t")
    same(lake)
    since = str(value(lake.catalog, "select (now() - '2024-02-10 12:00'::timestamp)::text"))
    policy.change(lake.catalog, lake.table("t"), retention_period=since)
    (retained,) = lake.retain()
    assert retained.error is None, retained
    run(lake.catalog, "delete from public.p where ts < (select retained_timestamptz from frostline.seam)")
    same(lake)
    assert verify.run(lake.catalog, lake.table("t")).faults == ()


def test_named_snapshots_have_missing_values_for_real(pair: Lake) -> None:
    altered(pair, "add column x int default 5, add column y text default 'why'")
    both(pair, "update public.{} set x = null where id in (2, 4)")
    expected = rows(pair.catalog, "select id, x, y from public.p order by id")
    for version in (1, 2):
        copies.create(pair, "public.t")
        arrow = copies.by_pyiceberg(copies.shown(pair, version=version)[Name.parse("t")]).sort_by("id")
        assert list(zip(*(arrow[name].to_pylist() for name in ("id", "x", "y")), strict=True)) == expected
        pair.fold()


def test_a_damaged_old_file_is_found_though_it_lacks_the_column(pair: Lake) -> None:
    altered(pair, "add column x int default 5")
    run(
        pair.catalog,
        "update frostline.lake_file set hash_sum = hash_sum + 1 where path = (select min(path) from frostline.lake_file)",
    )
    run(pair.catalog, "delete from frostline.file_checksum")
    assert len(verify.run(pair.catalog, pair.table("t")).faults) > 0


HASHED = {
    "boolean": ("bool", "true", "false"),
    "int": ("int4", "-5", "2147483647"),
    "long": ("int8", "-9223372036854775808", "0"),
    "float": ("float4", "0.1", "-0", "NaN", "-Infinity", "1e-45", "3.4028235e+38"),
    "double": ("float8", "0.1", "-0", "NaN", "Infinity", "5e-324", "1.7976931348623157e+308"),
    "decimal(12, 2)": ("numeric(12,2)", "-0.50", "9999999999.99"),
    "decimal(38, 10)": ("numeric(38,10)", "-1234567890123456789012345678.0123456789", "0"),
    "date": ("date", "2024-02-29", "0044-03-15 BC", "infinity", "-infinity", "5874897-12-31"),
    "timestamp": ("timestamp", "2024-02-29 12:00:00.000001", "4714-11-24 00:00:00 BC", "-infinity"),
    "timestamptz": ("timestamptz", "0044-03-15 12:00:00.5+00 BC", "294246-12-31 23:59:59.999999+00", "infinity"),
    "string": ("text", "", "it's", "\\ \t \n", "größe 😀" * 9),
    "binary": ("bytea", "\\x", "\\x00ff5c27"),
}


@pytest.mark.parametrize("lake_type", HASHED)
def test_a_missing_value_has_the_hash_that_postgres_gives_it(catalog: Connection, lake_type: str) -> None:
    kind, *values = HASHED[lake_type]
    for text in values:
        hashed = laketypes.of(lake_type).hashed.format(f"%(text)s::{kind}")
        (told, stated) = rows(
            catalog,
            f"select hash_record_extended(row({hashed}), 0), frostline.text_v1(%(text)s::{kind})",
            {"text": text},
        )[0]
        assert int(columnhash.of_missing(stated, lake_type).astype(np.int64)) == told, text


def test_other_engines_see_null_until_a_file_is_rewritten(pair: Lake) -> None:
    pair.fold()
    altered(pair, "add column x int default 5")
    both(pair, "update public.{} set a = 'again' where id = 3")
    pair.fold()
    location = str(value(pair.catalog, "select metadata_location from frostline.seam"))
    seen = StaticTable.from_metadata(location).scan().to_arrow()["x"].to_pylist()
    assert set(seen) == {5, None}
    assert value(pair.catalog, "select count(*) from public.t where x is null") == 0


@pytest.mark.parametrize("lost", ["view public.t", "table public._t"])
def test_an_adopted_table_still_has_its_missing_values(pair: Lake, lost: str) -> None:
    altered(pair, "add column x int default 5")
    both(pair, "update public.{} set x = 6 where id = 3")
    run(pair.catalog, f"drop {lost} cascade")
    adoption.adopt(pair.catalog, Name.parse("t"), accept_lost_changes=True)
    same(pair)


def test_what_was_recorded_stays_when_another_column_comes(pair: Lake) -> None:
    altered(pair, "add column x int default 5")
    altered(pair, "add column y text")
    altered(pair, "add column z text default 'z'")
    assert missing(pair) == ["5", None, "z"]
    assert tables.get(pair.catalog, Name.parse("t")).column("z").missing == "z"
    same(pair)
