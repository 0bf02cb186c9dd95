"""How lake tables are made and dropped in SQL, all or nothing with their transaction."""

import re
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.lake_sessions import metadata, refused

from frostline.catalog import lake_tables as catalog
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import Pointer
from frostline.lake import lake_publish, lake_table
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import Layout
from frostline.model import lake_tables as lake_tables_rules
from frostline.model.names import Name
from frostline.pipeline import lake_tables

COLUMNS = """[{"name": "id", "type": "bigint", "not_null": true, "check": "id > 0"}, {"name": "ts", "type": "timestamptz"},
              {"name": "The Note", "type": "varchar(5)", "default": "'new'"}, {"name": "price", "type": "numeric(6,2)"},
              {"name": "c", "type": "text"}]"""
CREATE = f"""select frostline.create_lake_table('public', 'readings', $c${COLUMNS}$c$, partition => '{{day(ts)}}', sort => '{{id desc}}',
                                                key => '{{id}}')"""


def place(lake: Lake) -> list[str]:
    return sorted(path.name for path in (lake.warehouse / "~lake").rglob("*") if path.is_file())


def test_a_table_that_is_made_in_sql_is_the_same_as_one_of_the_command(lake: Lake, psql: psycopg.Connection) -> None:
    number = psql.execute(CREATE.encode()).fetchone()
    shown = lake_tables.show(lake.catalog, catalog.load(lake.catalog, Pointer("public", "readings")))
    assert (shown.pointer.id,) == number
    assert (shown.partition, shown.sort, shown.key) == (["day(ts)"], ["id DESC"], ["id"])
    psql.execute("insert into readings (id, ts, price) values (1, '2024-01-01', 1.005)")
    refused(psql, "insert into readings values (0)", "readings_id_check")
    in_sql = lake_table.state(shown.pointer.metadata_location).metadata
    made_by_command = ("id bigint not null check (id > 0)", "ts timestamptz", '"The Note" varchar(5)', "price numeric(6,2)", "c text")  # fmt: skip
    layout = Layout(["day(ts)"], ["id desc"], ["id"])
    lake_tables.create(lake.catalog, lake.settings, Name("public", "other"), made_by_command, layout)
    other = lake_table.state(metadata(lake, "other")).metadata
    own = {lake_table.PG_CHECKS: in_sql.properties[lake_table.PG_CHECKS].replace("readings", "other")}
    assert in_sql.properties | own == other.properties
    assert (in_sql.schema(), in_sql.spec(), in_sql.sort_orders) == (other.schema(), other.spec(), other.sort_orders)
    said = """select count(*), count(distinct o.option_value), min(o.option_value) from pg_foreign_table f,
              pg_options_to_table(f.ftoptions) o where o.option_name = 'schema_name' and f.ftrelid::regclass::text in ('readings', 'other')"""
    assert psql.execute(said.encode()).fetchone() == (2, 1, lake_tables_rules.remote_schema(in_sql.current_schema_id))
    psql.execute("select frostline.drop_lake_table('public', 'readings', purge => true)")
    assert [table.table for table in catalog.listed(lake.catalog)] == ["other"]
    assert catalog.dropped(lake.catalog) == []
    assert len(place(lake)) == 1, "of the other one"
    assert psql.execute("select to_regclass('public.readings')").fetchone() == (None,)


def test_a_table_can_be_written_in_the_transaction_that_makes_it(lake: Lake, psql: psycopg.Connection) -> None:
    made_first = 'select frostline.create_lake_table(\'public\', \'first\', \'[{"name": "n", "type": "int"}]\')'
    psql.execute(made_first.encode())
    psql.execute("begin")
    psql.execute("insert into first values (1)")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) select n from generate_series(1, 3) n")
    psql.execute("update readings set price = id where id > 1")
    assert psql.execute('select id, "The Note", price from readings order by id').fetchall() == [
        (1, "new", None),
        (2, "new", 2),
        (3, "new", 3),
    ]
    with lake.connect() as other:
        assert other.execute("select to_regclass('public.readings')").fetchone() == (None,)
        assert [table.table for table in catalog.listed(lake.catalog)] == ["first"]
    psql.execute("commit")
    assert psql.execute("select sum(id), sum(price) from readings").fetchone() == (6, 5)
    assert psql.execute("select n from first").fetchall() == [(1,)]
    psql.execute("insert into readings (id) values (4)")
    assert psql.execute("select count(*) from readings").fetchone() == (4,)


