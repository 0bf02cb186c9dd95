"""A column with a volatile default is followed at once: each cold row has a value of its own, the same at every read."""

import importlib.util
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.sparkrows import in_postgres, in_spark
from tests.fixtures.statements import rows, run, value

from frostline import spark as connector
from frostline.catalog.connect import Connection
from frostline.model import missing
from frostline.model.names import Name
from frostline.pipeline import verify
from frostline.relation import columns, guard, policy

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("released")]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/seam_reader.py"
TABLE = """
create table public.events (id int, ts timestamptz, code {code}, status text, primary key (id, code, ts)) partition by range (ts)"""
MONTHS = """
create table public.events_{0} partition of public._events for values from ('2024-0{0}-01+00') to ('2024-0{1}-01+00')"""
ROWS = """
insert into public.events select m * 100 + i, make_timestamptz(2024, m, 5, 0, 0, i + 0.25, 'UTC'), {value}, 's' || i
  from generate_series({first}, {last}) m, generate_series(1, 8) i"""
ADDED = (
    "alter table public._events add column x uuid not null default gen_random_uuid(),"
    " add column made timestamptz default clock_timestamp()"
)
SHOWN = "select id, x, made from public.events order by id, ts"
CODES = {
    "text": r"'a\b' || chr(31) || i || '€'",
    "numeric(9, 3)": "-i / 8.0",
    "boolean": "i % 2 = 0",
    "date": "date '0044-03-15 BC' + i",
    "timestamp": "timestamp '2024-01-01 00:00:00.5' + i * interval '1 us'",
    "bytea": r"decode('005c1f', 'hex') || convert_to(i::text, 'UTF8')",
    "char(5)": "'c' || i",
    "bigint": "i::bigint << 60",
    "uuid": "md5(i::text)::uuid",
    "int[]": "array[i, null]",
}


def begin(lake: Lake, code: str = "text", grace: str = "10 years") -> Lake:
    """Two months in the lake, still in the heap, some rows changed since; one hot month."""
    run(lake.catalog, TABLE.format(code=code))
    lake.add(grace=grace)
    assert guard.ensure(lake.catalog)
    for month in (1, 2, 3):
        run(lake.catalog, MONTHS.format(month, month + 1))
    with lake.connect() as connection:
        run(connection, ROWS.format(first=1, last=2, value=CODES[code]))
    archive(lake)
    with lake.connect() as connection:
        run(connection, ROWS.format(first=3, last=3, value=CODES[code]))
        run(connection, "update public.events set status = 'changed' where id in (101, 202)")
        run(connection, "delete from public.events where id = 105")
    return lake


def archive(lake: Lake) -> None:
    (result,) = lake.archive()
    assert result.error is None, result.error


def shown(lake: Lake) -> list[Any]:
    with lake.connect() as connection:
        return rows(connection, SHOWN)


def is_whole(lake: Lake, expected: list[Any]) -> None:
    """Every row has the values that it had, and every file is as it is recorded."""
    assert shown(lake) == expected
    assert columns.difference(lake.catalog, lake.table()) is None
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.fixture
def filled(lake: Lake) -> Lake:
    begin(lake)
    with lake.connect() as connection:
        run(connection, ADDED)
    return lake


def test_each_row_keeps_its_value_through_every_job(filled: Lake) -> None:
    before = shown(filled)
    assert len(before) == 23
    assert {str(x)[14] for _, x, _ in before} == {"4"}
    assert len({x for _, x, _ in before}) == 23
    assert None not in {made for _, _, made in before}
    is_whole(filled, before)
    filled.undo(to="2024-02-01 00:00:00+00")
    is_whole(filled, before)
    policy.change(filled.catalog, filled.table(), release=True)
    archive(filled)
    with filled.connect() as connection:
        run(connection, "update public.events set status = 'again' where id % 3 = 0")
    is_whole(filled, before)
    (folded,) = filled.fold()
    assert folded.error is None
    is_whole(filled, before)
    policy.change(filled.catalog, filled.table(), grace_period="0")
    assert filled.clean().waiting == ()
    is_whole(filled, before)
    filled.thaw(first="2024-02-01 00:00:00+00")
    is_whole(filled, before)
    policy.change(filled.catalog, filled.table(), release=True)
    archive(filled)
    (compacted,) = filled.compact()
    assert compacted.error is None
    is_whole(filled, before)


