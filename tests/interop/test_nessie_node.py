"""A node of Nessie: its tables read and written from Postgres, in transactions, while PyIceberg does the same."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from tests.fixtures import proxy as proxies
from tests.fixtures.catalogserver import NUMBERS, numbers
from tests.fixtures.command import Command
from tests.fixtures.proxy import Answered, Asked, Forward, Proxy, proxied
from tests.fixtures.rest_nodes import RestNode, rows
from tests.fixtures.seaweed import Seaweed

from frostline.lake import objectstore, paths
from frostline.lake.objectstore import Access

Node = tuple[Proxy, RestCatalog, Callable[[], psycopg.Connection]]


@pytest.fixture
def node(
    seaweed: Seaweed,
    nessie: str,
    empty_database: str,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Node]:
    """A node with two tables of three rows, that PyIceberg has made; opens sessions."""
    given = {
        "S3_ACCESS_KEY": seaweed.access_key,
        "S3_SECRET_KEY": seaweed.secret_key,
        "S3_ENDPOINT": seaweed.s3_endpoint,
        "S3_REGION": seaweed.region,
        "S3_PATH_STYLE": "true",
    }
    for name, text in given.items():
        monkeypatch.setenv(f"FROSTLINE_{name}", text)
    for name in ("FROSTLINE_DSN", "FROSTLINE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    access = Access(
        seaweed.access_key, seaweed.secret_key, region=seaweed.region, endpoint=seaweed.s3_endpoint, path_style=True
    )
    with objectstore.used(access), ExitStack() as stack:
        client = RestCatalog("other", uri=nessie)
        client.create_namespace_if_not_exists("node")
        for name in ("one", "two"):
            if client.table_exists(("node", name)):
                client.drop_table(("node", name))
            made = client.create_table(("node", name), NUMBERS)
            made.io = paths.file_io(made.metadata_location)
            made.append(numbers(1, 2, 3))
        proxy = stack.enter_context(proxied(nessie.removesuffix("/iceberg")))
        proxy.concerns, proxy.fault = "v1/config", _through(proxy, nessie.removesuffix("/iceberg"))
        place = made.location().removeprefix("s3://").partition("/")[0]
        token = tmp_path / "token"
        token.write_text("nessie asks for none")
        there = RestNode(
            empty_database, tmp_path / "node", f"{proxy.uri}/iceberg", token, f"s3://{place}", command, stack
        )
        said = there.attach("--tables", "node.one", "--tables", "node.two")
        assert said == {"node.one": "attached", "node.two": "attached"}
        yield proxy, client, there.start()


def _through(proxy: Proxy, nessie: str) -> proxies.Fault:
    """Nessie tells its clients its own address, past any proxy."""

    def fault(asked: Asked, forward: Forward) -> Answered:
        answer = forward(asked)
        return replace(answer, body=answer.body.replace(nessie.encode(), proxy.uri.encode()))

    return fault


def shown(client: RestCatalog, name: str) -> list[tuple[int, str]]:
    """The table's rows, by another client."""
    table = client.load_table(("node", name))
    table.io = paths.file_io(table.metadata_location)
    read: pa.Table = table.scan().to_arrow()
    return sorted((row["id"], row["word"]) for row in read.to_pylist())


def test_a_node_of_nessie_reads_and_writes_its_tables_in_transactions(node: Node) -> None:
    _, client, session = node
    psql, other = session(), session()
    assert rows(psql, "select id, word from node.one order by id") == shown(client, "one")
    psql.execute("begin")
    psql.execute("update node.one set word = 'ours' where id = 1")
    psql.execute("delete from node.two where id > 1 returning id")
    psql.execute("insert into node.two select id, word from node.one")
    assert rows(other, "select count(*) from node.two") == [(3,)]
    psql.execute("commit")
    assert shown(client, "one") == [(1, "ours"), (2, "new"), (3, "new")]
    assert shown(client, "two") == [(1, "new"), (1, "ours"), (2, "new"), (3, "new")]
    assert rows(other, "select id, word from node.two order by 1, 2") == shown(client, "two")
    theirs = client.load_table(("node", "one"))
    theirs.io = paths.file_io(theirs.metadata_location)
    theirs.append(numbers(4, word="theirs"))
    assert rows(psql, "select word from node.one where id = 4") == [("theirs",)]


def test_transactions_at_nessie_conflict_on_the_same_row_only(node: Node) -> None:
    _, client, session = node
    here, there = session(), session()
    for each in (here, there):
        each.execute("begin")
        each.execute("update node.one set word = word || '!' where id = 1")
    for number, each in enumerate((here, there)):
        each.execute("insert into node.two values (%s, 'added')", [10 + number])
    here.execute("commit")
    with pytest.raises(psycopg.errors.SerializationFailure):
        there.execute("commit")
    theirs: Any = client.load_table(("node", "two"))
    theirs.io = paths.file_io(theirs.metadata_location)
    there.execute("begin; insert into node.two values (12, 'added')")
    theirs.append(numbers(13, word="added"))
    there.execute("commit")
    assert [number for number, _ in shown(client, "two")] == [1, 2, 3, 10, 12, 13]
    assert shown(client, "one") == [(1, "new!"), (2, "new"), (3, "new")]


@pytest.mark.parametrize(
    "fault", [proxies.cut_after, proxies.cut_before, proxies.late], ids=["answer", "request", "late"]
)
def test_a_commit_to_nessie_whose_answer_is_lost_happens_once(node: Node, fault: proxies.Fault) -> None:
    proxy, client, session = node
    psql, lost = session(), list[str]()

    def once(asked: Asked, forward: Forward) -> Answered | None:
        lost.append(asked.path)
        return fault(asked, forward) if len(lost) == 1 else forward(asked)

    assert rows(psql, "select count(*) from node.one") == [(3,)], "from now on its address is known"
    psql.execute("insert into node.one values (5, 'y')")
    proxy.concerns, proxy.fault = "transactions/commit", once
    psql.execute("begin; insert into node.one values (4, 'x'); insert into node.two values (4, 'x'); commit")
    assert shown(client, "one") == [(1, "new"), (2, "new"), (3, "new"), (4, "x"), (5, "y")]
    assert shown(client, "two") == [(1, "new"), (2, "new"), (3, "new"), (4, "x")]
    assert lost
