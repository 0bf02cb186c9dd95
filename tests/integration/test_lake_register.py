"""How a table that another engine has made, or a copy of a tiered one, becomes a lake table."""

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fixtures.catalogserver import NUMBERS, numbers
from tests.fixtures.lake import Lake
from tests.fixtures.lake_sessions import refused
from tests.fixtures.outsider import outsider
from tests.fixtures.twins import make_twins

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import FrostlineError, UsageError
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_register, lake_tables
from frostline.relation import lake_foreign

READINGS = Name("public", "readings")


def made(lake: Lake, *columns: str, layout: Layout = Layout(), like: str | None = None) -> lake_foreign.TakenOver:  # noqa: B008
    taken = lake_foreign.like(lake.catalog, Name.parse(like)) if like else lake_foreign.NOTHING
    lake_tables.create(lake.catalog, lake.settings, READINGS, columns, layout, taken)
    return taken


def shape(lake: Lake) -> str:
    """A folder for a table of another engine."""
    return f"file://{lake.warehouse}/~lake/app/numbers"


def registered(lake: Lake, metadata_location: str | None = None, name: str = "public.numbers") -> None:
    pointer = Pointer("app", "numbers")
    lake_register.register(lake.catalog, lake.settings, pointer, Name.parse(name), metadata_location)


def test_a_table_that_another_engine_has_put_into_the_catalog_becomes_a_lake_table(
    lake: Lake, psql: psycopg.Connection
) -> None:
    with outsider(lake.dsn) as engine:
        engine.create_namespace_if_not_exists("app")
        other = engine.create_table("app.numbers", NUMBERS, location=shape(lake))
        other.append(numbers(1, 2, 3))
        registered(lake)
        psql.execute("insert into numbers values (4, 'ours')")
        psql.execute("delete from numbers where id = 2")
        psql.execute("update numbers set word = upper(word) where id = 1")
        assert psql.execute("select id, word from numbers order by id").fetchall() == [
            (1, "NEW"),
            (3, "new"),
            (4, "ours"),
        ]
        assert set(engine.load_table("app.numbers").scan().to_arrow()["id"].to_pylist()) == {1, 3, 4}
        with pytest.raises(UsageError, match=r"app\.numbers is public\.numbers here"):
            registered(lake, name="public.again")
        psql.execute("drop foreign table numbers")
        with engine.load_table("app.numbers").update_schema() as change:
            change.rename_column("word", "text")
        registered(lake, name="public.again")
        assert psql.execute("select count(*) from again").fetchone() == (3,)
        assert psql.execute("select text from again where id = 4").fetchone() == ("ours",)
        with engine.load_table("app.numbers").update_schema() as change:
            change.rename_column("text", "note")
        with pytest.raises(psycopg.Error, match="lake sync"):
            psql.execute("select text from again")
    lake_tables.drop(lake.catalog, lake.settings, Name("app", "numbers"), purge=False)
    (gone,) = catalog.dropped(lake.catalog)
    registered(lake, gone.metadata_location)
    assert psql.execute("select count(*) from numbers").fetchone() == (3,)
    assert catalog.dropped(lake.catalog) == []


