"""A partition that somebody renames, or makes unlogged, while jobs know it by what it was."""

from collections.abc import Callable

import pytest
from tests.fixtures.cold_twins import both, compare, make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import run, value
from tests.fixtures.twins import PARTITIONS, ROWS, TABLE

from frostline import failpoints
from frostline.errors import ConflictError, UsageError
from frostline.failpoints import Failpoint
from frostline.pipeline import archive, verify
from frostline.tiers.moment import Moment

pytestmark = pytest.mark.spark
RENAME = "alter table public.events_1 rename to renamed"


@pytest.fixture
def twins(lake: Lake) -> Lake:
    """`events`, of which nothing is archived, and `plain`."""
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, TABLE.format(name="plain", partitioned=""))
    for name in ("events", "plain"):
        run(lake.catalog, ROWS.format(name=name))
    lake.add(grace="10 years")
    return lake


def once_at(monkeypatch: pytest.MonkeyPatch, place: Failpoint, act: Callable[[], object]) -> None:
    """Do something when an archive comes to a place for the first time."""
    left = [act]

    def reached(here: Failpoint) -> None:
        if here is place and left:
            left.pop()()

    for module in (archive, failpoints):
        monkeypatch.setattr(module, "reached", reached)


@pytest.mark.parametrize(
    "place",
    first(
        2,
        [
            Failpoint.ARCHIVE_CAPTURED,
            Failpoint.ARCHIVE_STAGED,
            Failpoint.ARCHIVE_BEFORE_START,
            Failpoint.ARCHIVE_STARTED,
            Failpoint.ARCHIVE_CAPTURED_ONE,
            Failpoint.ARCHIVE_EXPORTED,
            Failpoint.ARCHIVE_RAISED_BOUND,
        ],
    ),
)
def test_a_partition_renamed_during_an_archive_is_told_and_archived_the_next_time(
    twins: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    once_at(monkeypatch, place, lambda: run(twins.catalog, RENAME))
    (result,) = twins.archive()
    assert isinstance(result.error, ConflictError)
    (again,) = twins.archive()
    assert again.error is None
    compare(twins)
    assert verify.run(twins.catalog, twins.table()).faults == ()


def test_a_partition_renamed_while_it_is_exported_is_told(twins: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = archive.Job.shards

    def shards(self: archive.Job, exported: Moment) -> object:
        rows = list(real(self, exported))
        run(twins.catalog, RENAME)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(archive.Job, "shards", shards)
        (result,) = twins.archive()
    assert isinstance(result.error, ConflictError)
    assert twins.archive()[0].error is None
    compare(twins)


@pytest.mark.slow
def test_a_partition_renamed_in_its_grace_period_is_still_known(lake: Lake) -> None:
    """Its rows are folded around, undone or cleaned as if it had its old name."""
    make_archived(lake)
    run(lake.catalog, RENAME)
    both(lake.catalog, "update public.{t} set status = 'changed' where id in (1, 25)")
    assert lake.fold()[0].error is None
    compare(lake)
    assert "public.renamed" in lake.undo().partitions
    compare(lake)


@pytest.mark.slow
def test_one_renamed_before_it_could_be_emptied_is_emptied(lake: Lake) -> None:
    make_archived(lake)
    run(lake.catalog, RENAME + "; update frostline.managed_table set grace_period = '0'")
    assert "public.renamed" in lake.clean().emptied
    assert value(lake.catalog, "select count(*) from public._events where ts < '2024-02-01'") == 0
    compare(lake)


def test_a_table_with_an_unlogged_partition_is_not_taken(lake: Lake) -> None:
    run(lake.catalog, TABLE.format(name="events", partitioned="partition by range (ts)") + ";" + PARTITIONS)
    run(lake.catalog, "alter table public.events_1 set unlogged")
    with pytest.raises(UsageError, match=r"partition public\.events_1 is unlogged") as refused:
        lake.add()
    assert refused.value.hint == "alter table public.events_1 set logged"


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["events_1", "events_default"])
def test_nothing_is_archived_while_a_partition_is_unlogged(twins: Lake, partition: str) -> None:
    run(twins.catalog, f"alter table public.{partition} set unlogged")
    (result,) = twins.archive()
    assert isinstance(result.error, UsageError)
    assert f"partition public.{partition} of public.events is unlogged" in str(result.error)
    run(twins.catalog, f"alter table public.{partition} set logged")
    assert twins.archive()[0].error is None
    compare(twins)
