"""Schema changes are not followed. So that no value gets lost: what has left the heap has all its columns in the lake."""

import pytest
from tests.fixtures import copies
from tests.fixtures.interleaving import come_before
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import ConflictError, UsageError
from frostline.lake import commit, publish
from frostline.observe import status
from frostline.pipeline import clean, export
from frostline.relation import heap
from frostline.tiers import moment, survey

TABLE = """
create table public.t (id int, ts timestamptz, a text, b text, primary key (id, ts)) partition by range (ts);
create table public.t_1 partition of public.t for values from ('2024-01-01+00') to ('2024-02-01+00');
create table public.t_2 partition of public.t for values from ('2024-02-01+00') to ('2024-03-01+00');
insert into public.t select i, timestamptz '2024-01-10+00' + (i % 2) * interval '1 month', 'a' || i, 'b' || i
  from generate_series(1, 20) i;
"""
ADDED = "alter table public._t add column note text default 'kept'"
CHANGES = {
    ADDED: "it has a new column note",
    "alter table public._t rename a to c": "it has no column a, it has a new column c",
    "alter table public._t rename a to c; alter table public._t rename b to a; alter table public._t rename c to b": (
        "columns have changed their places"
    ),
    "alter table public._t drop column b cascade": "it has no column b",
    "alter table public._t drop column b cascade; alter table public._t add column d text, add column e int": (
        "it has no column b, it has a new column d, e"
    ),
    # Postgres refuses it for the relation's sake; where somebody has dropped that, it does not.
    "drop view frostline_relation.t_1 cascade; drop schema frostline_write cascade; alter table public._t alter column b type varchar(9)": (
        "column b is character varying(9) now"
    ),
}
FOLDING = {"begun": (moment, "exported"), "staged": (commit, "stage"), "publishing": (publish, "lake")}


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two months of `t`, of which nothing is archived. Tasks run in this process."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLE)
    lake.add("t")
    return lake


def altered(lake: Lake, statements: str = ADDED) -> None:
    with lake.connect() as connection:
        for statement in statements.split(";"):
            run(connection, statement)


def noted(lake: Lake) -> int:
    return value(lake.catalog, "select count(*) from public._t where note = 'kept'")


@pytest.mark.parametrize(("statements", "what"), CHANGES.items(), ids=CHANGES.values())
def test_no_rows_leave_a_heap_with_other_columns(table: Lake, statements: str, what: str) -> None:
    altered(table, statements)
    (result,) = table.archive()
    assert isinstance(result.error, UsageError)
    assert what in result.error.message
    assert "frostline table remove public.t --thaw" in (result.error.hint or "")
    assert value(table.catalog, "select count(*) from public._t") == 20
    assert rows(table.catalog, "select * from frostline.lake_file") == []


@pytest.mark.parametrize(
    "place",
    [(moment, "exported"), (moment, "joined"), (survey, "of_rows"), (export, "_copy_rows"), (commit, "stage")],
    ids=["planned", "snapshot", "shards", "task", "staged"],
)
def test_a_column_that_comes_during_an_archive_keeps_its_values(
    table: Lake, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    with monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: altered(table))
        (result,) = table.archive()
    assert done
    assert isinstance(result.error, (ConflictError, UsageError)), result
    assert noted(table) == 20
    altered(table, "alter table public._t drop column note")
    (again,) = table.archive()
    assert again.error is None
    assert value(table.catalog, "select count(*) from public.t") == 20


def test_a_column_that_comes_before_a_clean_keeps_its_partitions(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        come_before(patch, clean, "within_job", lambda: altered(table))
        (result,) = table.archive()
    assert isinstance(result.error, UsageError)
    assert "it has a new column note" in result.error.message
    assert noted(table) == 20
    altered(table, "alter table public._t drop column note")
    clean.run(table.catalog, table.settings, table.table("t"))
    assert value(table.catalog, "select count(*) from public._t") == 0
    assert value(table.catalog, "select count(*) from public.t") == 20


@pytest.mark.parametrize("place", [(heap, "empty"), (heap, "marks")], ids=["before the lock", "at the last look"])
def test_a_column_that_comes_while_a_partition_is_emptied_keeps_it(
    table: Lake, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    with monkeypatch.context() as patch:
        come_before(patch, clean, "within_job", lambda: run(table.catalog, "select 1 / 0"))
        table.archive()
    with monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: altered(table))
        with pytest.raises(UsageError, match="it has a new column note"):
            clean.run(table.catalog, table.settings, table.table("t"))
    assert done
    assert noted(table) == 20


@pytest.mark.parametrize("place", FOLDING.values(), ids=FOLDING)
def test_a_column_that_comes_during_a_fold_keeps_its_values(
    table: Lake, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    (archived,) = table.archive()
    assert archived.error is None
    run(table.catalog, "update public.t set a = 'changed' where id = 3")
    with monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: altered(table))
        (result,) = table.fold()
    assert done
    assert isinstance(result.error, (ConflictError, UsageError)), result
    assert noted(table) == 1
    assert value(table.catalog, "select a from public.t where id = 3") == "changed"
    (again,) = table.fold()
    assert again.error is not None
    assert "it has a new column note" in again.error.message
    altered(table, "alter table public._t drop column note")
    (done_now,) = table.fold()
    assert done_now.error is None
    assert value(table.catalog, "select a from public.t where id = 3") == "changed"


def test_status_says_which_columns_keep_jobs_from_going_on(table: Lake) -> None:
    altered(table)
    (state,) = status.read(table.catalog).tables
    (problem,) = [problem for problem in state.problems if "note" in problem.what]
    assert "it has a new column note" in problem.what
    assert problem.command == "frostline table sync public.t"


def test_a_way_back_is_open_while_columns_differ(table: Lake) -> None:
    (archived,) = table.archive()
    assert archived.error is None
    run(table.catalog, "update public.t set a = 'changed' where id in (3, 4)")
    altered(table, f"{ADDED}, add column twice text generated always as (note || note) stored")
    run(table.catalog, "update public._t set note = 'own' where id = 3")
    table.thaw("t", "2024-01-01")
    assert rows(table.catalog, "select note, twice, count(*) from public._t group by 1, 2 order by 3") == [
        ("own", "ownown", 1),
        ("kept", "keptkept", 19),
    ]
    assert rows(table.catalog, "select id from public.t where a = 'changed' order by 1") == [(3,), (4,)]
