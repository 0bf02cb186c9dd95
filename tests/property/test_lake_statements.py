"""Random statements do to a lake table what they do to a plain one: what is read, returned, counted, refused, undone."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.types.string import TextLoader
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run
from tests.property.queries import WRITES, Questions

from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables

STATEMENTS = 25
COLUMNS = (
    "id bigint not null",
    "ts timestamptz not null",
    "status text",
    'code text collate "C"',
    "n integer",
    "amount public.positive",
    "mood public.mood",
    "tags integer[]",
    "doubled numeric",
    "day date",
    "flag boolean",
    "wide double precision",
    "doc jsonb",
    "bytes bytea",
)
SETUP = """
create type public.mood as enum ('bad', 'fine');
create domain public.positive as numeric(12,2) check (value >= 0);
create table public.small (k integer primary key, ts timestamptz);
insert into public.small select i, timestamptz '2024-01-20 00:00+00' + i * interval '5 days' from generate_series(0, 14) i;
"""
FILL = """
insert into public.{t} (id, ts, status, code, n, amount, mood, tags, doubled, day, flag, wide, doc, bytes)
select i, timestamptz '2024-01-01 00:00+00' + i * interval '17 hours', case when i % 6 > 0 then 'row ' || i end, chr(60 + i % 40),
       nullif(i % 10, 4), i, (array['bad', 'fine', null]::public.mood[])[1 + i % 3], array[i % 5, i % 3], i * 2,
       ('2024-01-01'::date + i), (array[true, false, null])[1 + i % 3], i / 7.0, jsonb_build_object('i', i), int4send(i)
  from generate_series(1, 120) i
