"""A commit by somebody else is never built upon: every job refuses with exit code 3, and no row is lost."""

import json
import logging
import threading
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.outsider import Act, append, drop, forget, lake_table, outsider, rename
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value

from frostline import failpoints
from frostline.catalog import pointers, seams
from frostline.errors import ConflictError
from frostline.failpoints import Failpoint
from frostline.model.work import Kind
from frostline.observe import survey
from frostline.pipeline import archive, clean, compact, expire, fold, sweep, verify
from frostline.pipeline import spark as pipeline_spark
from frostline.pipeline.job import JobContext
from frostline.relation import policy
from frostline.runtime.worker import Worker
from frostline.server.provider import CatalogTables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVERYTHING = "select md5(string_agg(e::text, '|' order by id)) from public.events e"
STATE = """
select t.pointers, s.seams, f.files, j.published
  from (select array_agg(t.metadata_location::text order by 1) as pointers from frostline.iceberg_tables t) t,
       (select array_agg(s::text) as seams from frostline.seam s) s,
       (select array_agg(f::text order by 1) as files from frostline.lake_file f) f,
       (select count(*) as published from frostline.job where state <> 'failed') j"""
RIPE = "create table public._events_ripe partition of public._events for values from ('2025-01-01') to ('2025-02-01')"
COMMANDS = (
    "archive",
    "fold events",
    "clean events",
    "compact events",
    "expire events",
    "sweep events",
    "retain events",
    "undo events",
    "thaw events --from 2024-01-01",
    "expire events --dry-run",
    "sweep events --dry-run",
    "table remove events --keep-lake",
    "table remove events --thaw",
)