def test_a_rollback_leaves_nothing_of_a_table_and_of_a_drop(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute("begin")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (1)")
    assert psql.execute("select id from readings").fetchall() == [(1,)]
    psql.execute("rollback")
    assert (catalog.listed(lake.catalog), catalog.dropped(lake.catalog), place(lake)) == ([], [], [])
    psql.execute("begin")
    psql.execute("savepoint one")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (1)")
    psql.execute("select count(*) from readings")
    psql.execute("rollback to one")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (2)")
    psql.execute("savepoint two")
    psql.execute("insert into readings (id) values (3)")
    psql.execute("select frostline.drop_lake_table('public', 'readings')")
    psql.execute("rollback to two")
    psql.execute("commit")
    assert psql.execute("select id from readings").fetchall() == [(2,)]
    before = place(lake)
    psql.execute("begin")
    psql.execute("insert into readings (id) values (5)")
    psql.execute("select frostline.drop_lake_table('public', 'readings', true)")
    psql.execute("rollback")
    assert psql.execute("select id from readings").fetchall() == [(2,)]
    assert place(lake) == before


def test_a_table_may_be_dropped_and_made_again_in_one_transaction(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (1)")
    psql.execute("begin")
    psql.execute("insert into readings (id) values (2)")
    psql.execute("select frostline.drop_lake_table('public', 'readings')")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (3)")
    psql.execute("select frostline.drop_lake_table('public', 'readings')")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (4)")
    psql.execute("commit")
    assert psql.execute("select id from readings").fetchall() == [(4,)]
    assert (len(catalog.listed(lake.catalog)), len(catalog.dropped(lake.catalog))) == (1, 1)
    assert len(place(lake)) == 10, "two tables with a row each: what was undone left nothing"


NULL, VALUE, NOT_BUILT = (
    psycopg.errors.NullValueNotAllowed,
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.FeatureNotSupported,
)
ONE = '[{"name": "id", "type": "bigint"}]'


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (f"null, 'new', '{ONE}'", NULL),
        (f"'public', null, '{ONE}'", NULL),
        ("'public', 'new', null", NULL),
        (f"'public', 'new', '{ONE}', null", NULL),
        (f"'public', 'new', '{ONE}', sort => '{{null}}'", NULL),
        (f"'public', 'new', '{ONE}', key => null", NULL),
        (f"'nosuch', 'new', '{ONE}'", psycopg.errors.InvalidSchemaName),
        (f"'public', 'taken', '{ONE}'", psycopg.errors.DuplicateTable),
        ("'public', 'new', '[]'", VALUE),
        ("'public', 'new', '{}'", VALUE),
        ("'public', 'new', '[1]'", VALUE),
        ("""'public', 'new', '[{"name": "id"}]'""", VALUE),
        ("""'public', 'new', '[{"type": "int"}]'""", VALUE),
        ("""'public', 'new', '[{"name": "id", "type": "int", "nullable": true}]'""", VALUE),
        ("""'public', 'new', '[{"name": "id", "type": "int); drop table taken; --"}]'""", VALUE),
        ("""'public', 'new', '[{"name": "id", "type": "int default now()"}]'""", VALUE),
        ("""'public', 'new', '[{"name": "id", "type": "nosuch"}]'""", psycopg.errors.UndefinedObject),
        ("""'public', 'new', '[{"name": "id", "type": "int", "check": "id > random()"}]'""", NOT_BUILT),
        (f"'public', 'new', '{ONE}', partition => '{{nosuch(id)}}'", VALUE),
        (f"'public', 'new', '{ONE}', partition => '{{day(id)}}'", VALUE),
        (f"'public', 'new', '{ONE}', sort => '{{nosuch}}'", VALUE),
        (f"'public', 'new', '{ONE}', key => '{{nosuch}}'", VALUE),
    ],
)
def test_what_is_wrong_with_a_table_is_said_and_nothing_is_made(
    shared_lake: Lake, arguments: str, error: type[psycopg.Error]
) -> None:
    with shared_lake.connect() as session:
        session.execute("create table if not exists taken (id int)")
        with pytest.raises(error):
            session.execute(f"select frostline.create_lake_table({arguments})".encode())
        assert session.execute("select to_regclass('public.new'), to_regclass('public.taken')").fetchone() == (
            None,
            "taken",
        )
    assert (catalog.listed(shared_lake.catalog), place(shared_lake)) == ([], [])