"""
LAYOUTS = (
    Layout(),
    Layout(["month(ts)", "bucket(3, id)"], ["ts desc", "id"]),
    Layout(["truncate(2, status)", "day"], ["n"]),
    Layout(["mood", "n"]),
)
_WRITES = tuple(statement for statement in WRITES if not statement.startswith("with u"))
"""A statement that reads what a part of it changes reads the change: postgres_fdw asks in the remote transaction."""
VALUES = {
    "status": ("null", "''", "'row 7'", "'Ä\\é \"x\" ''y'''", "repeat('long', 300)", "status || '!'", "chr(10)"),
    "code": ("null", "'A'", "'a'", "'~'", "code"),
    "n": ("null", "0", "-7", "n + 1", "2147483647", "id::int % 7"),
    "amount": ("null", "0", "1.005", "9999999999.99", "amount + 0.01", "-1"),
    "mood": ("null", "'bad'", "'fine'"),
    "tags": ("null", "'{}'", "'{1,NULL,3}'", "tags || n"),
    "doubled": ("null", "'NaN'", "1e30", "-0.10", "doubled * 2"),
    "day": ("null", "'infinity'", "'0044-03-15 BC'", "'9999-12-31'", "day + 1"),
    "flag": ("null", "true", "not flag", "n > 3"),
    "wide": ("null", "'NaN'", "'-0'", "'Infinity'", "1e-320", "wide / 3", "0.1"),
    "doc": ("null", "'{}'", """'{"a": [1, null, "ü"]}'""", "doc || '{\"b\": 2}'"),
    "bytes": ("null", "''", "'\\x00ff'", "bytes || '\\x5c'"),
    "ts": ("'infinity'", "'2024-02-29 23:59:59.999999+00'", "ts + interval '1 month'", "'1969-12-31 23:00+00'"),
}
"""What a column may be set to."""


class Statements(Questions):
    """Makes statements that write, always the same of one seed. `{t}` stands for the table."""

    def change(self) -> str:
        """What is set, of one column or more."""
        columns = self.choose.sample(list(VALUES), self.choose.randrange(1, 4))
        return ", ".join(f"{column} = {self.pick(VALUES[column])}" for column in columns)

    def statement(self) -> str:
        """One that changes rows, and perhaps returns them."""
        returning = self.pick(("", "", " returning {t}.*", " returning {t}.id, {t}.n"))
        new, where = self.choose.randrange(1000, 100_000), self.condition("{t}")
        some = f"id % {self.choose.randrange(2, 9)} = {self.choose.randrange(3)}"
        values = ", ".join(self.constant(column) for column in VALUES)
        into = f"insert into {{t}} (id, {', '.join(VALUES)})"
        return self.pick(
            (
                f"update {{t}} set {self.change()} where {where}{returning}",
                f"update {{t}} set {self.change()} where {some}{returning}",
                f"update {{t}} set {self.change()} where {some} and random() < 2{returning}",
                f"update {{t}} set id = id + {new} where {some}",
                f"update {{t}} set n = s.k, status = 'joined' from small s where s.k = {{t}}.n and {{t}}.{some}{returning}",
                f"update {{t}} set doc = null, n = f.n from {{t}} f where f.id = {{t}}.id + 1 and f.{some} and {where}",
                f"delete from {{t}} where {where} and {some}{returning}",
                f"delete from {{t}} where {some} and random() < 2{returning}",
                f"delete from {{t}} using {{t}} f where f.id = {{t}}.id + 1 and f.n = 3 and {{t}}.{some} returning {{t}}.id",
                f"delete from {{t}} using small s where s.k = {{t}}.n and {{t}}.{some} and {where}{returning}",
                f"{into} values ({new}, {values}), ({new + 1}, {values}){returning}",
                f"{into} select id + {new}, {', '.join(VALUES)} from {{t}} where {where} order by id, ts limit 30{returning}",
                f"insert into {{t}} (ts, id, n) select s.ts, s.k + {new}, s.k from small s {returning}",
                "insert into {t} (id, ts) values (null, '2024-01-01')",
                f"update {{t}} set id = null where {some} and id > 0",
                f"with u as (update {{t}} set n = n + 1 where {some} returning id, n) select u.id, u.n, s.k from u left join small s on s.k = u.n",
                f"with d as (delete from {{t}} where {some} returning *) select count(*), sum(amount), max(wide::text) from d",
                (
                    f"do $$ declare r record; begin for r in select id, ts from {{t}} where {some} order by id, ts loop"
                    f" begin update {{t}} set n = coalesce(n, 0) + 1 where id = r.id and ts = r.ts;"
                    f" if r.id % 3 = 0 then raise 'undone'; end if; exception when raise_exception then null; end; end loop; end $$"
                ),
                self.pick(_WRITES),
            )
        )

    def constant(self, column: str) -> str:
        """A value that needs no row."""
        return self.pick(tuple(value for value in VALUES[column] if not any(name in value for name in (*VALUES, "id"))))


@contextmanager
def session(lake: Lake) -> Generator[psycopg.Connection]:
    """A session that reads what it compares as text."""
    with lake.connect() as connection:
        for name in ("timestamptz", "date", "float8", "jsonb", "bytea", "numeric"):
            connection.adapters.register_loader(name, TextLoader)
        run(connection, "set search_path = public; set timezone = 'UTC'")
        yield connection


@pytest.fixture(scope="module")
def filled(shared_lake: Lake) -> Callable[[int, Layout], None]:
    """Fills a lake table of that layout and a plain one with the same rows."""
    run(shared_lake.catalog, SETUP)

    def fill(number: int, layout: Layout) -> None:
        lake_tables.create(shared_lake.catalog, shared_lake.settings, Name("public", f"lake{number}"), COLUMNS, layout)
        run(shared_lake.catalog, f"create table public.plain{number} ({', '.join(COLUMNS)})")
        for name in ("lake", "plain"):
            run(shared_lake.catalog, FILL.format(t=f"{name}{number}"))

    return fill


def outcome(connection: psycopg.Connection, statement: str, name: str) -> tuple[object, ...]:
    """What the statement gives, or the SQLSTATE of its error; the transaction can go on either way."""
    run(connection, "savepoint attempt")
    try:
        cursor = run(connection, statement.replace("{t}", name))
        given = (cursor.rowcount, sorted(map(repr, cursor.fetchall())) if cursor.description else None)
        rows(connection, f"select count(*) from {name}")  # what is wrong in new rows may be said when they are read
    except psycopg.Error as error:
        run(connection, "rollback to attempt; release attempt")
        return (error.sqlstate,)
    run(connection, "release attempt")
    return given


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(0, range(4)))
def test_a_statement_does_what_it_does_to_a_plain_table(
    shared_lake: Lake, filled: Callable[[int, Layout], None], seed: int
) -> None:
    choose = Statements(seed)
    filled(seed, LAYOUTS[seed % len(LAYOUTS)])
    ours, plain = f"lake{seed}", f"plain{seed}"
    changed, left = 0, STATEMENTS
    with session(shared_lake) as connection:
        while left > 0:
            run(connection, "begin")
            open_savepoints, number = list[int](), 0
            for _ in range(choose.choose.randrange(1, 8)):
                left -= 1
                if choose.chance(0.3):
                    number += 1
                    open_savepoints.append(number)
                    run(connection, f"savepoint s{number}")
                statement = choose.statement()
                both = [outcome(connection, statement, name) for name in (ours, plain)]
                assert both[0] == both[1], (seed, statement)
                changed += len(both[0]) == 2 and both[0][0] != 0
                if open_savepoints and choose.chance(0.4):
                    chosen = choose.choose.choice(open_savepoints)
                    del open_savepoints[open_savepoints.index(chosen) + 1 :]
                    run(connection, f"rollback to s{chosen}")
                if choose.chance(0.2):
                    same(connection, ours, plain, statement)
            run(connection, choose.pick(("commit", "commit", "rollback")))
            same(connection, ours, plain, "the end of the transaction")
            question = choose.question()
            answers = [
                sorted(map(repr, rows(connection, question.text.replace("{t}", name)))) for name in (ours, plain)
            ]
            assert answers[0] == answers[1], (seed, question)
    assert changed > STATEMENTS // 3


def same(connection: psycopg.Connection, ours: str, plain: str, after: str) -> None:
    """Both tables have the same rows."""
    read = [rows(connection, f'select t::text from {name} t order by t::text collate "C"') for name in (ours, plain)]
    assert read[0] == read[1], after
