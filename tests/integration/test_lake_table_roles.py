"""Who may read and write lake tables: rights on the foreign table, the way to the lake server, passwords."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.lake import Lake

from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.relation import foreign_server
from frostline.runtime.programs import give, let_through

READINGS = ("id bigint not null", "ts timestamptz", "device text", "value double precision", "data jsonb")


def made(lake: Lake, name: str = "readings", *columns: str, layout: Layout = Layout()) -> None:  # noqa: B008
    lake_tables.create(lake.catalog, lake.settings, Name("public", name), columns or READINGS, layout)


def all_of(session: psycopg.Connection, query: str) -> list[tuple[object, ...]]:
    return session.execute(query.encode()).fetchall()


_OTHER_WAYS = (
    "create foreign table mine (id bigint) server frostline_lake options (table_name 'lake_1')",
    "import foreign schema lake limit to (lake_1) from server frostline_lake into public",
    "create user mapping for current_user server frostline_lake options (user 'x')",
    "alter user mapping for public server frostline_lake options (set user 'x')",
    "alter server frostline_lake options (set host 'elsewhere')",
    "alter foreign table readings options (set table_name 'lake_2')",
    "create server mine foreign data wrapper postgres_fdw",
)


def test_a_role_cannot_log_in_to_the_lake_server_with_its_own_name_and_password(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    owner = sessions()
    owner.execute("insert into readings (id) values (1)")
    owner.execute("create role lake_stranger login password 'its own'")
    server, mapping = foreign_server.options(lake.catalog)
    assert server
    assert mapping
    try:
        place = {"host": server["host"], "port": server["port"], "dbname": "lake"}
        for user in ("lake_stranger", mapping["user"]):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(**place, user=user, password="its own")  # pyright: ignore[reportArgumentType]
        with psycopg.connect(**place, user=mapping["user"], password=mapping["password"]) as known:  # pyright: ignore[reportArgumentType]
            assert known.execute("select id from lake.lake_1").fetchall() == [(1,)], "its password alone opens it"
    finally:
        owner.execute("drop role lake_stranger")


def test_who_has_no_rights_on_the_foreign_table_has_no_way_in(
    lake: Lake, sessions: Callable[[], psycopg.Connection]
) -> None:
    made(lake)
    owner, other = sessions(), sessions()
    owner.execute("insert into readings (id) values (1)")
    owner.execute("create role lake_guest")
    try:
        other.execute("set role lake_guest")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("select * from readings")
        owner.execute("grant select on readings to lake_guest")
        assert all_of(other, "select id from readings") == [(1,)]
        for statement in ("insert into readings (id) values (2)", "delete from readings", "update readings set id = 3"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                other.execute(statement.encode())
        owner.execute("grant create on schema public to lake_guest")
        for statement in _OTHER_WAYS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                other.execute(statement.encode())
        assert all_of(other, "select umoptions from pg_user_mappings") == [(None,)]
    finally:
        other.close()
        owner.execute("drop owned by lake_guest; drop role lake_guest")


@pytest.fixture
def roles(lake: Lake) -> Iterator[tuple[str, str]]:
    """Two roles with all rights in the schema: one owns functions, one calls them."""
    names = ("lake_teller", "lake_clerk")
    for name in names:
        lake.catalog.execute(f"create role {name}; grant usage, create on schema public to {name}".encode())
    yield names
    for name in names:
        lake.catalog.execute(f"drop owned by {name} cascade; drop role {name}".encode())


def test_all_roles_share_one_remote_transaction(
    lake: Lake, sessions: Callable[[], psycopg.Connection], roles: tuple[str, str]
) -> None:
    """What runs as the installing role, as a view's owner, as a function's and as the caller is committed as one."""
    made(lake, "accounts", "id bigint", "n bigint")
    made(lake, "journal", "n bigint")
    owner, other = sessions(), sessions()
    owner.execute("insert into accounts values (1, 0)")
    definer = "returns void language sql security definer set search_path = public"
    owner.execute(f"create function note(bigint) {definer} as 'insert into journal values ($1)'".encode())
    owner.execute("create view shown as select * from journal")
    for role in roles:
        owner.execute(f"grant select, insert, update on accounts, shown to {role}".encode())
    owner.execute("set role lake_teller")
    owner.execute(f"create function pay(bigint) {definer} as 'update accounts set n = n + $1'".encode())
    owner.execute("reset role")
    own = "select usename from pg_user_mappings where srvname = 'frostline_lake'"
    assert all_of(owner, own) == [("public",)], "the installing role and superusers have no other way"

    def both(session: psycopg.Connection, amount: int) -> None:
        session.execute("set local role lake_clerk")
        session.execute("select note(%s), pay(%s)", [amount, amount])
        assert (amount,) in all_of(session, "select * from shown"), "what was written as another role is seen"
        session.execute("insert into shown values (0)")

    with owner.transaction():
        both(owner, 1)
    for session in (owner, other):
        session.execute("begin")
        both(session, 2)
    owner.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        other.execute("commit")
    other.execute("reset role")
    assert all_of(other, "select n from accounts") == [(3,)]
    assert sorted(all_of(other, "select n from journal")) == [(0,), (0,), (1,), (2,)], "nothing of the one in conflict"


@pytest.mark.usefixtures("roles")
def test_a_new_password_reaches_all_roles_and_mappings_of_single_roles_go(lake: Lake) -> None:
    lake.catalog.execute("create user mapping for lake_teller server frostline_lake options (user 'x', password 'y')")
    made(lake)
    lake.catalog.execute("create user mapping for lake_clerk server frostline_lake options (user 'x', password 'y')")
    place = {"host": "127.0.0.1", "port": lake.server.port, "user": "frostline"}
    assert foreign_server.ensure(lake.catalog, **place, password="another")  # pyright: ignore[reportArgumentType]
    listed = lake.catalog.execute("select usename, umoptions::text from pg_user_mappings").fetchall()
    assert [(role, "another" in options) for role, options in listed] == [("public", True)]
    assert not foreign_server.ensure(lake.catalog, **place, password="another")  # pyright: ignore[reportArgumentType]


def test_where_the_password_is_in_a_file_other_roles_reach_the_lake_too(
    lake: Lake, sessions: Callable[[], psycopg.Connection], roles: tuple[str, str], tmp_path: Path
) -> None:
    """As with `frostline up`, where the mapping has no password."""
    server = {"host": "127.0.0.1", "port": lake.server.port, "user": "frostline", "password": "secret"}
    (file := tmp_path / "lake.pgpass").write_text(f"127.0.0.1:{lake.server.port}:lake:frostline:secret")
    file.chmod(0o600)
    give(file)
    let_through(file)
    foreign_server.ensure(lake.catalog, **server, passfile=str(file))  # pyright: ignore[reportArgumentType]
    made(lake)
    psql = sessions()
    psql.execute("insert into readings (id) values (1)")
    psql.execute(f"grant select on readings to {roles[1]}".encode())
    psql.execute(f"set role {roles[1]}".encode())
    assert all_of(psql, "select id from readings") == [(1,)]
    assert "secret" not in str(all_of(psql, "select * from pg_user_mappings, pg_foreign_server"))
