"""Commits of nodes to an Iceberg REST catalog: others are faster, answers are lost, the catalog is down, tokens run out."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import LongType
from tests.fixtures import proxy as proxies
from tests.fixtures.lake_commits import made
from tests.fixtures.proxy import Answered, Asked, Forward
from tests.fixtures.rest_nodes import RestWorld, rows

from frostline.catalog import tokens
from frostline.catalog.connect import connect as open_connection
from frostline.lake import rest_publish

Sessions = Callable[[], psycopg.Connection]


def test_two_nodes_of_one_catalog_conflict_on_the_same_row_only(world: RestWorld) -> None:
    made(world.lake, "accounts", "id bigint", "n bigint")
    opened = list[psycopg.Connection]()
    for each in (world.make(), world.make()):
        each.attach()
        opened.append(each.start()())
    here, there = opened
    here.execute("insert into accounts select id, 0 from generate_series(1, 3) id")
    for each in opened:
        each.execute("begin isolation level repeatable read")
        each.execute("select sum(n) from accounts")
    here.execute("update accounts set n = n + 1 where id = 1")
    there.execute("update accounts set n = n + 1 where id = 2")
    here.execute("commit")
    there.execute("commit")
    for each in opened:
        each.execute("begin")
        each.execute("update accounts set n = n + 1 where id = 3")
    there.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        here.execute("commit")
    for number, each in enumerate(opened):
        each.execute("begin")
        each.execute("insert into accounts values (%s, 7)", [4 + number])
    for each in opened:
        each.execute("commit")
    wanted = [(1, 1), (2, 1), (3, 1), (4, 7), (5, 7)]
    assert [rows(each, "select * from accounts order by id") for each in opened] == [wanted, wanted]


def test_two_nodes_and_the_catalogs_own_lose_no_update_and_have_no_error_but_40001(world: RestWorld) -> None:
    made(world.lake, "counter", "id bigint", "n bigint")
    made(world.lake, "journal", "writer bigint")
    openers: list[Sessions] = [world.lake.connect]
    for each in (world.make(), world.make()):
        each.attach()
        openers.append(each.start())
    with openers[0]() as session:
        session.execute("insert into counter values (1, 0)")

    def count(writer: int) -> None:
        with openers[writer % 3]() as session:
            done = 0
            while done < 4:
                try:
                    with session.transaction():
                        session.execute("update counter set n = n + 1 where id = 1")
                        session.execute("insert into journal values (%s)", [writer])
                    done += 1
                except psycopg.errors.SerializationFailure:
                    continue

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(count, range(6)))
    for opened in openers:
        with opened() as session:
            assert rows(session, "select n from counter") == [(24,)]
            assert rows(session, "select count(*), count(distinct writer) from journal") == [(24, 6)]


def test_a_commit_that_meets_another_one_on_its_way_is_staged_anew(world: RestWorld, rest_node: Sessions) -> None:
    psql, ours, met = rest_node(), world.lake.connect(), list[int]()

    def faster(asked: Asked, forward: Forward) -> Answered:
        if not met:
            met.append(1)
            ours.execute("insert into two values (1, 1)")
        answer = forward(asked)
        met.append(answer.status)
        return answer

    world.proxy.fault = faster
    psql.execute("begin; insert into one values (2, 2); insert into two values (2, 2); commit")
    assert met == [1, 409, 204]
    assert rows(psql, "select one.id, two.id from one, two order by 2") == [(2, 1), (2, 2)]
    ours.close()


def test_a_row_that_somebody_changes_while_the_commit_is_on_its_way_is_a_conflict(
    world: RestWorld, rest_node: Sessions
) -> None:
    psql, ours = rest_node(), world.lake.connect()
    psql.execute("insert into one values (1, 0)")
    done = list[int]()

    def faster(asked: Asked, forward: Forward) -> Answered:
        if not done:
            done.append(1)
            ours.execute("update one set n = 10 where id = 1")
        return forward(asked)

    world.proxy.fault = faster
    psql.execute("begin; update one set n = n + 1; insert into two values (9, 9)")
    with pytest.raises(psycopg.errors.SerializationFailure):
        psql.execute("commit")
    assert rows(psql, "select n, (select count(*) from two) from one") == [(10, 0)]
    ours.close()


def new_column(client: RestCatalog) -> None:
    with client.load_table("public.one").update_schema() as schema:
        schema.add_column("later", LongType())


def new_branch(client: RestCatalog) -> None:
    table = client.load_table("public.one")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "aside").commit()
    table.append(pa.table({"id": [9], "n": [9]}), branch="aside")


@pytest.mark.parametrize("does", [new_column, new_branch])
def test_what_is_more_than_rows_and_comes_while_the_commit_is_on_its_way_is_built_upon(
    world: RestWorld, rest_node: Sessions, does: Callable[[RestCatalog], None]
) -> None:
    psql, client, met = rest_node(), world.served.client(write=True), list[int]()
    psql.execute("insert into one values (1, 1)")

    def faster(asked: Asked, forward: Forward) -> Answered:
        if not met:
            met.append(1)
            does(client)
        answer = forward(asked)
        met.append(answer.status)
        return answer

    world.proxy.fault = faster
    psql.execute("insert into one values (2, 2)")
    assert met == [1, 409, 204]
    assert rows(psql, "select * from one order by 1") == [(1, 1), (2, 2)]


def sent_twice(asked: Asked, forward: Forward) -> Answered:
    """As by a proxy that tries again: the second answer is that it conflicts with what the first one has done."""
    forward(asked)
    return forward(asked)


@pytest.mark.parametrize(
    "fault",
    [
        sent_twice,
        proxies.cut_after,
        proxies.cut_before,
        proxies.late,
        proxies.answers(500),
        proxies.answers(502, forwards=True),
    ],
    ids=["sent twice", "answer lost", "request lost", "late", "error before", "error after"],
)
def test_a_commit_whose_answer_is_lost_happens_once(
    world: RestWorld, rest_node: Sessions, fault: proxies.Fault
) -> None:
    psql, ours, lost = rest_node(), world.lake.connect(), list[int]()

    def once(asked: Asked, forward: Forward) -> Answered | None:
        lost.append(1)
        return fault(asked, forward) if len(lost) == 1 else forward(asked)

    world.proxy.fault = once
    psql.execute("begin; insert into one values (1, 1); insert into two values (2, 2); commit")
    both = "select one.id, two.id from one, two"
    assert rows(psql, both) == rows(ours, both) == [(1, 2)]
    psql.execute("insert into one values (3, 3)")
    assert rows(ours, "select id from one order by 1") == [(1,), (3,)]
    ours.close()


def test_a_lost_commit_upon_which_others_have_committed_is_found(world: RestWorld, rest_node: Sessions) -> None:
    psql, ours, lost = rest_node(), world.lake.connect(), list[int]()

    def once(asked: Asked, forward: Forward) -> Answered | None:
        lost.append(1)
        if len(lost) > 1:
            return forward(asked)
        forward(asked)
        ours.execute("insert into one values (10, 0)")
        ours.execute("insert into one values (11, 0)")
        return None

    world.proxy.fault = once
    psql.execute("insert into one values (1, 0)")
    assert rows(psql, "select id from one order by 1") == [(1,), (10,), (11,)]
    assert len(lost) == 1, "it was seen, and not sent again"
    ours.close()


def test_a_lost_request_that_another_commit_has_overtaken_is_staged_anew(world: RestWorld, rest_node: Sessions) -> None:
    psql, ours, lost = rest_node(), world.lake.connect(), list[int]()

    def once(asked: Asked, forward: Forward) -> Answered | None:
        lost.append(1)
        if len(lost) > 1:
            return forward(asked)
        ours.execute("insert into one values (10, 0)")
        return None

    world.proxy.fault = once
    psql.execute("begin; insert into one values (1, 0); insert into two values (1, 0); commit")
    assert rows(psql, "select one.id, two.id from one, two order by 1") == [(1, 1), (10, 1)]
    ours.close()


def test_a_commit_of_which_nobody_hears_again_is_unknown_and_deletes_nothing(
    world: RestWorld, rest_node: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_publish, "PATIENCE_S", 0.5)
    psql, ours = rest_node(), world.lake.connect()

    def dies(asked: Asked, forward: Forward) -> None:
        forward(asked)
        world.proxy.concerns, world.proxy.fault = "", proxies.cut_before

    world.proxy.fault = dies
    with pytest.raises(psycopg.errors.TransactionResolutionUnknown):
        psql.execute("insert into one values (1, 1)")
    assert rows(ours, "select * from one") == [(1, 1)], "it has happened, with all of its files"
    world.proxy.fault = None
    assert rows(psql, "select * from one") == [(1, 1)]
    ours.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_commit_that_is_sent_elsewhere_is_an_error_and_nothing_is_written(
    world: RestWorld, rest_node: Sessions, status: int
) -> None:
    psql, ours = rest_node(), world.lake.connect()
    world.proxy.fault = lambda _asked, _forward: Answered(status, elsewhere="/v1/config")  # as a login: 200 for a GET
    with pytest.raises(psycopg.Error, match=f"HTTP {status}"):
        psql.execute("insert into one values (1, 1)")
    world.proxy.fault = None
    assert rows(psql, "select count(*) from one") == rows(ours, "select count(*) from one") == [(0,)]
    ours.close()


@pytest.mark.parametrize("status", [409, 500])
def test_a_catalog_that_commits_to_one_table_of_two_is_told_from_one_that_has_done_nothing(
    world: RestWorld, rest_node: Sessions, status: int
) -> None:
    psql, ours = rest_node(), world.lake.connect()

    def torn(asked: Asked, forward: Forward) -> Answered:
        first = [one for one in json.loads(asked.body)["table-changes"] if one["identifier"]["name"] == "one"]
        forward(replace(asked, body=json.dumps({"table-changes": first}).encode()))
        ours.execute("insert into two values (9, 9)")
        return Answered(status)

    world.proxy.fault = torn
    with pytest.raises(psycopg.errors.TransactionResolutionUnknown, match="is half done"):
        psql.execute("begin; insert into one values (1, 1); insert into two values (1, 1); commit")
    assert rows(ours, "select id from one union all select id from two order by 1") == [(1,), (9,)]
    ours.close()


def test_a_catalog_that_is_down_at_commit_leaves_nothing_written(world: RestWorld, rest_node: Sessions) -> None:
    psql, ours = rest_node(), world.lake.connect()
    psql.execute("begin; insert into one select i, i from generate_series(1, 1000) i")
    assert rows(psql, "select count(*) from one") == [(1000,)]
    world.proxy.concerns, world.proxy.fault = "", proxies.cut_before
    with pytest.raises(psycopg.errors.ConnectionFailure):
        psql.execute("commit")
    with pytest.raises(psycopg.errors.ConnectionFailure):
        psql.execute("select * from one")
    world.proxy.fault = None
    assert rows(psql, "select count(*) from one") == rows(ours, "select count(*) from one") == [(0,)]
    assert [file for file in world.lake.data_files() if "/one-" in str(file)] == []
    ours.close()


def test_a_token_that_has_run_out_is_read_again_and_without_another_nothing_is_done(world: RestWorld) -> None:
    made(world.lake, "one", "id bigint", "n bigint")
    there = world.make()
    there.attach()
    psql = there.start()()
    psql.execute("insert into one values (1, 1)")

    def end_all() -> None:
        with open_connection(world.lake.dsn, purpose="tests") as connection:
            for token in tokens.list_all(connection):
                tokens.drop(connection, token.token_id)

    psql.execute("begin; insert into one values (2, 2)")
    end_all()
    there.token_file.write_text(world.served.token(write=True))
    psql.execute("commit")
    psql.execute("begin; insert into one values (3, 3)")
    end_all()
    with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
        psql.execute("commit")
    there.token_file.write_text(world.served.token())
    assert rows(psql, "select id from one order by 1") == [(1,), (2,)]
    with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
        psql.execute("insert into one values (4, 4)")  # that one may read only
    assert rows(psql, "select id from one order by 1") == [(1,), (2,)]
