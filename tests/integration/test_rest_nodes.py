"""Nodes of an Iceberg REST catalog: they read and write its tables in transactions, by nothing but its protocol."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField
from tests.fixtures import proxy as proxies
from tests.fixtures import waiting
from tests.fixtures.catalogserver import NUMBERS, numbers
from tests.fixtures.command import Command
from tests.fixtures.lake_commits import made
from tests.fixtures.proxy import Answered, Asked, Forward
from tests.fixtures.rest_nodes import RestWorld, rows

from frostline.lake import rest_tables
from frostline.lake.lake_table import Layout
from frostline.runtime import lake_server
from frostline.settings import load

Sessions = Callable[[], psycopg.Connection]
COMMIT = "transactions/commit"


def commits(world: RestWorld) -> list[dict[str, Any]]:
    """The commits that were sent, each with what it says of its tables."""
    return [json.loads(asked.body) for asked in world.proxy.asked if COMMIT in asked.path and asked.body]


def test_a_node_reads_and_writes_the_tables_of_a_rest_catalog(world: RestWorld, command: Command) -> None:
    made(world.lake, "readings", "id bigint not null", "ts timestamptz", "word text", layout=Layout(["day(ts)"]))
    made(world.lake, "totals", "n bigint")
    there = world.make()
    assert there.attach() == {"public.readings": "attached", "public.totals": "attached"}
    assert set(there.attach().values()) == {"unchanged"}
    psql, ours = there.start()(), world.lake.connect()
    psql.execute("insert into readings values (1, '2024-01-01', 'a'), (2, null, 'b'), (3, '2024-01-02', 'c')")
    ours.execute("update readings set word = 'x' where id = 2")
    with psql.transaction():
        psql.execute("update readings set word = word || '!' where id < 3")
        with psql.transaction(force_rollback=True):
            psql.execute("delete from readings")
        assert rows(psql, "delete from readings where upper(word) = 'C' returning id") == [(3,)]
        psql.execute("insert into totals select count(*) from readings")
    wanted = [(1, "a!", 2), (2, "x!", 2)]
    assert rows(ours, "select id, word, n from readings, totals order by id") == wanted
    assert rows(psql, "select id, word, n from readings, totals order by id") == wanted
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("insert into readings (word) values ('none')")
    (change,) = (sent for sent in commits(world) if len(sent["table-changes"]) == 2)
    required = [need["type"] for need in change["table-changes"][0]["requirements"]]
    assert required == [
        "assert-table-uuid",
        "assert-ref-snapshot-id",
        "assert-current-schema-id",
        "assert-default-spec-id",
    ]
    assert command("lake", "detach", "--dsn", there.dsn).exit_code == 0
    assert rows(psql, "select relname from pg_class where relkind = 'f'") == []
    ours.close()


def test_a_cut_has_both_tables_of_a_commit_that_comes_between_the_looks_at_them(
    world: RestWorld, rest_node: Sessions
) -> None:
    psql, ours, come = rest_node(), world.lake.connect(), list[str]()
    ours.execute("begin; insert into one values (1, 0); insert into two values (1, 0); commit")
    lock = threading.Lock()

    def between(asked: Asked, forward: Forward) -> Answered:
        with lock:
            answer = forward(asked)
            if "/tables/one" in asked.path and len(come) < 3:
                come.append(asked.path)
                ours.execute("begin; update one set n = n + 1; update two set n = n + 1; commit")
        return answer

    world.proxy.concerns, world.proxy.fault = "/tables/", between
    with psql.transaction():
        ((one,),) = rows(psql, "select n from one")
        ((two,),) = rows(psql, "select n from two")
    assert one == two
    assert len(come) == 3
    assert any(asked.headers.get("If-None-Match") for asked in world.proxy.asked)
    ours.close()


def test_tables_that_move_all_the_time_give_no_cut_and_a_table_alone_does(
    world: RestWorld, rest_node: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_tables, "_ROUNDS", 5)
    psql, ours = rest_node(), world.lake.connect()
    lock, moved = threading.Lock(), ["one", "two"]

    def always(asked: Asked, forward: Forward) -> Answered:
        with lock:
            name = asked.path.partition("/tables/")[2].partition("?")[0]
            if name in moved:
                ours.execute(f"insert into {name} values (1, 1)".encode())
            return forward(asked)

    world.proxy.concerns, world.proxy.fault = "/tables/", always
    with pytest.raises(psycopg.errors.SerializationFailure, match="no moment of all of them"):
        psql.execute("select * from one")
    moved.remove("two")
    assert rows(psql, "select count(*) > 0 from one") == [(True,)]
    ours.close()


def test_a_table_is_known_by_its_uuid_whatever_it_is_called(world: RestWorld, rest_node: Sessions) -> None:
    psql, client = rest_node(), world.served.client(write=True)
    psql.execute("insert into one values (1, 1)")
    client.rename_table(("public", "one"), ("public", "uno"))
    assert rows(psql, "select * from one") == [(1, 1)]
    psql.execute("insert into one values (2, 2)")
    client.drop_table(("public", "two"))
    other = client.create_table(("public", "two"), NUMBERS)
    other.append(numbers(5))
    for statement in ("select * from two", "insert into two values (1, 1)"):
        with pytest.raises(psycopg.errors.UndefinedTable):
            psql.execute(statement.encode())
    assert rows(psql, "select count(*) from one") == [(2,)]


def test_what_a_node_cannot_serve_is_left_out_and_said(world: RestWorld) -> None:
    client = world.served.client(write=True)
    client.create_namespace("app")
    client.create_table(("app", "plain"), NUMBERS).append(numbers(1, 2))
    listed = NestedField(2, "many", ListType(3, LongType()), required=False)
    client.create_table(("app", "lists"), Schema(NestedField(1, "id", LongType(), required=False), listed))
    world.lake.catalog.execute("create type public.mood as enum ('a', 'b')")
    made(world.lake, "moods", "m public.mood")
    made(world.lake, "checked", "id bigint check (id > 0)")
    there = world.make()
    said = there.attach()
    assert said.pop("app.lists").startswith("left out: column many of type list<long> cannot be shown")
    assert said.pop("public.moods").startswith("left out: column m is of type ")
    assert said == {"app.plain": "attached", "public.checked": "attached"}
    psql, ours = there.start()(), world.lake.connect()
    assert rows(psql, "select id, word from app.plain order by id") == [(1, "new"), (2, "new")]
    psql.execute("update app.plain set word = 'ours' where id = 2")
    assert set(client.load_table("app.plain").scan().to_arrow()["word"].to_pylist()) == {"new", "ours"}
    ours.execute("insert into checked values (1)")
    assert rows(psql, "select * from checked") == [(1,)]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="has CHECKs"):
        psql.execute("insert into checked values (2)")
    assert there.said("--tables", "app.lists").exit_code == 2
    assert "the catalog has no table app.none" in there.said("--tables", "app.none").stderr
    ours.close()


@pytest.mark.parametrize(
    "name", ["n" * 64, "é" * 32, "ctid", "tableoid", ""], ids=["long", "many bytes", "ctid", "tableoid", "none"]
)
def test_names_that_postgres_does_not_take_keep_a_table_out_and_no_other(world: RestWorld, name: str) -> None:
    client = world.served.client(write=True)
    client.create_namespace("app")
    client.create_table(("app", "plain"), NUMBERS)
    client.create_table(("app", "odd"), Schema(NestedField(1, name, LongType(), required=False)))
    there = world.make()
    said = there.attach()
    assert "which Postgres does not take" in said.pop("app.odd")
    assert said == {"app.plain": "attached"}
    assert there.said("--tables", "app.odd").exit_code == 2


@pytest.mark.parametrize(("status", "sqlstate"), [(403, "42P01"), (500, "08006")])
def test_a_table_that_the_catalog_does_not_give_keeps_nobody_from_the_others(
    world: RestWorld, status: int, sqlstate: str
) -> None:
    for name in ("one", "odd", "never"):
        made(world.lake, name, "id bigint")
    there = world.make()
    assert there.attach("--tables", "public.one", "--tables", "public.odd").keys() == {"public.one", "public.odd"}
    running = there.start()()
    running.execute("insert into one values (1); insert into odd values (2)")
    world.proxy.concerns, world.proxy.fault = "tables/never", proxies.answers(status)
    other = world.make()
    assert other.attach().pop("public.never").startswith("left out: ")
    assert other.said("--tables", "public.never").exit_code > 0
    assert rows(other.start()(), "select one.id from one, odd") == [(1,)]
    world.proxy.concerns = "tables/odd"
    with pytest.raises(psycopg.Error) as refused:
        running.execute("select * from odd")
    assert refused.value.sqlstate == sqlstate
    if status == 403:
        running.execute("insert into one values (3)")
        assert rows(running, "select * from one order by 1") == [(1,), (3,)]
    world.proxy.concerns = "/tables/"
    with pytest.raises(psycopg.Error, match="catalog"):
        running.execute("select * from one")


def test_sessions_wait_for_a_catalog_together_and_not_one_after_the_other(
    world: RestWorld, rest_node: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [rest_node() for _ in range(6)]
    find, go_on, asked, came = rest_tables.Tables._found_again, threading.Event(), list[str](), list[int]()  # pyright: ignore[reportPrivateUsage]

    def held(request: Asked, forward: Forward) -> Answered:
        asked.append(request.path)
        go_on.wait()
        return forward(request)

    def counted(tables: rest_tables.Tables, lost: Sequence[int]) -> Any:
        came.append(len(lost))
        return find(tables, lost)

    def all_read(concerns: str, is_enough: Callable[[], bool]) -> list[Any]:
        """While these requests are held until it is enough."""
        world.proxy.concerns, world.proxy.fault = concerns, held
        with ThreadPoolExecutor(len(sessions)) as pool:
            answers = [pool.submit(rows, session, "select count(*) from one") for session in sessions]
            try:
                waiting.until(is_enough)
            finally:
                go_on.set()
            return [answer.result() for answer in answers]

    monkeypatch.setattr(rest_tables.Tables, "_found_again", counted)
    assert all_read("v1/config", lambda: len(asked) == len(sessions)) == [[(0,)]] * len(sessions)
    world.proxy.fault = None
    client = world.served.client(write=True)
    client.rename_table(("public", "one"), ("public", "uno"))
    go_on.clear()
    asked.clear()
    came.clear()
    assert all_read("v1/namespaces?", lambda: len(came) == len(sessions)) == [[(0,)]] * len(sessions)
    assert len(asked) < len(sessions)


def test_a_table_outside_of_the_nodes_warehouse_is_not_served(world: RestWorld, tmp_path: Path) -> None:
    made(world.lake, "one", "id bigint")
    there = world.make()
    there.warehouse = str(tmp_path / "elsewhere")
    assert there.attach()["public.one"].startswith("left out: ")
    there.warehouse = str(world.lake.warehouse)
    there.attach()
    home = there.home / "frostline.toml"
    home.write_text(home.read_text().replace(str(world.lake.warehouse), str(tmp_path / "elsewhere")))
    psql = there.start()()
    with pytest.raises(psycopg.errors.UndefinedTable):
        psql.execute("select * from one")


def test_nothing_is_written_while_the_files_of_a_table_are_not_where_the_catalog_has_them(
    world: RestWorld, rest_node: Sessions
) -> None:
    psql, place = rest_node(), world.lake.warehouse
    psql.execute("insert into one values (1, 1)")
    assert rows(psql, "select * from one") == [(1, 1)]
    place.rename(place.with_name("not mounted"))
    try:
        with pytest.raises(psycopg.errors.ConnectionFailure, match="is not there"):
            psql.execute("insert into one values (2, 2)")
        assert not place.exists()
    finally:
        place.with_name("not mounted").rename(place)
    psql.execute("insert into one values (3, 3)")
    assert rows(psql, "select id from one order by 1") == [(1,), (3,)]


def test_a_table_that_is_not_shown_any_more_keeps_its_foreign_table(world: RestWorld, rest_node: Sessions) -> None:
    psql = rest_node()
    world.served.client(write=True).drop_table(("public", "two"))
    again = world.make()
    again.dsn = psql.info.dsn + f" password={psql.info.password}"
    assert again.attach() == {"public.one": "unchanged", "public.two": "not in the catalog"}


def test_a_node_belongs_to_one_catalog_and_is_given_a_warehouse_with_a_rest_catalog_only(
    world: RestWorld, command: Command
) -> None:
    made(world.lake, "one", "id bigint")
    there = world.make()
    there.attach()
    there.uri = world.served.uri
    assert "is a node of another catalog" in there.said().stderr
    home = there.home / "frostline.toml"
    home.write_text(home.read_text().replace(world.proxy.uri, world.served.uri))
    with pytest.raises(Exception, match="is a node of another catalog"):
        lake_server.start(load(there.home))
    both = command("lake", "attach", "--dsn", there.dsn, "--catalog", world.lake.dsn, "--warehouse", "/somewhere")
    assert (both.exit_code, "--warehouse is for a REST catalog" in both.stderr) == (2, True)


def test_a_catalog_without_commits_of_many_tables_has_no_nodes(world: RestWorld) -> None:
    config = json.dumps({"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]}).encode()
    world.proxy.concerns, world.proxy.fault = "v1/config", proxies.answers(200, config)
    said = world.make().said()
    assert (said.exit_code, "cannot commit many tables at once" in said.stderr) == (4, True)


def test_tables_are_not_made_or_dropped_at_a_node(world: RestWorld, rest_node: Sessions) -> None:
    psql = rest_node()
    psql.execute(
        "create foreign table wish (lake_table bigint, request text) server frostline_lake "
        "options (schema_name 'lake', table_name 'requests')"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="are those of catalog"):
        psql.execute('insert into wish values (5, \'{"do": "drop", "purge": false}\')')


def test_attach_needs_the_warehouse_of_a_rest_catalog(world: RestWorld, command: Command) -> None:
    there = world.make()
    said = command("lake", "attach", "--dsn", there.dsn, "--catalog", there.uri, "--token-file", there.token_file)
    assert (said.exit_code, "does not say where its warehouse is" in said.stderr) == (2, True)
