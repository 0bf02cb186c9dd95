"""Every query gives of the relation the answer that it gives of a plain table with the same rows, however it is planned."""

import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.types.string import TextLoader
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run
from tests.property.queries import WRITES, Question, Questions

from frostline.relation import rowsecurity

pytestmark = pytest.mark.spark

QUERIES = 40
SPY = """
create function public.spy(n integer) returns boolean language plpgsql cost 0.0001 as $$
begin
    if n = 5 then raise 'saw a hidden row'; end if;
    return true;
end $$
"""
TYPES = """
create type public.mood as enum ('bad', 'fine');
create domain public.positive as numeric(12,2) check (value >= 0);
create table public.small (k integer primary key, ts timestamptz);
insert into public.small select i, timestamptz '2024-01-20 00:00+00' + i * interval '5 days' from generate_series(0, 14) i;
"""
TABLE = """
create table public.{name} (
    gone integer,
    id bigint not null,
    ts timestamptz not null,
    status text,
    code text collate "C",
    n integer,
    amount public.positive,
    mood public.mood,
    tags integer[],
    doubled numeric generated always as (amount * 2) stored,
    day date,
    flag boolean,
    primary key (id, ts)
) {partitioned};
alter table public.{name} drop column gone;
create index on public.{name} (ts);
create index on public.{name} (n);
"""
PARTITION = "create table public.{name}_{month} partition of public.{heap} for values from ('{first}') to ('{last}')"
ROWS = """
insert into public.{name} (id, ts, status, code, n, amount, mood, tags, day, flag)
select {base} + i, timestamptz '{first}' + i * interval '5 hours', case when i % 6 > 0 then 'row ' || i end, chr(60 + i % 40),
       nullif(i % 10, 4), i, (array['bad', 'fine', null]::public.mood[])[1 + i % 3], array[i % 5, i % 3],
       ('{first}'::timestamptz + i * interval '5 hours')::date, (array[true, false, null])[1 + i % 3]
  from generate_series(1, 30) i
"""
CHANGES = (
    "update public.{t} set status = 'changed', n = 3 where id in (1, 2, 33, 34, 95)",
    "update public.{t} set n = null, amount = null where id in (5, 35)",
    "delete from public.{t} where id in (3, 4, 36, 37, 66, 97)",
    "insert into public.{t} (id, ts, status, n) values (3, '2024-01-28 00:00+00', 'again', 1), (125, '2024-02-25 00:00+00', 'new', 2)",
    "update public.{t} set ts = ts + interval '27 days' where id in (6, 7)",
    "update public.{t} set ts = '2090-01-20 00:00+00' where id in (8, 38)",
    "update public.{t} set ts = '2024-01-02 01:00+00' where id in (67, 98)",
    "insert into public.{t} (id, ts, status, n) values (126, '2019-01-01 00:00+00', 'before everything', 7), (127, '2095-01-01 00:00+00', 'after', 7)",
    "insert into public.{t} (id, ts, n) values (128, '-infinity', 7), (129, 'infinity', 7)",
)
MONTHS = (("1", "2024-01-01 00:00+00", "2024-02-01 00:00+00"), ("2", "2024-02-01 00:00+00", "2024-03-01 00:00+00"))
LATER = (("3", "2024-03-01 00:00+00", "2024-04-01 00:00+00"), ("hot", "2090-01-01 00:00+00", "2090-02-01 00:00+00"))


@pytest.fixture(scope="module")
def lake_of_all_states(shared_lake: Lake) -> Lake:
    """January is only in the lake, February archived and still in the heap, March and 2090 hot; with marks of each kind."""
    lake = shared_lake
    run(lake.catalog, TYPES)
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)"))
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    month(lake, "events", 0, *MONTHS[0])
    lake.add()
    archived(lake)
    assert lake.clean().waiting == ()
    month(lake, "_events", 30, *MONTHS[1])
    archived(lake)
    for base, when in zip((60, 90), LATER, strict=True):
        month(lake, "_events", base, *when)
    with lake.connect() as connection:
        for statement in CHANGES:
            for name in ("events", "plain"):
                run(connection, statement.format(t=name))
    run(lake.catalog, "analyze public._events; analyze public.plain; analyze public.small")
    return lake


