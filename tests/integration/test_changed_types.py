"""Columns of the heap that get a wider type, by ordinary DDL: files of the lake keep the old one, and are read as the new."""

import shlex
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import copies
from tests.fixtures.cold_twins import both, compare
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import rows, run, value

from frostline import spark as connector
from frostline.catalog import seams
from frostline.errors import UsageError
from frostline.pipeline import spark as pipeline_spark
from frostline.pipeline import verify
from frostline.relation import altering, columns, guard, renewal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

TABLE = """
create table public.{name} (
    id int, ts timestamptz(3) not null, small smallint, n int default 3, f real, d numeric(9,2), v varchar(5), w varchar(5), note text,
    primary key (id, ts)
) {partitioned}
"""
MONTHS = """
create table public.events_1 partition of public.events for values from ('2024-01-01+00') to ('2024-02-01+00');
create table public.events_2 partition of public.events for values from ('2024-02-01+00') to ('2024-03-01+00');
create table public.events_3 partition of public.events for values from ('2090-01-01+00') to ('2090-02-01+00');
"""
ROWS = """
insert into public.{t} select i, timestamptz '2024-01-01 12:00+00' + (i % 2) * interval '1 month' + i * interval '1 hour', i - 20,
       case i when 1 then 2147483647 when 2 then -2147483648 when 3 then null else i end,
       case i when 4 then 'NaN' when 5 then '-0' when 6 then 'infinity' else i / 10.0 end::real, i / 8.0, 'v' || i, 'w' || i, 'note'
  from generate_series(1, 40) i;
insert into public.{t} select i, timestamptz '2090-01-01+00' + i * interval '1 hour', i, i, i / 10.0, i / 8.0, 'h' || i, 'h' || i from generate_series(101, 110) i
"""
WIDER = (
    "alter column id type bigint",
    "alter column small set data type integer, alter column n type bigint using n::bigint",
    'alter column "f" type double precision using "f"::double precision',
    "alter d type numeric(14, 2), alter v type varchar(20), alter w type text",
)
CONDITIONS = ("id = 7", "id in (8, 9, 3000000000)", "n > 2147483640", "n < 12 and small > -15", "f = 0.1::real", "f >= 3.5", "f = 'NaN'", "d = 2.5", "v = 'v7'", "w like 'w1%'")  # fmt: skip


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of two months in the lake only, some of them changed since, and a plain table with the same rows."""
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + MONTHS)
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    both(lake.catalog, ROWS)
    lake.add()
    (archived,) = lake.archive("events")
    assert archived.error is None
    assert lake.clean().waiting == ()
    with lake.connect() as connection:
        both(connection, "update public.{t} set note = 'changed' where id in (11, 12)")
    return lake


def alter(connection: psycopg.Connection, change: str) -> None:
    """The same for the heap and for the plain table."""
    run(connection, f"alter table public._events {change}")
    run(connection, f"alter table public.plain {change}")


def is_whole(lake: Lake) -> None:
    """All rows are as in the plain table, whatever is asked; every job finds the table in order."""
    compare(lake)
    with lake.connect() as connection:
        for condition in CONDITIONS:
            query = f"select count(*), sum(n), sum(d), max(f)::text, min(v) from public.{{}} where {condition}"
            assert rows(connection, query.format("events")) == rows(connection, query.format("plain")), condition
    table = lake.table()
    assert columns.difference(lake.catalog, table) is None
    assert renewal.is_current(lake.catalog, table)
    assert verify.run(lake.catalog, table).faults == ()


def by_others(lake: Lake) -> None:
    """What Spark reads, and PyIceberg of the lake, in which nothing is out of date."""
    with lake.connect() as connection:
        shown = rows(
            connection, "select id, small, n, f::text, d, v, w, ts < '2024-03-01+00' from public.events order by id"
        )
    names = ["id", "small", "n", "f", "d", "v", "w"]
    frame = connector.read(lake.session(), "public.events", dsn=lake.dsn, columns=names).orderBy("id")
    assert [_texts(tuple(row)) for row in frame.collect()] == [_texts(row[:-1]) for row in shown]
    location = seams.get(lake.catalog, lake.table()).metadata_location
    assert location is not None
    scanned = (
        StaticTable.from_metadata(location).scan(selected_fields=tuple(names)).to_arrow().sort_by("id").to_pylist()
    )
    assert [_texts(tuple(row[name] for name in names)) for row in scanned] == [
        _texts(row[:-1]) for row in shown if row[-1]
    ]


def _texts(row: tuple[Any, ...]) -> tuple[str, ...]:
    """With one text for a float, which Postgres has printed."""
    return tuple(str(float(part)) if place == 3 else str(part) for place, part in enumerate(row))


def test_wider_types_are_followed_and_every_reader_and_job_goes_on(cold: Lake) -> None:
    assert guard.ensure(cold.catalog)
    with cold.connect() as connection:
        alter(connection, "add column tenth text, add column eleventh integer")  # their fields' numbers begin with a 1
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        for change in WIDER:
            alter(connection, change)
        query = "select t::text from public.{} t where n < 5 or id in (2, 3000000000) or d > 4 order by id"
        assert rows(connection, query.format("events")) == rows(connection, query.format("plain"))
    is_whole(cold)
    with cold.connect() as connection:
        for change in WIDER:
            alter(connection, change)
            compare(cold)
        is_whole(cold)
        both(
            connection,
            "insert into public.{t} values (3000000000, '2024-01-05+00', 70000, 3000000000, 0.1, 123456789.12, 'longer text', 'longer text')",
        )
        both(connection, "update public.{t} set n = 4000000000, id = id + 5000000000 where id in (21, 22, 105)")
        both(connection, "update public.{t} set small = 99999, f = 1e300 where id in (23, 24, 106)")
        both(connection, "delete from public.{t} where id in (25, 26)")
    is_whole(cold)
    for job in (cold.fold, cold.compact):
        (done,) = job("events")
        assert done.error is None
        is_whole(cold)
    by_others(cold)
    cold.thaw("events", "2024-02-01")
    is_whole(cold)


def test_a_file_of_old_types_is_archived_again_next_to_new_ones(cold: Lake) -> None:
    """A thaw of some months, and archive: files of both types in one lake, and one of a column with a default."""
    assert guard.ensure(cold.catalog)
    with cold.connect() as connection:
        alter(connection, "add column level integer default 7")
        alter(connection, "add column rate real")
        both(connection, "update public.{t} set level = 8, rate = 0.1 where id in (13, 14)")
        alter(
            connection,
            "alter column level type bigint, alter column rate type double precision, alter column id type bigint",
        )
    is_whole(cold)
    cold.thaw("events", "2024-02-01")
    is_whole(cold)
    run(cold.catalog, "update frostline.managed_table set held_from = null")
    (archived,) = cold.archive("events")
    assert archived.error is None
    is_whole(cold)
    with cold.connect() as connection:
        alter(connection, "drop column n")
        alter(connection, "add column n bigint")
    is_whole(cold)


REFUSED = {
    "alter column n type smallint": "cannot become smallint: rows in the lake have integer",
    "alter column n type text": "cannot become text",
    "alter column n type numeric(12, 2)": "cannot become numeric(12,2)",
    "alter column v type varchar(3) using 'x'": "cannot become character varying(3)",
    "alter column d type numeric(14, 4)": "cannot become numeric(14,4)",
    "alter column d type numeric": "cannot become numeric",
    "alter column d type numeric(39, 2)": "cannot become numeric(39,2)",
    'alter column note type text collate "C"': "cannot become text",
    "alter column n type bigint using n * 100": "cannot be computed by USING",
    "alter column n type bigint using small::bigint": "cannot be computed by USING",
    "alter column n type bigint using n::bigint + 1": "cannot be computed by USING",
    "alter column n type bigint using n::bigint, alter column id type bigint using 1": "cannot be computed by USING",
    "alter column ts type timestamptz": "partition key",
    "alter column f type double precision": "cannot alter type of a column used by a view or rule",
}


def test_other_types_are_refused_before_anything_has_changed(cold: Lake) -> None:
    assert guard.ensure(cold.catalog)
    run(cold.catalog, "create view public.reader as select id, f from public.events where false")
    trace = "select attrelid, attname, atttypid, atttypmod from pg_attribute where attrelid >= 16384 and attrelid::regclass::text !~ '^pg_' order by 1, 2"
    before = rows(cold.catalog, trace)
    for change, message in REFUSED.items():
        with cold.connect() as connection, pytest.raises(psycopg.Error) as refused:
            run(connection, f"alter table public._events {change}")
        assert message in str(refused.value), change
    assert rows(cold.catalog, trace) == before
    assert value(cold.catalog, "select count(*) from frostline.aside") == 0
    is_whole(cold)


def test_the_lake_servers_own_postgres_is_asked_with_the_new_columns_at_once(cold: Lake) -> None:
    """A condition that DuckDB does not answer, while the server remembers the old columns."""
    assert guard.ensure(cold.catalog)
    query = "select count(*), min(id) from public.{} where abs({}) * 2 < 20"
    with cold.connect() as connection:
        for is_kept in (False, True):
            run(connection, query.format("events", "id"))  # so that it does
            with connection.transaction(force_rollback=not is_kept):
                alter(connection, "alter column id type bigint")
                alter(connection, "add column fresh int default 5")
                for column in ("id", "fresh"):
                    assert rows(connection, query.format("events", column)) == rows(
                        connection, query.format("plain", column)
                    )
        for column in ("id", "fresh"):
            assert rows(connection, query.format("events", column)) == rows(connection, query.format("plain", column))


CONVERTED = {
    "digits": "type int using digits::int",
    "v": "type varchar(4)",
    "w": 'type text collate "C"',
    "mood": "type public.feeling using mood::text::public.feeling",
    "n": "type text",
    "at": "type date",
    "d": "type numeric(14, 4)",
    "doc": "type text",
    "span": "type bigint using extract(epoch from span)::bigint",
    "day": "type timestamp",
    "short": "type smallint",
    "total": "type bigint using total * 100 + coalesce(small, 0)",
    "rate": "set data type double precision using rate * 3",
    "tag": """type varchar(90) using 'a;b, "c" (' || tag /* it's, ( */ || E'\\'' || $$ using $$ || lower("w") -- and so on, or not""",
    "codes": "type text[] using array[codes[1]::text, 'x']",
}
"""By column, what no ALTER TYPE does to it, and the hint does instead; of some the user's own conversion."""
MORE = """
create type public.mood as enum ('good', 'bad'); create type public.feeling as enum ('bad', 'good', 'so so');
alter table public._events add digits text, add mood public.mood, add at timestamptz, add doc jsonb, add span interval, add n_new int,
    add day date, add short int, add total int, add rate real, add tag text, add codes int[];
alter table public.plain add digits text, add mood public.mood, add at timestamptz, add doc jsonb, add span interval, add n_new int,
    add day date, add short int, add total int, add rate real, add tag text, add codes int[]"""
