"""Two columns exchange their names while a job is at work: it planned with the old ones."""

import pytest
from tests.fixtures.cold_twins import both, compare
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run
from tests.fixtures.twins import make_twins

from frostline import failpoints
from frostline.errors import ConflictError
from frostline.failpoints import Failpoint
from frostline.lake import commit
from frostline.pipeline import verify
from frostline.relation import guard


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, with two columns of one type."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    alter(lake, "alter column status drop not null", "add column other text")
    with lake.connect() as connection:
        both(connection, "update public.{t} set other = 'o' || id where id % 2 = 0")
    assert lake.fold("events")[0].error is None
    return lake


def alter(lake: Lake, *changes: str) -> None:
    """The same for the heap and for the plain table."""
    with lake.connect() as connection:
        for change in changes:
            run(connection, f"alter table public._events {change}")
            run(connection, f"alter table public.plain {change}")


def exchange(lake: Lake) -> None:
    """Each of the two columns gets the other's name."""
    alter(lake, "rename column status to x", "rename column other to status", "rename column x to other")


def test_an_archive_that_was_under_way_publishes_nothing(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with cold.connect() as connection:
        partition = "create table public.events_4 partition of public._events for values from {} to {}"
        run(connection, partition.format("('2024-04-01 00:00+00')", "('2024-05-01 00:00+00')"))
        both(connection, "insert into public.{t} (id, ts, other) values (801, '2024-04-02 00:00+00', 'o801')")
    real = commit.stage

    def stage(*arguments: object, **options: object) -> commit.StagedCommit:
        monkeypatch.undo()
        exchange(cold)
        return real(*arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(commit, "stage", stage)
    (first,) = cold.archive("events")
    compare(cold)
    assert isinstance(first.error, ConflictError)
    (second,) = cold.archive("events")
    assert second.error is None
    compare(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


@pytest.mark.parametrize("place", [Failpoint.THAW_CREATED, Failpoint.THAW_CAUGHT_UP, Failpoint.THAW_ATTACHED])
def test_a_thaw_that_was_under_way_attaches_nothing(
    cold: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    def reached(now: Failpoint) -> None:
        if now is place:
            monkeypatch.undo()
            exchange(cold)

    monkeypatch.setattr(failpoints, "reached", reached)
    with pytest.raises(ConflictError):
        cold.thaw()
    compare(cold)
    cold.thaw()
    compare(cold)