def test_every_reader_shows_the_same_values(filled: Lake) -> None:
    policy.change(filled.catalog, filled.table(), grace_period="0")
    assert filled.fold()[0].error is None
    assert filled.clean().waiting == ()
    is_whole(filled, shown(filled))
    run(filled.catalog, "create table public.plain as select * from public.events")
    plain = rows(filled.catalog, "select id, x::text from public.plain order by id")
    frame = connector.read(filled.session(), "public.events", dsn=filled.dsn)
    assert in_spark(frame) == in_postgres(filled.catalog, "public.plain")
    read = _seam_reader().read(filled.dsn, "public", "events")
    assert sorted((row[0], row[4]) for row in read) == plain
    copies.create(filled, "public.events")
    copy = copies.by_pyiceberg(copies.shown(filled)[Name.parse("events")])
    assert sorted(zip(copy.column("id").to_pylist(), copy.column("x").to_pylist(), strict=True)) == plain
    connector.write(frame.where("id = 103").selectExpr("id", "ts", "code", "'spark' as status"), "public.events", "upsert", dsn=filled.dsn)  # fmt: skip
    assert rows(filled.catalog, "select id, x::text from public.events order by id") == plain
    with filled.connect() as connection:
        for _, wanted in plain:
            assert value(connection, f"select count(*) from public.events where x = '{wanted}'") == 1
        least = "select min(x::text), max(made), count(distinct x) from public.{}"
        assert rows(connection, least.format("events")) == rows(connection, least.format("plain"))


@pytest.mark.parametrize("code", first(1, CODES))
def test_postgres_duckdb_and_python_compute_the_same_from_any_key(lake: Lake, code: str) -> None:
    begin(lake, code)
    run(lake.catalog, "alter table public._events add column x uuid default gen_random_uuid()")
    column = lake.table().column("x")
    own = missing.own(column)
    assert own is not None
    key = "frostline.text_v1(id), frostline.text_v1(code), frostline.text_v1(ts)"
    heap = rows(
        lake.catalog, f"select array[{key}], x::text from public._events where ts < '2024-03-01' and status like 's%'"
    )
    assert len(heap) == 13
    assert [own.of(parts) for parts, _ in heap] == [x for _, x in heap]
    with lake.connect() as connection:
        cold = f"select array[{key}], x::text from public.events where ts < '2024-03-01' and status like 's%'"
        assert sorted(rows(connection, cold)) == sorted(heap)
    policy.change(lake.catalog, lake.table(), grace_period="0")
    assert lake.fold()[0].error is None
    assert lake.clean().waiting == ()  # which compares each value of the heap with the lake's


def test_a_transaction_reads_the_values_that_it_commits(lake: Lake) -> None:
    begin(lake)
    with lake.connect() as connection:
        with connection.transaction():
            run(connection, ADDED)
            run(connection, "update public.events set status = 'own' where id = 103")
            before = rows(connection, SHOWN)
        assert rows(connection, SHOWN) == before
        with connection.transaction(force_rollback=True):
            run(connection, ADDED.replace("column x", "column z").replace("column made", "column later"))
        assert rows(connection, SHOWN) == before
    is_whole(lake, before)


def test_the_lake_may_be_down_and_triggers_do_not_fire(lake: Lake) -> None:
    begin(lake)
    run(
        lake.catalog,
        "create function public.no() returns trigger language plpgsql as 'begin raise exception ''fired''; end'",
    )
    run(lake.catalog, "create trigger no before update on public._events for each row execute function public.no()")
    marks = rows(lake.catalog, "select id, frostline_live from frostline_overlay.events_1 order by 1")
    lake.server.stop()
    run(lake.catalog, ADDED)
    assert rows(lake.catalog, "select id, frostline_live from frostline_overlay.events_1 order by 1") == marks
    assert value(lake.catalog, "show session_replication_role") == "origin"