def test_a_drop_in_sql_wants_to_know_what_it_drops_and_whether_files_go(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute(CREATE.encode())
    psql.execute("create table plain (id int)")
    for arguments in ("'public', 'readings', null", "null, 'readings'", "'public', null"):
        with pytest.raises(NULL):
            psql.execute(f"select frostline.drop_lake_table({arguments})".encode())
    for arguments in ("'public', 'nosuch'", "'nosuch', 'readings'", "'public', 'plain'"):
        with pytest.raises(psycopg.errors.UndefinedTable):
            psql.execute(f"select frostline.drop_lake_table({arguments})".encode())
    assert [table.table for table in catalog.listed(lake.catalog)] == ["readings"]
    psql.execute("create view above as select * from readings")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        psql.execute("select frostline.drop_lake_table('public', 'readings')")
    assert psql.execute("select count(*) from above").fetchone() == (0,)


def test_who_may_not_use_the_foreign_server_makes_no_table_and_drops_none(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute(CREATE.encode())
    psql.execute(
        "create role lake_maker; grant create on schema public to lake_maker; grant usage on schema frostline to lake_maker"
    )
    drop = "select frostline.drop_lake_table('public', 'readings')"
    try:
        for granted in (False, True):
            if granted:
                psql.execute("reset role; grant execute on all functions in schema frostline to lake_maker")
                psql.execute(
                    "grant usage on all sequences in schema frostline to lake_maker; grant all on readings to lake_maker"
                )
            psql.execute("set role lake_maker")
            for statement in (
                CREATE.replace("'readings'", "'mine'"),
                drop,
                "select frostline.ask_lake_server(1, '{}')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    psql.execute(statement.encode())
    finally:
        psql.execute("reset role; drop owned by lake_maker; drop role lake_maker")
    assert [table.table for table in catalog.listed(lake.catalog)] == ["readings"]


def test_a_table_that_is_made_in_sql_is_open_to_roles_with_rights_on_it(lake: Lake, psql: psycopg.Connection) -> None:
    psql.execute(CREATE.encode())
    psql.execute("create role lake_guest; grant select, insert on readings to lake_guest")
    try:
        with psql.transaction():
            psql.execute("insert into readings (id) values (1)")
            psql.execute("set local role lake_guest")
            psql.execute("insert into readings (id) values (2)")
            assert psql.execute("select count(*) from readings").fetchone() == (2,), (
                "one remote transaction for all roles"
            )
    finally:
        psql.execute("drop owned by lake_guest; drop role lake_guest")


def test_a_name_that_is_taken_meanwhile_is_refused_at_the_commit_and_leaves_nothing(
    lake: Lake, psql: psycopg.Connection
) -> None:
    psql.execute("begin")
    psql.execute(CREATE.encode())
    psql.execute("insert into readings (id) values (1)")
    elsewhere = "file:///elsewhere/metadata/00000-a.metadata.json"
    uuid = "00000000-0000-0000-0000-000000000001"
    catalog.create(lake.catalog, Pointer("public", "readings"), uuid, "file:///elsewhere", elsewhere)
    with pytest.raises(psycopg.errors.DuplicateTable, match=r"has a table public\.readings already"):
        psql.execute("commit")
    assert psql.execute("select to_regclass('public.readings')").fetchone() == (None,)
    assert place(lake) == []
    with pytest.raises(psycopg.errors.DuplicateTable):
        psql.execute(CREATE.encode())
    assert place(lake) == []


def test_a_request_that_nobody_of_ours_would_send_is_refused(lake: Lake, psql: psycopg.Connection) -> None:
    for request in ('{"do": "create"}', '{"do": "drop", "purge": null}', '{"do": "drop", "purge": true, "more": 1}', "[]", '{"do": "drop", "purge": true}'):  # fmt: skip
        with pytest.raises(psycopg.Error):
            psql.execute("select frostline.ask_lake_server(77, %s)", [request])
    psql.execute("create foreign table requests (request text) server frostline_lake options (table_name 'requests')")
    for statement in ("insert into requests values ('{}')", "select * from requests", "delete from requests"):
        with pytest.raises(psycopg.Error):
            psql.execute(statement.encode())


@pytest.mark.parametrize("lost", ["the statement", "the answer"])
def test_tables_are_made_and_dropped_once_though_a_connection_breaks_in_the_commit(
    lake: Lake, psql: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    send = lake_publish.within
    sent = list[bool]()

    def breaking(connection: Connection, change: Change) -> Outcome:
        sent.append(len(sent) % 2 == 0)
        done = send(connection, change) if not sent[-1] or lost == "the answer" else Outcome.LOST
        if sent[-1]:
            raise psycopg.OperationalError("the connection is lost")
        return done

    monkeypatch.setattr(lake_publish, "within", breaking)
    drop = "select frostline.drop_lake_table('public', %s)"
    psql.execute(CREATE.encode())
    with psql.transaction():
        psql.execute(CREATE.replace("'readings'", "'second'").encode())
        psql.execute("insert into second (id) values (2)")
        psql.execute("insert into readings (id) values (1)")
    with psql.transaction():
        psql.execute(drop, ["second"])
        psql.execute(CREATE.replace("'readings'", "'second'").encode())
        psql.execute("insert into second (id) values (3)")
    psql.execute(drop, ["readings"])
    assert len(sent) == 8, "each was sent twice"
    assert psql.execute("select id from second").fetchall() == [(3,)]
    assert [table.table for table in catalog.listed(lake.catalog)] == ["second"]
    assert [table.table for table in catalog.dropped(lake.catalog)] == ["readings", "second"]


def test_the_sql_of_the_guide_works(lake: Lake, psql: psycopg.Connection) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "lake-tables.md").read_text()
    (block,) = (block for block in re.findall(r"```sql\n(.*?)```", guide, re.DOTALL) if "create_lake_table" in block)
    making, _, dropping = block.partition("commit;\n")
    psql.execute(f"{making}commit".encode())
    assert psql.execute("select id, at is not null from measured").fetchall() == [(1, True)]
    psql.execute(dropping.encode())
    assert (catalog.listed(lake.catalog), place(lake)) == ([], [])
