"""The history of jobs is bounded. What the lake, a partition or a sweep still needs of it stays, and counters never fall."""

import pytest
from tests.fixtures.cold_twins import make_archived
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.catalog import jobs
from frostline.model.work import Kind
from frostline.pipeline import sweep

pytestmark = pytest.mark.spark
KINDS = "select kind, state from frostline.job order by job_id"
AGED = (
    "update frostline.job set started_at = started_at - interval '100 days', ended_at = ended_at - interval '100 days'"
)


def test_old_jobs_are_forgotten_by_a_sweep_and_their_totals_are_not(lake: Lake) -> None:
    make_archived(lake)
    table = lake.table()
    for _ in range(3):
        jobs.fail(lake.catalog, jobs.start(lake.catalog, table, "premake"), "no grid")
        jobs.record_done(lake.catalog, table, "premake", "made one")
        jobs.fail(lake.catalog, jobs.start(lake.catalog, table, "fold"), "files of it may lie there")
    run(lake.catalog, "update frostline.job set tidied = kind = 'premake' where state = 'failed'")
    run(lake.catalog, AGED)
    before = jobs.totals(lake.catalog)
    failures = jobs.failures(lake.catalog, table)
    run(lake.catalog, "update frostline.job set tidied = true where kind = 'premake'")
    sweep.sweep_table(lake.catalog, lake.settings, table)
    kept = rows(lake.catalog, KINDS)
    assert kept.count(("archive", "published")) == 1, "lake_file and archived_partition refer to it"
    assert [job for job in kept if job[0] == "premake"] == [("premake", "published")], "the newest that succeeded"
    assert kept.count(("fold", "failed")) == 1, "the newest of its kind"
    assert jobs.totals(lake.catalog) == before
    assert jobs.failures(lake.catalog, table).keys() == failures.keys() == {Kind.FOLD}


@pytest.mark.slow
def test_young_jobs_and_those_whose_files_lie_in_the_warehouse_stay(lake: Lake) -> None:
    make_archived(lake)
    table = lake.table()
    numbers = [jobs.start(lake.catalog, table, "premake") for _ in range(4)]
    for number in numbers:
        jobs.fail(lake.catalog, number, "no grid")
    run(lake.catalog, "update frostline.job set tidied = true")
    assert jobs.prune(lake.catalog, table, 90) == 0
    run(lake.catalog, AGED)
    assert jobs.prune(lake.catalog, table, 90, [numbers[0]]) == 2
    left = value(lake.catalog, "select array_agg(job_id order by job_id) from frostline.job where kind = 'premake'")
    assert left == [numbers[0], numbers[3]]
    assert jobs.prune(lake.catalog, table, 90, [numbers[0]]) == 0