@pytest.fixture
def cold(lake: Lake, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Lake:
    """A table with months in the lake only, one in its grace period, one that is ripe, and a change to fold."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    make_archived_events(lake, months=3, rows_a_month=100, lake_partition="year")
    make_due(lake)
    return lake


def make_due(lake: Lake) -> None:
    """Something for every job to do."""
    ((marked,),) = rows(lake.catalog, "update public.events set status = 'changed' where id = 7 returning id")
    run(lake.catalog, RIPE)
    run(lake.catalog, "insert into public.events (ts) values ('2025-01-05'), ('2025-01-06')")
    policy.change(lake.catalog, lake.table(), retention_period="2 months", snapshot_retention="0 s")
    assert marked == 7


def delete(lake: Lake) -> None:
    """What the issue was made of: rows go, and nobody in Postgres wanted it."""
    with outsider(lake.dsn) as catalog:
        lake_table(catalog, lake).delete("id < 100")


def change_nothing(lake: Lake) -> None:
    """A commit without a new snapshot."""
    with outsider(lake.dsn) as catalog, lake_table(catalog, lake).transaction() as transaction:
        transaction.set_properties(owner="somebody")


DEEDS: dict[str, Act] = {
    "delete": delete,
    "append": append,
    "drop": drop,
    "rename": rename,
    "forget": forget,
    "property": change_nothing,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_every_job_is_refused_and_changes_nothing(cold: Lake, command: Command, deed: str) -> None:
    before = cold.value(EVERYTHING)
    DEEDS[deed](cold)
    state, files = rows(cold.catalog, STATE), sorted(cold.warehouse.rglob("*"))
    for words in COMMANDS:
        said = command(*words.split())
        assert said.exit_code == 3, (words, said)
        assert "somebody else" in said.stderr
        assert "frostline repair public.events" in said.stderr
    assert rows(cold.catalog, STATE) == state
    assert sorted(cold.warehouse.rglob("*")) == files
    assert cold.value(EVERYTHING) == before


@pytest.mark.quick
def test_the_message_names_both_snapshots(cold: Lake) -> None:
    delete(cold)
    with outsider(cold.dsn) as catalog:
        theirs = lake_table(catalog, cold).metadata.current_snapshot_id
    (result,) = cold.fold()
    assert f"snapshot {theirs} in place of {seams.get(cold.catalog, cold.table()).snapshot_id}" in str(result.error)


@pytest.mark.parametrize("deed", DEEDS)
def test_verify_status_and_doctor_report_it_at_once(cold: Lake, command: Command, deed: str) -> None:
    assert command("verify").exit_code == 0
    DEEDS[deed](cold)
    said = command("verify", "--output", "json")
    assert said.exit_code == 1
    assert "frostline repair public.events" in json.loads(said.stdout)[0]["faults"][0]
    (table,) = json.loads(command("status", "--output", "json").stdout)["tables"]
    assert table["problems"][0]["command"] == "frostline repair public.events"
    findings = {finding["name"]: finding for finding in json.loads(command("doctor", "--output", "json").stdout)}
    assert findings["foreign commits"]["state"] == "fault"
    assert "frostline repair public.events" in findings["foreign commits"]["hint"]


def test_the_worker_reports_it_and_leaves_the_lake_alone(cold: Lake, caplog: pytest.LogCaptureFixture) -> None:
    delete(cold)
    (state,) = survey.list_all(cold.catalog)
    assert state.ripe_partitions == 1
    worker = Worker(JobContext(cold.catalog, cold.settings, cold.session), threading.Event())
    before = rows(cold.catalog, STATE)
    with caplog.at_level(logging.ERROR, "frostline"):
        tried = worker.round()
    assert {action.kind for action in tried} <= {Kind.PREMAKE}
    assert "frostline repair public.events" in caplog.text
    assert rows(cold.catalog, STATE)[0][0] == before[0][0]


def at(monkeypatch: pytest.MonkeyPatch, place: Failpoint, act: Callable[[], object]) -> list[Failpoint]:
    """Do something when a job gets there."""
    done: list[Failpoint] = []

    def reached(here: Failpoint) -> None:
        if here is place and not done:
            done.append(here)
            act()

    for module in (archive, clean, compact, fold):
        monkeypatch.setattr(module, "reached", reached)
    monkeypatch.setattr(failpoints, "reached", reached)
    return done


RACES = {
    Failpoint.ARCHIVE_EXPORTED: lambda lake: lake.archive()[0].error,
    Failpoint.ARCHIVE_STAGED: lambda lake: lake.archive()[0].error,
    Failpoint.ARCHIVE_RAISED_BOUND: lambda lake: lake.archive()[0].error,
    Failpoint.FOLD_REWRITTEN: lambda lake: lake.fold()[0].error,
    Failpoint.FOLD_STAGED: lambda lake: lake.fold()[0].error,
    Failpoint.COMPACT_MERGED: lambda lake: lake.compact()[0].error,
    Failpoint.COMPACT_STAGED: lambda lake: lake.compact()[0].error,
    Failpoint.RETAIN_TRIMMED: lambda lake: lake.retain()[0].error,
    Failpoint.RETAIN_STAGED: lambda lake: lake.retain()[0].error,
    Failpoint.EXPIRE_STARTED: lambda lake: _expired(lake).error,
}


def _expired(lake: Lake) -> expire.Result:
    (result,) = expire.run(lake.catalog, lake.settings, [lake.table()])
    return result


def _prepare(lake: Lake, place: Failpoint) -> None:
    """Let there be something to do for the job."""
    if place is Failpoint.EXPIRE_STARTED:
        lake.fold()


@pytest.mark.parametrize("place", RACES, ids=lambda place: place.value)
@pytest.mark.parametrize("deed", ["delete", "drop"])
def test_a_commit_in_the_middle_of_a_job_makes_it_publish_nothing(
    cold: Lake, monkeypatch: pytest.MonkeyPatch, place: Failpoint, deed: str
) -> None:
    _prepare(cold, place)
    before = cold.value(EVERYTHING)
    with monkeypatch.context() as patched:
        done = at(patched, place, lambda: DEEDS[deed](cold))
        error = RACES[place](cold)
        assert done == [place]
    assert isinstance(error, ConflictError), error
    there = [pointer for (pointer,) in rows(cold.catalog, "select metadata_location from frostline.iceberg_tables")]
    assert seams.get(cold.catalog, cold.table()).metadata_location not in there
    assert cold.value(EVERYTHING) == before


@pytest.mark.quick
def test_a_commit_between_the_check_and_the_swap_is_found_by_the_swap(
    cold: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cold.value(EVERYTHING)
    real = pointers.swap

    def late(*arguments: object) -> None:
        delete(cold)
        real(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pointers, "swap", late)
    (result,) = cold.fold()
    assert isinstance(result.error, ConflictError)
    assert "meanwhile" in str(result.error)
    assert cold.value(EVERYTHING) == before


def test_a_load_from_spark_is_not_built_upon_it(cold: Lake, spark: SparkSession) -> None:
    from frostline import spark as connector

    rows_ = [(10**6 + number, f"2024-01-0{number}", "loaded") for number in range(1, 4)]
    frame = spark.createDataFrame(rows_, "id long, ts string, status string")
    before = cold.value(EVERYTHING)
    delete(cold)
    with pytest.raises(ConflictError, match="somebody else"):
        connector.write(frame, "public.events", dsn=cold.dsn, lake_rows=1)
    assert cold.value(EVERYTHING) == before


def test_cold_rows_can_be_read_when_the_catalog_has_lost_the_table(cold: Lake) -> None:
    """A lake server that has not read the snapshot yet asks where it is."""
    before, table = cold.value(EVERYTHING), cold.table()
    snapshot_id = seams.get(cold.catalog, table).snapshot_id
    assert snapshot_id is not None
    drop(cold)
    assert len(CatalogTables(cold.dsn).files(table.id, snapshot_id)) == 3
    assert cold.value(EVERYTHING) == before


def test_a_lake_that_does_not_hold_what_is_recorded_is_not_built_upon(cold: Lake) -> None:
    """A catalog that was built upon a foreign commit by an older version has its pointer right and its records wrong."""
    run(cold.catalog, "delete from frostline.lake_file where path = (select min(path) from frostline.lake_file)")
    (result,) = cold.archive()
    assert isinstance(result.error, ConflictError)
    assert "rows in" in str(result.error)
    assert result.error.hint == "frostline verify public.events"
    assert isinstance(_expired(cold).error, ConflictError)
    (swept,) = sweep.run(cold.catalog, cold.settings, [cold.table()], sweep.Request())
    assert isinstance(swept.error, ConflictError)
    assert verify.run(cold.catalog, cold.table()).faults


def test_what_nobody_else_touched_goes_on(cold: Lake) -> None:
    before = cold.value("select count(*) from events")
    assert cold.fold()[0].error is None
    assert cold.archive()[0].error is None
    assert cold.compact()[0].error is None
    assert _expired(cold).error is None
    assert cold.value("select count(*) from events") == before
    assert value(cold.catalog, "select count(*) from frostline.job where state = 'failed'") == 0