FILLED = """update public.{t} set digits = id::text, mood = (array['good', 'bad', null])[1 + id % 3]::public.mood, at = ts, n = id,
       doc = jsonb_build_object('id', id), span = id * interval '1 hour', day = ts::date, short = -id, total = id, rate = id / 10.0,
       tag = 'T' || id, codes = array[id, null]"""


def refused(lake: Lake, statement: str) -> str:
    """The hint of what refused it."""
    with lake.connect() as connection, pytest.raises(psycopg.Error) as error:
        run(connection, statement)
    assert error.value.diag.message_hint, error.value
    return error.value.diag.message_hint


@pytest.mark.parametrize("way", some(["one by one", "one string", "one transaction"], "one by one"))
def test_the_hint_does_what_alter_type_cannot(cold: Lake, way: str) -> None:
    assert guard.ensure(cold.catalog)
    with cold.connect() as connection:
        run(connection, "set timezone = 'UTC'")
        run(connection, MORE)
        both(connection, FILLED)
        (folded,) = cold.fold("events")
        assert folded.error is None
        run(connection, "delete from public.plain where v like 'v__'; delete from public.events where v like 'v__'")
        for column, change in CONVERTED.items():
            hint = refused(cold, f"set timezone = 'UTC'; alter table public._events alter column {column} {change}")
            steps = hint.split("; ") if way == "one by one" else [hint]
            with connection.transaction() if way == "one transaction" else nullcontext():
                for step in steps:
                    run(connection, step)
            run(connection, f"alter table public.plain alter column {column} {change}")
        assert folded_and_equal(cold)
        assert folded_and_equal(cold, fold=True)


