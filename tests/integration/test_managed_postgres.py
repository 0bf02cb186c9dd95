"""A Postgres where nobody is superuser: a role that owns its database and was granted two things can do everything."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from tests.fixtures import copies
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.pipeline import fill_columns, verify
from frostline.relation import columns, constraints, following, grants
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
    managed_database: str, tmp_path: Path, unused_port: Callable[[], int], request: pytest.FixtureRequest
) -> Iterator[Lake]:
    """The lake of that role, installed by `init` and served."""
    settings = Settings(dsn=managed_database, warehouse=str(tmp_path / "lake"), lake_port=unused_port())
    assert install(settings)["changed"]
    server = start(settings)
    session: Callable[[], SparkSession] = lambda: request.getfixturevalue("spark")  # noqa: E731
    try:
        with open_connection(managed_database, purpose="tests") as connection:
            yield Lake(managed_database, connection, settings, server, tmp_path / "lake", session)
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


@pytest.fixture
def cold(managed: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Four months in the lake, two hot ones, and `plain` with the same rows. No event trigger could be made."""
    copies.without_spark(managed, monkeypatch)
    make_events(managed.catalog, "public.events")
    fill_events(managed.catalog, rows_a_month=10)
    run(managed.catalog, "create table public.plain (like public.events including all)")
    run(managed.catalog, "insert into public.plain overriding system value select * from public.events")
    table = managed.add()
    archive_to(managed, 4)
    assert managed.value("select count(*) from pg_event_trigger") == 0
    assert managed.value(f"select count(*) from frostline_lake.{table.internal}") == 40
    return managed


def archive_to(lake: Lake, months: int) -> None:
    """So many months are older than the hot period."""
    age = f"now() - timestamptz '2024-01-01+00' - interval '{months} months 1 day'"
    run(lake.catalog, f"update frostline.managed_table set hot_interval = {age}")
    (result,) = lake.archive()
    assert result.error is None


def psql(lake: Lake, statement: str, *, only: str | None = None) -> None:
    """The ordinary role sends it, of the managed table and of the plain one."""
    with lake.connect() as connection:
        for name in ("events", "plain"):
            for single in statement.split("; ") if only in (None, name) else ():
                heap = "public._events" if name == "events" else "public.plain"
                run(connection, single.format(t=f"public.{name}", heap=heap))


def same(lake: Lake) -> None:
    """Both have the same rows, in all columns, whatever their order."""
    with lake.connect() as connection:
        ours, plain = (
            rows(connection, f"select to_jsonb(e) from public.{name} e order by id") for name in ("events", "plain")
        )
    assert ours == plain
    assert columns.difference(lake.catalog, lake.table()) is None


def sync(lake: Lake) -> None:
    """What the command of that name does."""
    following.follow(lake.catalog, lake.table())
    constraints.look(lake.catalog, lake.table())


SYNCED = [
    "alter table {heap} add column note text",
    "alter table {heap} add column kind text not null default 'none'",
    "alter table {heap} add column made timestamptz default '2024-01-01+00', add column tags int[] default '{{1}}'",
    "alter table {heap} rename column status to state",
    "alter table {heap} rename column ts to at",
    "alter table {heap} rename column id to number; alter table {heap} rename column number to id",
    "alter table {heap} rename column status to x; alter table {heap} rename column data to status; alter table {heap} rename column x to data",
    "alter table {heap} alter column status set default 'other'; alter table {heap} alter column amount set not null",
    "alter table {heap} add constraint positive check (amount > 0)",
    "alter table {heap} add constraint positive check (amount > 0) not valid; alter table {heap} validate constraint positive",
    "create index on {heap} (status); comment on column {heap}.amount is 'money'",
]
ALTERED = [
    "drop column data",
    "alter column amount type numeric(20, 2)",
    "alter column amount type numeric(20, 2), drop column data, add column note text default 'x'",
]