def test_a_table_of_postgres_keeps_its_types_where_it_is_registered(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute("create type mood as enum ('good', 'bad')")
    columns = (
        "id bigint not null check (id > 0)",
        "price numeric(6,2)",
        "mood public.mood",
        'note varchar(3) collate "C"',
    )
    made(lake, *columns)
    psql.execute("insert into readings values (1, 1.5, 'bad', 'abc')")
    shown = (
        "select attname, format_type(atttypid, atttypmod), attnotnull, attcollation from pg_attribute where attnum > 0"
    )
    before = psql.execute(f"{shown} and attrelid = 'readings'::regclass".encode()).fetchall()
    psql.execute("drop foreign table readings")
    pointer = Pointer("public", "readings")
    lake_register.register(lake.catalog, lake.settings, pointer, Name("public", "back"), None)
    assert psql.execute(f"{shown} and attrelid = 'back'::regclass".encode()).fetchall() == before
    assert psql.execute("select * from back").fetchall() == [(1, 1.5, "bad", "abc")]
    with pytest.raises(psycopg.errors.CheckViolation):
        psql.execute("insert into back values (0)")
    psql.execute("drop foreign table back; drop type mood")
    with pytest.raises(UsageError, match=r"public\.readings is at .*; hint: leave --metadata out"):
        lake_register.register(lake.catalog, lake.settings, pointer, Name("public", "back"), "file:///elsewhere")
    with pytest.raises(UsageError, match=r'type "public\.mood" does not exist'):
        lake_register.register(lake.catalog, lake.settings, pointer, Name("public", "back"), None)
    psql.execute("create domain mood as text")
    with pytest.raises(
        UsageError, match=r"column mood was public\.mood where the table was made, and is not that here"
    ):
        lake_register.register(lake.catalog, lake.settings, pointer, Name("public", "back"), None)


def test_what_cannot_be_a_lake_table_is_refused_with_the_reason(lake: Lake, psql: psycopg.Connection) -> None:
    def refuse(why: str, metadata_location: str | None = None) -> None:
        with pytest.raises(UsageError, match=why):
            registered(lake, metadata_location)
        assert psql.execute("select to_regclass('public.numbers')").fetchone() == (None,)

    refuse(r"the Iceberg catalog has no table app\.numbers")
    refuse("there is no file", f"{shape(lake)}/metadata/00000-none.metadata.json")
    with outsider(lake.dsn) as engine:
        engine.create_namespace_if_not_exists("app")
        engine.create_table("app.numbers", NUMBERS, location=f"file://{lake.warehouse}/elsewhere")
        refuse("is not the metadata of a table in")
        engine.drop_table("app.numbers")
        inside = engine.create_table("app.inside", NUMBERS, location=shape(lake))
        refuse(r"has files of app\.inside", inside.metadata_location)
        engine.drop_table("app.inside")
        nested = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64()))])
        engine.create_table("app.numbers", nested, location=shape(lake))
        refuse("column list of type list<long> cannot be shown in Postgres")
        engine.drop_table("app.numbers")
        engine.create_table("app.numbers", NUMBERS, location=shape(lake), properties={"format-version": "1"})
        refuse("is of format 1, and lake tables are of format 2")
        engine.drop_table("app.numbers")
        table = engine.create_table("app.numbers", NUMBERS, location=f"{shape(lake)}-2")
        within = lake.warehouse / "~lake/app/numbers-2/data/added.parquet"
        within.parent.mkdir(parents=True)
        pq.write_table(numbers(7), within)
        table.add_files([f"file://{within}"])
        refuse("files without field ids")
    broken = lake.warehouse / "~lake/app/broken/metadata/00000-x.metadata.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{}")
    with pytest.raises(FrostlineError):
        registered(lake, f"file://{broken}")


@pytest.mark.spark
def test_a_tiered_table_becomes_a_lake_table_by_a_copy_of_both_tiers_and_goes_back(
    lake: Lake, psql: psycopg.Connection
) -> None:
    make_twins(lake)
    taken = lake_foreign.like(lake.catalog, Name("public", "events"))
    lake_tables.create(
        lake.catalog, lake.settings, Name("public", "logs"), [], Layout(["month(ts)"], [], ["id", "ts"]), taken
    )
    with psql.transaction():
        for table in ("events", "plain"):
            psql.execute(
                f"update {table} set status = 'changed' where id in (3, 70); delete from {table} where id = 4".encode()
            )
        psql.execute("insert into logs select * from events")
    whole = "select id, t::text from {} t order by id"
    expected = psql.execute(b"select id, t::text from plain t order by id").fetchall()
    assert psql.execute(whole.format("logs").encode()).fetchall() == expected
    refused(psql, "insert into logs values (1, now(), 'x', -1)", "events_amount_check")
    psql.execute("insert into logs (id, status) values (1000, 'default')")
    assert psql.execute("select ts::date::text from logs where id = 1000").fetchone() == ("2090-06-01",)
    psql.execute("delete from logs where id = 1000")
    with psql.transaction():
        psql.execute("delete from events")
        psql.execute("insert into events select * from logs")
    assert psql.execute(whole.format("events").encode()).fetchall() == expected