def folded_and_equal(lake: Lake, *, fold: bool = False) -> bool:
    """Whether each converted column has the type and the values of the plain table's."""
    if fold:
        for job in (lake.fold, lake.compact):
            (done,) = job("events")
            assert done.error is None
    shown = "select id, {}, {} from public.{{}} order by id".format(
        ", ".join(f"{column}::text" for column in CONVERTED), ", ".join(f"pg_typeof({column})" for column in CONVERTED)
    )
    with lake.connect() as connection:
        run(connection, "set timezone = 'UTC'")
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    return verify.run(lake.catalog, lake.table()).faults == ()


UNREAD = {
    "do $do$ begin execute 'alter table public._events alter column n type text using n || ''x'''; end $do$": "...",
    "do $$ begin alter table public._events alter column n type text using n || 'x'; end $$": "...",
    "create temp table _events (n int); alter table _events alter column n type text using 'y';"
    " alter table public._events alter column n type text using n || 'x'": "...",
    "select frostline.alter_table('public._events', 'alter column n type text using n || ''x''')": "n || 'x'",
    """alter table if exists "public" . "_events" add column extra int, alter "n" type text using n || 'x';
       create index on public.plain using btree (n)""": "n || 'x'",
    "create index on public.plain using btree (n); alter table public._events alter n type text": "n",
}
"""What the hint computes the column by: what cannot be read for sure is left to the user."""


