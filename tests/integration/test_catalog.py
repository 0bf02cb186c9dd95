"""The catalog: numbered migrations make it, and every statement we send to it is one that Postgres can prepare."""

import inspect
import re
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.command import Command
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline import sqlfiles
from frostline.catalog import migrations, patience, tables
from frostline.catalog.connect import Connection
from frostline.catalog.connect import connect as open_connection
from frostline.catalog.migrations import Migration
from frostline.errors import UnavailableError, UsageError
from frostline.model.names import OWN_SCHEMAS, Name
from frostline.model.policy import Policy
from frostline.relation import registration
from frostline.relation.registration import Request
from frostline.runtime.postgres import Postgres

STATEMENTS = sqlfiles.load_all("frostline.catalog", "queries")
_PREPARABLE = ("select", "insert", "update", "delete", "with")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_OURS = "('frostline', 'frostline_relation', 'frostline_overlay', 'frostline_lake')"
_SHAPE = f"""
select n.nspname, c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
 where n.nspname in {_OURS}
 order by 1, 2, a.attnum"""


@pytest.fixture
def empty(empty_database: str) -> Iterator[Connection]:
    """A database without Frostline."""
    with open_connection(empty_database, purpose="tests") as connection:
        yield connection


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def numbered(text: str) -> str:
    """The same statement with $1, $2, ... for its named parameters, one number a name."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text).replace("%%", "%")


def test_the_schemas_that_are_ours_are_those_of_the_migrations(empty: Connection) -> None:
    migrations.apply(empty)
    assert rows(empty, "select nspname from pg_namespace where nspname ~ '^frostline' order by 1") == [
        (schema,) for schema in OWN_SCHEMAS
    ]


@pytest.mark.parametrize("name", STATEMENTS)
def test_postgres_can_prepare_every_statement(shared_database: str, name: str) -> None:
    """Those that cannot be prepared are run: they change nothing."""
    with open_connection(shared_database, purpose="tests") as connection:
        text = without_comments(STATEMENTS[name])
        for part in [text] if text.startswith("do $$") else text.split(";\n"):
            run(connection, f"prepare statement as {numbered(part)}" if part.startswith(_PREPARABLE) else part)


def _python_files() -> list[Any]:
    from importlib import resources

    package: Any = resources.files("frostline")
    return list(package.rglob("*.py"))


def _made() -> Iterator[tuple[str, Any]]:
    """`noun.statement` and what is made of its rows, for each `fetch(connection, make, _statement(...))`."""
    for file in _python_files():
        text = file.read_text()
        noun = re.search(r'^_statement = sqlfiles\.statements\(__name__, "queries/(\w+)"\)', text, re.MULTILINE)
        if noun and file.parent.name == "catalog":
            module = import_module(f"frostline.catalog.{file.stem}")
            for make, statement in re.findall(r'\bfetch\([\w.]+, (\w+), _statement\("(\w+)"\)', text):
                if hasattr(module, make):  # some are made by a function inside the one that asks
                    yield f"{noun[1]}.{statement}", getattr(module, make)


MADE = list(_made())


@pytest.mark.parametrize(("name", "make"), MADE, ids=[name for name, _ in MADE])
def test_the_columns_of_a_statement_are_called_as_what_is_made_of_them(
    catalog: Connection, name: str, make: Callable[..., object]
) -> None:
    catalog.pgconn.prepare(b"statement", numbered(without_comments(STATEMENTS[name])).encode())
    described = catalog.pgconn.describe_prepared(b"statement")
    columns = [(described.fname(number) or b"").decode() for number in range(described.nfields)]
    assert len(set(columns)) == len(columns) > 0
    inspect.signature(make).bind(**dict.fromkeys(columns))


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_used(name: str) -> None:
    noun, _, statement = name.partition(".")
    sources = [path.read_text() for path in _python_files()]
    assert any(f'"{statement}"' in text and (f'"queries/{noun}"' in text or noun == "inspect") for text in sources)


def test_the_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.number for migration in migrations.known()] == list(range(1, len(migrations.known()) + 1))


def test_migrations_make_the_catalog_from_nothing(empty: Connection, catalog: Connection) -> None:
    assert migrations.version(empty) is None
    with pytest.raises(UsageError, match="not installed"):
        migrations.require(empty)
    assert migrations.apply(empty) == [f"{migration.number:03}_{migration.name}" for migration in migrations.known()]
    migrations.require(empty)
    assert rows(empty, _SHAPE) == rows(catalog, _SHAPE)
    assert value(empty, f"select count(*) from pg_namespace where nspname in {_OURS}") == 4


def test_a_second_installation_changes_nothing(catalog: Connection) -> None:
    before = rows(catalog, _SHAPE), rows(catalog, "select * from frostline.migration")
    assert migrations.apply(catalog) == []
    assert (rows(catalog, _SHAPE), rows(catalog, "select * from frostline.migration")) == before


def test_a_failed_migration_leaves_nothing_behind(empty: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration(len(migrations.known()) + 1, "broken", "create table frostline.half (x int); select 1 / 0")
    steps = (*migrations.known(), broken)
    monkeypatch.setattr(migrations, "known", lambda: steps)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrations.apply(empty)
    assert value(empty, f"select count(*) from pg_namespace where nspname in {_OURS}") == 0


def test_a_migration_that_waits_for_somebody_lets_the_others_pass(
    database: str, catalog: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = migrations.known()[-1]
    step = Migration(last.number + 1, "later", "alter table frostline.seam add column later int")
    steps = (*migrations.known(), step)
    monkeypatch.setattr(migrations, "known", lambda: steps)
    monkeypatch.setattr(patience, "PATIENCE_S", 3.0)
    passed: list[int] = []

    def read() -> None:
        with psycopg.connect(database, autocommit=True) as reader:
            reader.execute("set lock_timeout = '2s'")
            for number in range(20):
                reader.execute("select count(*) from frostline.seam")
                passed.append(number)

    with psycopg.connect(database) as somebody, ThreadPoolExecutor(2) as pool:
        somebody.execute("select count(*) from frostline.seam")
        installing = pool.submit(migrations.apply, catalog)
        pool.submit(read).result()
        with pytest.raises(UnavailableError, match="still in use"):
            installing.result()
    assert len(passed) == 20
    assert migrations.apply(catalog) == [f"{step.number:03}_later"]


def test_a_catalog_that_is_newer_than_the_program_is_refused(
    catalog: Connection, command: Command, database: str
) -> None:
    catalog.execute("insert into frostline.migration (number, name) values (999, 'from the future')")
    with pytest.raises(UsageError, match="migration 999"):
        migrations.apply(catalog)
    with pytest.raises(UsageError, match="migration 999"):
        migrations.require(catalog)
    said = command("init", "--dsn", database, "--warehouse", "/nowhere")
    assert (said.exit_code, said.stdout) == (2, "")
    assert "999" in said.stderr


def test_a_catalog_that_is_older_than_the_program_asks_for_init(
    catalog: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Migration(len(migrations.known()) + 1, "later", "select 1")
    steps = (*migrations.known(), later)
    monkeypatch.setattr(migrations, "known", lambda: steps)
    with pytest.raises(UsageError, match="this program needs") as refusal:
        migrations.require(catalog)
    assert refusal.value.hint == "frostline init"
    assert migrations.apply(catalog) == [f"{later.number:03}_later"]
    migrations.require(catalog)


def test_a_database_in_another_encoding_is_refused(postgres_server: Postgres) -> None:
    with _database(postgres_server, "latin", "encoding 'LATIN1' locale 'C' template template0") as connection:
        with pytest.raises(UsageError, match="LATIN1, not UTF8"):
            migrations.apply(connection)
        assert value(connection, "select to_regnamespace('frostline') is null")


@contextmanager
def _database(server: Postgres, name: str, options: str) -> Generator[Connection]:
    with psycopg.connect(server.dsn(), autocommit=True) as owner:
        run(owner, f"create database {name} {options}")
        try:
            with open_connection(server.dsn(name), purpose="tests") as connection:
                yield connection
        finally:
            owner.execute(sql.SQL("drop database {}").format(sql.Identifier(name)))


def test_two_installers_at_once_do_the_work_once(empty_database: str) -> None:
    done: list[list[str]] = []

    def install() -> None:
        with open_connection(empty_database, purpose="tests") as connection:
            done.append(migrations.apply(connection))

    installers = [threading.Thread(target=install) for _ in range(4)]
    for installer in installers:
        installer.start()
    for installer in installers:
        installer.join()
    assert sorted(map(len, done)) == [0, 0, 0, len(migrations.known())]


@pytest.fixture
def many_tables(catalog: Connection) -> Connection:
    """A catalog in which a look-up by number pays off."""
    make_events(catalog, "public.events")
    registration.add(catalog, Request(Name("public", "events"), Policy("1 month")))
    run(
        catalog,
        """insert into frostline.managed_table
                  (schema_name, table_name, tier_key, tier_kind, lake_partition, hot_interval, grace_period)
           select 's', 't' || i, 'k', 'date', 'month', '1 day', '1 day' from generate_series(1, 2000) i""",
    )
    run(
        catalog,
        "insert into frostline.seam (table_id, line_date) select table_id, '2024-01-01' from frostline.managed_table"
        " where schema_name = 's'",
    )
    catalog.execute("analyze frostline.seam")
    return catalog


def plan_nodes(connection: Connection, query: str) -> list[dict[str, Any]]:
    explained = value(connection, f"explain (format json) {query}")
    waiting: list[dict[str, Any]] = [entry["Plan"] for entry in explained]
    nodes: list[dict[str, Any]] = []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += node.get("Plans", [])
    return nodes


@pytest.mark.parametrize("noun_and_name", ["seam.get", "seam.move"])
def test_the_seam_is_found_by_its_primary_key(many_tables: Connection, noun_and_name: str) -> None:
    statement = numbered(without_comments(STATEMENTS[noun_and_name]))
    arguments = ", ".join(["null"] * len(set(re.findall(r"\$\d+", statement))))
    run(many_tables, f"prepare looked_up as {statement}")
    run(many_tables, "set plan_cache_mode = force_generic_plan")
    nodes = plan_nodes(many_tables, f"execute looked_up({arguments})")
    assert [node["Index Name"] for node in nodes if "Index Name" in node] == ["seam_pkey"]


def test_the_relation_finds_its_seam_by_the_primary_key(many_tables: Connection) -> None:
    nodes = plan_nodes(many_tables, "select * from public.events where id = 1 and ts = '2024-02-01'")
    on_seam = [node for node in nodes if node.get("Relation Name") == "seam"]
    assert on_seam
    assert {node.get("Index Name") for node in on_seam} == {"seam_pkey"}


def test_a_heap_that_was_dropped_by_hand_is_told_apart_from_an_unknown_table(catalog: Connection) -> None:
    make_events(catalog, "public.events")
    registration.add(catalog, Request(Name("public", "events"), Policy("1 month")))
    with pytest.raises(UsageError, match="not managed"):
        tables.get(catalog, Name("public", "nosuch"))
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        catalog.execute("drop table public._events")


@pytest.mark.parametrize("number", [0, 2**40, 10**30])
def test_a_number_that_no_table_has_is_told(catalog: Connection, number: int) -> None:
    with pytest.raises(UsageError, match=f"there is no managed table {number}"):
        tables.by_id(catalog, number)


def test_our_sessions_see_what_was_committed_before_their_lock(database: str) -> None:
    """Whatever the database's own default is: what is read under a lock must not be older than the lock."""
    with open_connection(database, purpose="tests") as connection:
        run(
            connection, f"alter database {connection.info.dbname} set default_transaction_isolation = 'repeatable read'"
        )
    with open_connection(database, purpose="tests") as connection:
        assert value(connection, "show transaction_isolation") == "read committed"
        assert value(connection, "show search_path") == "pg_catalog,pg_temp"


@pytest.mark.parametrize("version", [90624, 130015, 140012])
def test_a_server_that_is_too_old_is_refused(version: int) -> None:
    with pytest.raises(UsageError, match="too old"):
        migrations.refuse_old_server(version)


@pytest.mark.parametrize("version", [150000, 180001])
def test_a_server_that_is_new_enough_is_not(version: int) -> None:
    migrations.refuse_old_server(version)
