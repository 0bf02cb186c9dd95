"""The upkeep of a lake table is killed at every step: no row is lost, and the next run leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.fixtures import killed, lake_past
from tests.fixtures.lake import Lake
from tests.fixtures.lake_past import ROWS, expired, files, forget, history, needed, pointer, swept
from tests.fixtures.statements import value

from frostline.failpoints import Failpoint
from frostline.lake.lake_table import Layout
from frostline.pipeline import lake_compact, lake_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _of(prefix: str) -> list[Failpoint]:
    return [failpoint for failpoint in Failpoint if failpoint.value.partition("_")[0] == prefix]


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    lake_past.make(lake, Layout(["kind"]))
    with lake.connect() as connection:
        for first in (1, 11, 21):
            connection.execute(
                "insert into readings select n, case n %% 2 when 0 then 'even' else 'odd' end, n "
                "from generate_series(%s::int, %s) n",
                (first, first + 9),
            )
        connection.execute("delete from readings where id in (2, 3, 12)")
        connection.execute("update readings set value = 0 where id = 21")
        yield connection


def _killed(lake: Lake, session: psycopg.Connection, action: str, failpoint: Failpoint) -> None:
    """Kill it there; rows are read and written as ever."""
    before = session.execute(ROWS).fetchall()
    ended = killed.run(lake, action, failpoint=failpoint)
    assert ended.returncode == (1 if failpoint in killed.IN_TASKS else killed.KILLED), ended.said
    forget()
    assert session.execute(ROWS).fetchall() == before
    session.execute("insert into readings values (100, 'even', 1)")
    session.execute("delete from readings where id in (5, 6)")


def _nothing_is_left(lake: Lake, session: psycopg.Connection) -> None:
    before = session.execute(ROWS).fetchall()
    assert (len(before), before[-1]) == (26, (100, "even", "1"))
    lake_past.age(lake)
    expired(lake)
    lake_past.age(lake)
    swept(lake)
    lake_past.age(lake)
    expired(lake)
    assert files(lake) == needed(lake)
    assert session.execute(ROWS).fetchall() == before
    assert value(lake.catalog, "select count(*) from frostline.job where state not in ('published', 'failed')") == 0


@pytest.mark.parametrize("failpoint", _of("compact"))
def test_killed_in_compact(lake: Lake, session: psycopg.Connection, failpoint: Failpoint) -> None:
    _killed(lake, session, "lake compact", failpoint)
    (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert done.error is None
    shown = lake_tables.show(lake.catalog, pointer(lake))
    assert (shown.files, shown.delete_files) == (2, 0)
    _nothing_is_left(lake, session)


@pytest.mark.parametrize("failpoint", _of("expire"))
def test_killed_in_expire(lake: Lake, session: psycopg.Connection, failpoint: Failpoint) -> None:
    (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert done.error is None
    lake_past.age(lake)
    _killed(lake, session, "lake expire", failpoint)
    expired(lake)
    assert len(history(lake)) == 3, "what was compacted, and two commits since"
    _nothing_is_left(lake, session)


@pytest.mark.parametrize("failpoint", _of("sweep"))
def test_killed_in_sweep(lake: Lake, session: psycopg.Connection, failpoint: Failpoint) -> None:
    folder = Path(pointer(lake).location.removeprefix("file://"))
    for name in ("data/dead.parquet", "metadata/dead.avro"):
        (folder / name).write_bytes(b"garbage")
    lake_past.age(lake)
    _killed(lake, session, "lake sweep", failpoint)
    swept(lake)
    _nothing_is_left(lake, session)
