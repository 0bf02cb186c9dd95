"""A Postgres where nobody is superuser: a role that owns its database and was granted two things can do everything."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.pipeline import verify
from frostline.relation import grants
from frostline.runtime.install import install
from frostline.runtime.lake_server import start
from frostline.runtime.postgres import Postgres
from frostline.settings import Settings

ADMIN, READER, PASSWORD = "cloud_admin", "cloud_reader", "a password"
EVERYTHING = "select count(*), sum(amount), md5(string_agg(e::text, '|' order by id)) from public.events e"


@pytest.fixture
def managed_database(postgres_server: Postgres) -> Iterator[str]:
    """The connection string of an ordinary role that owns its database and has what the guide tells it to ask for."""
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as superuser:
        for role in (ADMIN, READER):
            superuser.execute(_filled("create role {} login password {}", role, PASSWORD))
        superuser.execute(_filled("create database managed owner {}", ADMIN))
        superuser.execute(_filled("grant pg_read_all_stats to {}", ADMIN))
    with psycopg.connect(postgres_server.dsn("managed"), autocommit=True) as superuser:
        superuser.execute("create extension postgres_fdw")
        superuser.execute(_filled("grant usage on foreign data wrapper postgres_fdw to {}", ADMIN))
    try:
        yield make_conninfo(postgres_server.dsn("managed"), user=ADMIN, password=PASSWORD)
    finally:
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as superuser:
            superuser.execute("drop database managed with (force)")
            superuser.execute(_filled("revoke pg_read_all_stats from {}", ADMIN))
            for role in (ADMIN, READER):
                superuser.execute(_filled("drop role {}", role))


def _filled(statement: str, role: str, *literals: str) -> sql.Composed:
    template = sql.SQL(statement)  # pyright: ignore[reportArgumentType]
    return template.format(sql.Identifier(role), *map(sql.Literal, literals))


@pytest.fixture
def managed(
    managed_database: str, tmp_path: Path, unused_port: Callable[[], int], spark: SparkSession
) -> Iterator[Lake]:
    """The lake of that role, installed by `init` and served."""
    settings = Settings(dsn=managed_database, warehouse=str(tmp_path / "lake"), lake_port=unused_port())
    assert install(settings)["changed"]
    server = start(settings)
    try:
        with open_connection(managed_database, purpose="tests") as connection:
            yield Lake(managed_database, connection, settings, server, tmp_path / "lake", lambda: spark)
    finally:
        server.stop()


@pytest.fixture
def unused_port() -> Callable[[], int]:
    from frostline.runtime.postgres import free_port

    return free_port


def test_the_role_is_an_ordinary_one(managed: Lake) -> None:
    assert (
        managed.value("select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = current_user")
        is False
    )


def test_installing_again_changes_nothing(managed: Lake) -> None:
    assert install(managed.settings)["changed"] is False


@pytest.mark.spark
def test_a_table_lives_in_two_tiers(managed: Lake) -> None:
    make_events(managed.catalog, "public.events")
    fill_events(managed.catalog)
    with managed.connect() as connection:
        before = connection.execute(EVERYTHING).fetchone()
    table = managed.add()
    (result,) = managed.archive()
    assert (result.partitions, result.rows, result.error) == (6, 3000, None)
    assert len(result.cleaned.emptied) == 6
    assert verify.run(managed.catalog, table).faults == ()
    with managed.connect() as connection:
        assert connection.execute(EVERYTHING).fetchone() == before
        changed = connection.execute("update events set status = 'seen' where id = 1 returning id, status").fetchall()
        assert changed == [(1, "seen")]
        assert connection.execute("delete from events where id = 2").rowcount == 1
        assert connection.execute("select status from events where id <= 2").fetchall() == [("seen",)]


@pytest.mark.spark
@pytest.mark.slow
def test_another_role_needs_no_more_than_a_grant_on_the_relation(managed: Lake) -> None:
    make_events(managed.catalog, "public.events")
    fill_events(managed.catalog)
    managed.add()
    managed.archive()
    grants.grant(managed.catalog, READER, [managed.table()])
    with psycopg.connect(make_conninfo(managed.dsn, user=READER), autocommit=True) as reader:
        assert reader.execute("select count(*) from events").fetchone() == (3000,)
        assert reader.execute("update events set status = 'read' where id = 7").rowcount == 1
        assert reader.execute("insert into events (ts) values ('2024-01-07'), ('2090-01-07')").rowcount == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("select * from public._events")


@pytest.mark.spark
def test_foreign_keys_hold_in_the_lake(managed: Lake, postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.dsn("managed"), autocommit=True) as superuser:
        run(superuser, "create table public.kinds (k int primary key); insert into public.kinds values (1), (2), (3)")
        run(superuser, f"grant references, select, delete on public.kinds to {ADMIN}")
    make_events(managed.catalog, "public.events")
    run(managed.catalog, "alter table public.events add kind int references public.kinds on delete cascade")
    run(managed.catalog, "insert into public.events (kind) values (1), (2), (3)")
    with pytest.raises(
        UsageError, match=r"it references public\.kinds, and cloud_admin may not put a trigger"
    ) as refused:
        managed.add()
    assert refused.value.hint == "grant trigger on public.kinds to cloud_admin, or --foreign-keys ignore"
    with psycopg.connect(postgres_server.dsn("managed"), autocommit=True) as superuser:
        run(superuser, f"grant trigger on public.kinds to {ADMIN}")
    managed.add()
    assert len(managed.archive()[0].cleaned.emptied) == 6
    run(managed.catalog, "delete from public.kinds where k = 2")
    assert managed.value("select array_agg(kind order by kind) from public.events") == [1, 3]


def test_without_the_extension_it_says_what_to_ask_for(
    managed_database: str, postgres_server: Postgres, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_server.dsn("managed"), autocommit=True) as superuser:
        superuser.execute("drop extension postgres_fdw cascade")
    with pytest.raises(UsageError, match="postgres_fdw"):
        install(Settings(dsn=managed_database, warehouse=str(tmp_path)))


LOUD = """
create table public.seen (id bigint);
create function public.watch() returns trigger language plpgsql as $$
begin insert into public.seen values (old.id); return null; end $$;
create trigger watch after delete on {} for each row execute function public.watch()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_fold_that_would_fire_delete_triggers_is_refused_until_it_need_not(
    managed: Lake, postgres_server: Postgres
) -> None:
    make_events(managed.catalog, "public.events")
    fill_events(managed.catalog)
    run(managed.catalog, LOUD.format("public.events"))
    with pytest.raises(UsageError, match=r"trigger watch on public\.events would fire") as refused:
        managed.add()
    assert refused.value.hint is not None
    assert f"grant set on parameter session_replication_role to {ADMIN}" in refused.value.hint
    run(managed.catalog, "drop trigger watch on public.events; drop function public.watch; drop table public.seen")
    managed.add()
    assert managed.archive()[0].error is None
    run(managed.catalog, "update public.events set status = 'changed' where id in (1, 2)")
    run(managed.catalog, LOUD.format("public._events"))
    (folded,) = managed.fold()
    assert isinstance(folded.error, UsageError)
    with psycopg.connect(postgres_server.dsn("managed"), autocommit=True) as superuser:
        superuser.execute(_filled("grant set on parameter session_replication_role to {}", ADMIN))
        (folded,) = managed.fold()
        superuser.execute(_filled("revoke set on parameter session_replication_role from {}", ADMIN))
    assert (folded.error, folded.taken) == (None, 2)
    assert managed.value("select count(*) from public.seen") == 0