def month(lake: Lake, heap: str, base: int, name: str, first: str, last: str) -> None:
    run(lake.catalog, PARTITION.format(name="events", heap=heap, month=name, first=first, last=last))
    for table in (heap, "plain"):
        run(lake.catalog, ROWS.format(name=table, base=base, first=first))


def archived(lake: Lake) -> None:
    (result,) = lake.archive("events")
    assert result.error is None


@pytest.fixture(scope="module")
def secured(lake_of_all_states: Lake) -> Iterator[str]:
    """A role from which policies hide rows, and a function of its own that complains of each that it should not see."""
    lake = lake_of_all_states
    role = f"reader_{secrets.token_hex(4)}"
    run(
        lake.catalog,
        f"create role {role}; grant usage on schema public to {role}; grant select on public.small to {role}",
    )
    run(lake.catalog, SPY)
    for heap, relation in (("_events", "events"), ("plain", "plain")):
        run(lake.catalog, f"create policy visible on public.{heap} using (n is distinct from 5)")
        run(lake.catalog, f"grant select on public.{relation} to {role}")
    run(lake.catalog, "alter table public.plain enable row level security")
    rowsecurity.switch(lake.catalog, lake.table(), on=True)
    yield role
    rowsecurity.switch(lake.catalog, lake.table(), on=False)
    run(lake.catalog, "alter table public.plain disable row level security")
    run(lake.catalog, f"drop owned by {role}; drop role {role}")


@contextmanager
def session(lake: Lake, *settings: str) -> Generator[psycopg.Connection]:
    """A transaction that is rolled back."""
    with lake.connect() as connection, connection.transaction(force_rollback=True):
        for name in ("timestamptz", "date"):
            connection.adapters.register_loader(name, TextLoader)
        for setting in ("search_path = public", "timezone = 'UTC'", *settings):
            run(connection, f"set local {setting}")
        yield connection


def answer(connection: psycopg.Connection, question: Question, name: str) -> list[str]:
    text = question.text.format(t=f"public.{name}")
    match question.way:
        case "plain":
            received = rows(connection, text)
        case "cursor":
            run(connection, f"declare asked scroll cursor for {text}")
            received = rows(connection, "fetch all from asked")
            assert received == rows(connection, "fetch backward all from asked")[::-1]
            run(connection, "close asked")
        case _:
            run(connection, f"set local plan_cache_mode = force_{question.way}_plan")
            run(connection, f"prepare asked as {text}")
            received, again = (rows(connection, "execute asked") for _ in range(2))
            assert sorted(map(repr, received)) == sorted(map(repr, again))
            run(connection, "deallocate asked")
    return sorted(map(repr, received))


def compare(lake: Lake, question: Question, *settings: str) -> bool:
    """Both answers are the same; says whether there was a row."""
    with session(lake, *question.settings, *settings) as connection:
        ours, plain = (answer(connection, question, name) for name in ("events", "plain"))
    assert ours == plain, question
    return bool(ours)


@pytest.mark.parametrize("seed", first(1, range(10)))
def test_a_query_has_the_answer_of_a_plain_table(lake_of_all_states: Lake, seed: int) -> None:
    questions = Questions(seed)
    answered = sum(compare(lake_of_all_states, questions.question()) for _ in range(QUERIES))
    assert answered > QUERIES // 2


@pytest.mark.parametrize("seed", first(1, range(100, 105)))
def test_a_query_behind_policies_has_the_answer_of_a_plain_table(
    lake_of_all_states: Lake, secured: str, seed: int
) -> None:
    questions = Questions(seed, spies=True)
    answered = sum(compare(lake_of_all_states, questions.question(), f"role {secured}") for _ in range(QUERIES))
    assert answered > QUERIES // 2


@pytest.mark.parametrize("seed", first(1, range(8)))
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_a_write_has_the_effect_that_it_has_on_a_plain_table(lake_of_all_states: Lake, level: str, seed: int) -> None:
    questions = Questions(seed)
    statements = questions.choose.sample(WRITES, len(WRITES))
    with session(lake_of_all_states, f"transaction_isolation = '{level}'", *questions.settings()) as connection:
        for statement in statements:
            cursors = [run(connection, statement.format(t=name)) for name in ("events", "plain")]
            ours, plain = ((cursor.rowcount, sorted(map(repr, cursor.fetchall()))) for cursor in cursors)
            assert ours == plain, statement
            ours, plain = (rows(connection, f"select t::text from {name} t order by 1") for name in ("events", "plain"))
            assert ours == plain, statement