@pytest.mark.parametrize("change", first(2, SYNCED))
def test_the_ordinary_role_alters_a_heap_and_the_sync_follows(cold: Lake, change: str) -> None:
    psql(cold, change)
    sync(cold)
    lives_on(cold)


@pytest.mark.parametrize("change", first(1, ALTERED))
def test_what_postgres_refuses_because_of_our_views_goes_by_table_alter(cold: Lake, change: str) -> None:
    with cold.connect() as connection, pytest.raises(psycopg.errors.DatabaseError, match="view"):
        run(connection, f"alter table public._events {change}")
    psql(cold, f"alter table {{heap}} {change}", only="plain")
    assert fill_columns.alter(cold.jobs(), cold.table(), change) is None
    lives_on(cold)


def lives_on(lake: Lake) -> None:
    """Reads, writes of both tiers, fold, archive of a later generation, verify and thaw."""
    same(lake)
    at = lake.table().tier_key
    psql(lake, "update {t} set amount = amount + 1 where id in (1, 15, 55); delete from {t} where id in (2, 56)")
    psql(
        lake,
        f"insert into {{t}} (id, {at}, amount) overriding system value values (101, '2024-02-02+00', 5), (102, '2024-06-02+00', 5)",
    )
    same(lake)
    assert lake.fold()[0].error is None
    archive_to(lake, 5)
    same(lake)
    assert lake.compact()[0].error is None
    assert verify.run(lake.catalog, lake.table()).faults == ()
    lake.thaw("events", "2024-04-01")
    same(lake)


def test_a_column_with_a_value_of_its_own_in_each_row_is_added_in_steps(cold: Lake) -> None:
    assert fill_columns.alter(cold.jobs(), cold.table(), "add column number bigserial") is not None
    with cold.connect() as connection:
        assert rows(connection, "select count(*), count(distinct number), min(number) from public.events") == [
            (60, 60, 1)
        ]
        run(connection, "insert into public.events (ts) values ('2024-01-03'), ('2024-06-03')")
        assert rows(connection, "select count(distinct number), count(number) from public.events") == [(62, 62)]
    assert cold.fold()[0].error is None
    archive_to(cold, 5)
    assert cold.value("select count(distinct number) from public.events") == 62
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_a_check_that_cold_rows_break_is_found_by_the_sync(cold: Lake) -> None:
    psql(cold, "update {t} set amount = -1 where id = 1")
    assert cold.fold()[0].error is None
    psql(cold, "alter table {heap} add constraint positive check (amount >= 0) not valid", only="events")
    assert constraints.unseen(cold.catalog, cold.table()) is None
    psql(cold, "alter table {heap} validate constraint positive", only="events")
    assert constraints.unseen(cold.catalog, cold.table()) == "constraint positive"
    with pytest.raises(UsageError, match="positive"):
        sync(cold)


def test_a_migration_that_fills_its_column_waits_for_the_sync(cold: Lake) -> None:
    psql(cold, "alter table {heap} add column note text")
    with cold.connect() as connection, pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        run(connection, "update public.events set status = 'x' where id = 1")
    assert refused.value.diag.message_hint == "frostline table sync public.events"
    sync(cold)
    psql(cold, "update {t} set note = 'id ' || id where id % 2 = 0")
    lives_on(cold)


UNFOLLOWED = [
    "x bigserial",
    "x int generated always as identity",
    "x uuid default gen_random_uuid()",
    "x float default random()",
]


@pytest.mark.parametrize("column", first(1, UNFOLLOWED))
def test_what_the_sync_cannot_follow_leaves_cold_rows_readable(cold: Lake, column: str) -> None:
    psql(cold, f"alter table {{heap}} add column {column}", only="events")
    with pytest.raises(UsageError) as refused:
        sync(cold)
    assert refused.value.hint
    assert cold.value("select count(*) from public.events") == 60
    psql(cold, "alter table {heap} drop column x", only="events")
    sync(cold)
    lives_on(cold)
