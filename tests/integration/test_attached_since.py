"""A transaction with one snapshot writes rows of a partition that was attached after it: they are marked all the same.

Postgres uses a partition from the moment it is attached, and shows its catalogs as of the snapshot, in which it is none.
"""

from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.cold_twins import both, compare, make_archived, shown
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run
from tests.fixtures.twins import make_twins

from frostline.failpoints import Failpoint
from frostline.pipeline import archive, thaw

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LEVELS = ["repeatable read", "serializable"]
STATEMENTS = [
    "delete from public.{t} where id = 5",
    "update public.{t} set ts = '2090-05-05' where id = 5",
    "update public.{t} set status = 'meanwhile' where id = 5",
]
APRIL = "for values from ('2024-04-01 00:00+00') to ('2024-05-01 00:00+00')"


@pytest.fixture
def other(lake: Lake) -> Iterator[psycopg.Connection]:
    """Somebody else's session."""
    with lake.connect() as connection:
        yield connection


class _Died(Exception):
    """The job ends here."""


def _begin(session: psycopg.Connection, level: str) -> None:
    session.execute(f"begin isolation level {level}".encode())
    session.execute("select count(*) from public.plain")


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(("level", "dies"), [(LEVELS[0], False), (LEVELS[0], True), (LEVELS[1], False)])
def test_in_a_thaw(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, other: psycopg.Connection, statement: str, level: str, dies: bool
) -> None:
    """The snapshot is from between refill and attach, so the transaction sees the rows in the new partition."""
    make_twins(lake)
    done: list[str] = []

    def reached(here: Failpoint) -> None:
        if here is Failpoint.THAW_CAUGHT_UP and not done:
            _begin(other, level)
        if here is Failpoint.THAW_ATTACHED and not done:
            both(other, statement)
            assert shown(other) == shown(other, "plain")
            other.execute("commit")
            done.append(statement)
            compare(lake)
            if dies:
                raise _Died

    monkeypatch.setattr(thaw.failpoints, "reached", reached)
    if dies:
        with pytest.raises(_Died):
            lake.thaw()
        compare(lake)
    lake.thaw()
    assert done
    compare(lake)


@pytest.mark.quick
@pytest.mark.parametrize("level", LEVELS)
def test_in_an_archive(lake: Lake, monkeypatch: pytest.MonkeyPatch, other: psycopg.Connection, level: str) -> None:
    """Somebody attaches a table with rows, and it is archived while the transaction is open."""
    make_archived(lake)
    run(lake.catalog, "create table public.events_4 (like public._events including all excluding identity)")
    for name in ("events_4", "plain"):
        run(lake.catalog, f"insert into public.{name} (id, ts) values (905, '2024-04-05'), (906, '2024-04-06')")
    _begin(other, level)
    run(lake.catalog, f"alter table public._events attach partition public.events_4 {APRIL}")
    done: list[str] = []

    def reached(here: Failpoint) -> None:
        if here is Failpoint.ARCHIVE_STAGED and not done:
            both(other, "delete from public.{t} where id = 905")
            assert shown(other) == shown(other, "plain")
            other.execute("commit")
            done.append("deleted")

    monkeypatch.setattr(archive, "reached", reached)
    (result,) = lake.archive("events")
    assert (result.error, result.partitions, done) == (None, 1, ["deleted"])
    compare(lake)


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_not_truncated_by_rows_that_the_transaction_sees(
    lake: Lake, other: psycopg.Connection, level: str
) -> None:
    """It may have others: rows below the frost line, or rows that an archive has exported."""
    make_archived(lake)
    run(lake.catalog, "create table public.events_0 (like public._events including all excluding identity)")
    _begin(other, level)
    older = "for values from ('2023-12-01 00:00+00') to ('2024-01-01 00:00+00')"
    run(lake.catalog, f"alter table public._events attach partition public.events_0 {older}")
    lake.archive("events")
    both(lake.catalog, "insert into public.{t} (id, ts) values (907, '2023-12-24')")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be truncated at") as error:
        other.execute("truncate public.events_0")
    assert "READ COMMITTED" in str(error.value.diag.message_hint)
    other.execute("rollback")
    compare(lake)
    run(lake.catalog, "delete from public.events_0")
    run(lake.catalog, "delete from public.plain where id = 907")
    run(lake.catalog, "vacuum public.events_0")
    other.execute(f"begin isolation level {level}".encode())
    other.execute("truncate public.events_0; commit")
    compare(lake)