@pytest.mark.parametrize("statement", UNREAD)
def test_a_conversion_that_is_not_read_for_sure_is_left_out_of_the_hint(cold: Lake, statement: str) -> None:
    assert guard.ensure(cold.catalog)
    with cold.connect() as connection, pytest.raises(psycopg.errors.FeatureNotSupported, match="become text") as error:
        run(connection, statement)
    assert f"set n_new = {UNREAD[statement]}; alter" in str(error.value.diag.message_hint)
    is_left_out = "USING says goes in the place of the dots" in str(error.value.diag.message_detail)
    assert is_left_out is (UNREAD[statement] == "...")


def test_the_hint_for_a_key_does_it(cold: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres may alter it once it is a plain table."""
    assert guard.ensure(cold.catalog)
    change = "alter column id type text using 'k' || lpad(id::text, 4, '0')"
    hint = refused(cold, f"alter table public._events {change}")
    program, *words = shlex.split(hint.split(" brings")[0])
    assert (program, words) == ("frostline", ["table", "remove", "public.events", "--thaw"])
    monkeypatch.setenv("FROSTLINE_DSN", cold.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(cold.warehouse))
    copies.without_spark(cold, monkeypatch)
    monkeypatch.setattr(pipeline_spark, "session", lambda *_, **__: None)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _: None)
    removed = command(*words)
    assert removed.exit_code == 0, removed.stderr
    with cold.connect() as connection:
        both(connection, f"alter table public.{{t}} {change}")
    cold.add()
    (archived,) = cold.archive("events")
    assert archived.error is None
    assert cold.clean().waiting == ()
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_the_hint_of_a_renamed_label_adds_it(cold: Lake) -> None:
    assert guard.ensure(cold.catalog)
    with cold.connect() as connection:
        run(connection, MORE)
        both(connection, FILLED)
        (folded,) = cold.fold("events")
        assert folded.error is None
        for step in refused(cold, "alter type public.mood rename value 'bad' to 'it''s bad'").split("; "):
            run(connection, step)
        counted = "select mood::text, count(*) from public.events group by 1 order by 1"
        assert [label for label, _ in rows(connection, counted)] == ["good", "it's bad", None]


def test_without_event_triggers_a_command_does_it(cold: Lake) -> None:
    altering.alter(cold.catalog, cold.table(), "alter column id type bigint, alter column n type bigint")
    run(cold.catalog, "alter table public.plain alter column id type bigint, alter column n type bigint")
    with cold.connect() as connection:
        both(connection, "update public.{t} set n = 5000000000 where id in (31, 32, 107)")
    is_whole(cold)


def test_without_event_triggers_the_hint_is_commands(cold: Lake) -> None:
    change = "alter column n type text using 'n' || n || v"
    with pytest.raises(UsageError, match="cannot become text") as refused_change:
        altering.alter(cold.catalog, cold.table(), change)
    steps = str(refused_change.value.hint).split("; ")
    assert [step.split()[0] for step in steps] == ["frostline", "update", "frostline", "frostline"]
    for step in steps:
        words = shlex.split(step)
        if words[0] == "frostline":
            assert words[1:4] == ["table", "alter", "public.events"]
            altering.alter(cold.catalog, cold.table(), words[4])
        else:
            run(cold.catalog, step)
    run(cold.catalog, f"alter table public.plain {change}")
    with cold.connect() as connection:
        shown = "select id, n, v from public.{} order by id"
        assert rows(connection, shown.format("events")) == rows(connection, shown.format("plain"))
    assert verify.run(cold.catalog, cold.table()).faults == ()
