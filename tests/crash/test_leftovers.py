"""The files of a failed job go before the next one begins, but never those of another history of the same database."""

import pytest
from tests.fixtures import killed
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import run
from tests.fixtures.tables import make_events

from frostline.failpoints import Failpoint

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def died(lake: Lake) -> Lake:
    """Six months whose archive died when everything was written and nothing published."""
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add()
    ended = killed.run(lake, "archive", failpoint=Failpoint.ARCHIVE_STAGED)
    assert ended.returncode == killed.KILLED, ended.said
    assert len(lake.data_files()) == 6
    return lake


def metadata_files(lake: Lake) -> int:
    return len(list(lake.warehouse.rglob("metadata/*")))


@pytest.mark.quick
def test_they_go_before_the_next_job_begins(died: Lake) -> None:
    old = died.data_files()
    written = metadata_files(died)
    (result,) = died.archive()
    assert result.error is None
    assert set(died.data_files()).isdisjoint(old)
    assert (len(died.data_files()), metadata_files(died)) == (6, written)


def test_those_of_another_history_stay_and_its_numbers_are_left_to_it(died: Lake) -> None:
    """As in a database restored from a backup that was taken in the middle of the job: elsewhere it may be published."""
    run(died.catalog, "update frostline.job set server = 'other'; update frostline.history set server = 'other'")
    old = died.data_files()
    (result,) = died.archive()
    assert result.error is None
    assert set(old) < set(died.data_files())
    assert died.value("select max(job_id) > min(job_id) + 1000000 from frostline.job")
