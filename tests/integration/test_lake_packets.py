"""Answers to messages that come together go together, in order, and none is held back from a client that waits."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.lakeserver import column, lake_dsn, stored_in, table, without_postgres

from frostline.model.tiers import TierKind
from frostline.server.connection import Unsent
from frostline.server.listen import LakeServer

EVENTS = table(7, [column(1, "id", "int8"), column(2, "n", "int4")], "n", TierKind.INTEGER)
QUERY = 'select n from public."7[,1000000)" where id = $1::bigint'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LakeServer]:
    with without_postgres(tmp_path, EVENTS) as server:
        stored_in(server).publish(7, 1, {"id": list(range(10)), "n": list(range(10))})
        yield server


@pytest.fixture
def client(server: LakeServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(lake_dsn(server), autocommit=True) as connection:
        yield connection


def asked(client: psycopg.Connection, number: int, query: str = QUERY) -> psycopg.RawCursor:
    cursor = psycopg.RawCursor(client)
    cursor.execute(query.encode(), [str(number)])
    return cursor


def test_a_flush_brings_what_there_is(client: psycopg.Connection) -> None:
    """A fetch inside a pipeline asks for that, and does not end the batch."""
    with client.pipeline():
        for number in range(5):
            assert asked(client, number).fetchall() == [(number,)]


def test_several_batches_are_answered_in_order(client: psycopg.Connection) -> None:
    with client.pipeline() as pipeline:
        first = [asked(client, number) for number in (1, 2)]
        pipeline.sync()
        first.append(asked(client, 3))
    assert [cursor.fetchall() for cursor in first] == [[(1,)], [(2,)], [(3,)]]


def test_after_an_error_the_next_batch_is_answered(client: psycopg.Connection) -> None:
    with client.pipeline() as pipeline:
        before = asked(client, 1)
        asked(client, 2, QUERY.replace("id", "nothing"))
        with pytest.raises(psycopg.errors.UndefinedColumn):
            pipeline.sync()
        after = asked(client, 3)
    assert (before.fetchall(), after.fetchall()) == ([(1,)], [(3,)])


def test_large_answers_are_not_copied() -> None:
    unsent, large = Unsent(), memoryview(bytes(20_000))
    assert not unsent.add(b"before")
    assert unsent.add(large)
    pieces = unsent.pieces()
    assert (pieces[0], pieces[1] is large, len(pieces)) == (b"before", True, 2)
    assert unsent.pieces() == []
    unsent.add(b"parsed ")
    unsent.add(b"bound")
    assert (unsent.pieces(), unsent.take()) == ([b"parsed bound"], b"")