def test_a_version_seven_tells_when_the_column_was_added(lake: Lake) -> None:
    if lake.catalog.info.server_version < 180000:
        pytest.skip("uuidv7 came with 18")
    begin(lake)
    run(
        lake.catalog,
        "alter table public._events add column x uuid default uuidv7(), add column made timestamptz default clock_timestamp()",
    )
    before = shown(lake)
    assert {uuid.UUID(str(x)).version for _, x, _ in before} == {7}
    late = "select count(*) from public.events where abs(extract(epoch from uuid_extract_timestamp(x) - made)) > 60"
    assert value(lake.catalog, late) == 0


@pytest.mark.parametrize(
    "change",
    [
        "add column x uuid, alter column x set default gen_random_uuid()",
        "add column x float8 default random()",
        "add column x text default gen_random_uuid()",
        "add column x timestamp default clock_timestamp()",
        "add column x bigint default nextval('public.numbers')",
        "add column x uuid default public.mine()",
        "add column x int generated always as (id * 2) stored",
        "add column x bigint generated by default as identity",
        "add column x bigserial",
    ],
)
def test_what_is_not_known_is_refused_unless_it_is_allowed(lake: Lake, change: str) -> None:
    """The hint has statements that do it; where it is allowed, jobs wait until it is mended."""
    begin(lake)
    run(lake.catalog, "create sequence public.numbers")
    run(lake.catalog, "create function public.mine() returns uuid language sql volatile as 'select gen_random_uuid()'")
    with lake.connect() as connection:
        before = rows(connection, "select oid from pg_class order by 1")
        with pytest.raises(
            psycopg.NotSupportedError, match=r"column x of public\._events needs a value of its own"
        ) as said:
            run(connection, f"alter table public._events {change}")
        assert rows(connection, "select oid from pg_class order by 1") == before
        run(lake.catalog, "set frostline.unfilled_columns = allow")
        assert "does not have column x yet" in _warnings(lake.catalog, f"alter table public._events {change}")
        run(lake.catalog, "alter table public._events drop column x")
        assert columns.difference(lake.catalog, lake.table()) is None
        hint = str(said.value.diag.message_hint)
        assert hint.startswith("frostline table alter public.events 'add column x ")
    assert columns.difference(lake.catalog, lake.table()) is None


def test_triggers_that_always_fire_leave_it_to_the_steps(lake: Lake) -> None:
    begin(lake)
    run(
        lake.catalog,
        "create function public.no() returns trigger language plpgsql as 'begin raise exception ''fired''; end'",
    )
    run(
        lake.catalog,
        "create trigger no before update on public.events_default for each row execute function public.no()",
    )
    run(lake.catalog, "alter table public.events_default enable always trigger no")
    with pytest.raises(psycopg.NotSupportedError, match="column x of"):
        run(lake.catalog, ADDED)


def test_an_empty_heap_is_filled_by_what_the_statement_says(lake: Lake) -> None:
    begin(lake, grace="0")
    with lake.connect() as connection:
        run(connection, "delete from public.events where ts >= '2024-03-01+00'")
    assert lake.fold()[0].error is None
    assert lake.clean().waiting == ()
    assert value(lake.catalog, "select count(*) from public._events") == 0
    both = "alter table public._events add column x uuid, alter column x set default gen_random_uuid()"
    with pytest.raises(psycopg.NotSupportedError, match="column x of"):
        run(lake.catalog, both)
    run(lake.catalog, ADDED)
    assert len({x for _, x, _ in shown(lake)} - {None}) == 15


def test_not_null_is_known_to_hold_and_other_constraints_are_not(filled: Lake) -> None:
    check = "alter table public._events add constraint even check (length(x::text) = 36)"
    with (
        filled.connect() as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="even does not"),
    ):
        run(connection, check)
    run(filled.catalog, "alter table public._events alter column x drop not null, alter column made set not null")
    run(filled.catalog, "alter table public._events alter column x set not null")
    run(filled.catalog, "alter table public._events rename column code to passing")
    before = shown(filled)
    run(filled.catalog, "alter table public._events alter column id type bigint")
    is_whole(filled, before)


def _warnings(connection: Connection, statement: str) -> str:
    said: list[str] = []
    connection.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    run(connection, statement)
    return "\n".join(said)


def _seam_reader() -> Any:
    spec = importlib.util.spec_from_file_location("seam_reader", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
