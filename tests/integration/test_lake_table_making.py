"""How lake tables are made, and what of their definition holds: CHECKs, a key, a table that they are like."""

import json
import threading

import psycopg
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import waiting
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.lake_sessions import metadata, refused

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import UsageError
from frostline.lake import lake_table
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.relation import lake_foreign

READINGS = Name("public", "readings")


def made(lake: Lake, *columns: str, layout: Layout = Layout(), like: str | None = None) -> lake_foreign.TakenOver:  # noqa: B008
    taken = lake_foreign.like(lake.catalog, Name.parse(like)) if like else lake_foreign.NOTHING
    lake_tables.create(lake.catalog, lake.settings, READINGS, columns, layout, taken)
    return taken


def test_checks_hold_whichever_way_a_row_comes(lake: Lake, psql: psycopg.Connection) -> None:
    made(
        lake,
        "id bigint constraint positive check (id > 0)",
        "device text constraint named check (device ~ '^d[0-9]+$' and length(device) < id + 10)",
        "day date check (day >= '2024-01-01'::date)",
        """data jsonb check ((data->>'k')::int between 1 and 9)""",
    )
    good = "select id, device, day::text, data from readings order by id"
    psql.execute("""insert into readings values (1, 'd1', '2024-01-01', '{"k": 1}'), (2, null, null, null)""")
    before = psql.execute(good).fetchall()
    refused(psql, "insert into readings values (0)", "positive")
    refused(psql, "insert into readings values (3, 'd3'), (4, 'nonsense')", "named")
    refused(psql, "insert into readings (id, day) values (3, '2023-12-31') returning id", "readings_day_check")
    refused(psql, "insert into readings select n from generate_series(12000, -1, -1) n", "positive")
    refused(psql, "update readings set id = id - 1", "positive")
    refused(psql, "update readings set device = device || 'x' where id = 1 returning id", "named")
    refused(psql, "update readings set id = id - (random() * 0)::int - 1", "positive")
    refused(psql, """update readings set data = '{"k": 10}' where id = 1 and random() < 2""", "readings_data_check")
    with (
        pytest.raises(psycopg.errors.CheckViolation, match="positive"),
        psql.cursor().copy("copy readings (id, device) from stdin") as copy,
    ):
        copy.write("7\td7\n-7\td7\n")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        psql.execute("""insert into readings (id, data) values (3, '{"k": "no number"}')""")
    assert psql.execute(good).fetchall() == before
    psql.execute("begin")
    psql.execute("insert into readings values (5, 'd5')")
    psql.execute("savepoint one")
    refused(psql, "insert into readings values (-5, 'd5')", "positive")
    psql.execute("rollback to one")
    psql.execute("update readings set id = id + 10 where id = 5")
    psql.execute("commit")
    assert psql.execute("select id from readings order by id").fetchall() == [(1,), (2,), (15,)]


def test_the_values_of_domains_are_looked_at_by_postgres(lake: Lake, psql: psycopg.Connection) -> None:
    lake.catalog.execute("create domain public.positive as int check (value > 0)")
    made(lake, "id bigint", "n public.positive", "list public.positive[]")
    psql.execute("insert into readings values (1, 1, '{1}')")
    for statement in (
        "insert into readings values (2, -2)",
        "insert into readings values (2, 2, '{-2}')",
        "update readings set n = -1",
        "update readings set n = n - id - 5",
        "update readings set n = - n where random() < 2",
        "update readings set list = list || '{-1}'::int[]::public.positive[]",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            psql.execute(statement.encode())
    assert psql.execute("select * from readings").fetchall() == [(1, 1, "{1}")]


STRANGE = (
    ("public.mine(id)", r"function public\.mine"),
    ("id operator(public.===) 1", r"function public\.mine"),
    ("random() < id", r"function random\(\)"),
    ("day < now()", r"function now\(\)"),
    ("id < extract(day from current_date)", "(a value of the session|function)"),
    ("current_user <> 'x'", "a value of the session"),
    ("day::text < 'x'", "a cast by the text of type timestamp with time zone"),
    ("mood is not null", r"column mood of type public\.mood"),
    ("readings is not null", "a whole row"),
    ("tableoid > 0", "a whole row, or tableoid"),
    ("note = 'x' collate public.mine", r"collation public\.mine"),
)
"""CHECKs, and what each of them uses that depends on more than the row."""


def test_a_check_that_depends_on_more_than_the_row_is_refused(lake: Lake) -> None:
    lake.catalog.execute("""
        create function public.mine(bigint) returns boolean immutable return $1 > 0;
        create function public.mine(bigint, integer) returns boolean immutable return $1 > $2;
        create operator public.=== (leftarg = bigint, rightarg = integer, function = public.mine);
        create type public.mood as enum ('good', 'bad');
        create collation public.mine from "C" """)
    columns = ("id bigint", "day timestamptz", "mood public.mood", "note text")
    for check, used in STRANGE:
        with pytest.raises(UsageError, match=f"CHECK .* uses {used}"):
            made(lake, *columns[:-1], f"note text check ({check})")
        statement = f"create table public.other ({', '.join(columns)}, check ({check.replace('readings', 'other')}))"
        lake.catalog.execute(statement.encode())
        taken = lake_foreign.like(lake.catalog, Name("public", "other"))
        assert (taken.checks, "it uses" in taken.left_behind[-1]) == ([], True), (
            "a table that is like it has no such CHECK"
        )
        lake.catalog.execute("drop table public.other")
    assert catalog.listed(lake.catalog) == []


def test_a_table_that_is_like_another_has_its_columns_checks_defaults_and_comments(
    lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch, psql: psycopg.Connection
) -> None:
    lake.catalog.execute("""
        create table public.source (id bigserial primary key, who bigint generated always as identity,
            "The Note" varchar(5) collate "C" not null default 'it''s' constraint short check (length("The Note") < 5),
            twice bigint generated always as (id * 2) stored, at date default '2024-01-01',
            price numeric(6, 2) unique, check (id > 0));
        comment on table public.source is 'where it ''came'' from';
        comment on column public.source."The Note" is 'a "note"';
        alter table public.source enable row level security;
        create function public.nothing() returns trigger language plpgsql as 'begin return new; end';
        create trigger watch before insert on public.source for each row execute function public.nothing()
        """)
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    said = command("lake", "create", "readings", "--like", "source", "--column", "more int not null default 7",
                   "--output", "json")  # fmt: skip
    assert said.exit_code == 0, said.stderr
    left = json.loads(said.stdout)["not_taken_over"]
    for what in (
        "who is an identity",
        "twice is generated",
        "PRIMARY KEY (id)",
        "UNIQUE (price)",
        "watch",
        "row security",
    ):
        assert what in left
    psql.execute("insert into readings (who, price) values (5, 1.5)")
    row = psql.execute('select id, who, "The Note", twice, at::text, price::text, more from readings').fetchone()
    assert row == (1, 5, "it's", None, "2024-01-01", "1.50", 7)
    refused(psql, """insert into readings ("The Note", who) values ('12345', 1)""", "short")
    refused(psql, "insert into readings (id, who) values (0, 1)", "source_id_check")
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        psql.execute("""insert into readings ("The Note") values ('123456')""")
    comments = "select obj_description('readings'::regclass), col_description('readings'::regclass, 3)"
    assert psql.execute(comments).fetchone() == ("where it 'came' from", 'a "note"')


def test_what_is_not_there_or_is_no_table_is_not_taken_for_one(lake: Lake) -> None:
    lake.catalog.execute("create sequence public.numbers")
    for name, why in (("nosuch", "does not exist"), ("numbers", "is no table")):
        with pytest.raises(UsageError, match=why):
            made(lake, like=name)


def test_a_key_is_known_to_other_engines_and_never_null_and_not_unique(lake: Lake, psql: psycopg.Connection) -> None:
    made(lake, "id bigint", "ts timestamptz", "note text", layout=Layout(key=["ts", "id"]))
    psql.execute("insert into readings values (2, '2024-01-02', 'a'), (1, '2024-01-01', 'b'), (1, '2024-01-01', 'b')")
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("insert into readings (id) values (3)")
    table = StaticTable.from_metadata(metadata(lake))
    assert table.schema().identifier_field_names() == {"id", "ts"}
    assert [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields] == ["ts", "id"]
    assert table.scan().to_arrow()["note"].to_pylist() == ["b", "b", "a"], "sorted by the key, and nothing is unique"
    shown = lake_tables.show(lake.catalog, catalog.load(lake.catalog, Pointer("public", "readings")))
    assert shown.key == ["ts", "id"]
    for wrong in ("nosuch", "ratio"):
        with pytest.raises(UsageError):
            lake_tables.create(
                lake.catalog, lake.settings, Name("public", "other"), ["ratio float"], Layout(key=[wrong])
            )


def test_a_drop_waits_for_who_writes_and_holds_nothing_that_the_commit_needs(
    lake: Lake, psql: psycopg.Connection
) -> None:
    """The commit needs the pointer: a drop that had it while it waits for the foreign table would wait for ever."""
    made(lake, "id bigint")
    psql.execute("begin")
    psql.execute("insert into readings values (1)")
    dropped = list[int]()
    thread = threading.Thread(
        target=lambda: dropped.append(lake_tables.drop(lake.catalog, lake.settings, READINGS, purge=False))
    )
    thread.start()
    with lake.connect() as watcher:
        waiting.until_true(
            watcher, "select count(*) from pg_locks where relation = 'readings'::regclass and not granted"
        )
    psql.execute("commit")
    thread.join()
    (gone,) = catalog.dropped(lake.catalog)
    assert (dropped, len(lake_table.state(gone.metadata_location).data)) == ([0], 1)
