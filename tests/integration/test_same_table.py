"""What an archive or a fold reads is what it planned: whatever somebody makes of the tables meanwhile, nothing wrong is published."""

from typing import Any

import pytest
from tests.fixtures import copies
from tests.fixtures.interleaving import come_before
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run

from frostline.errors import ConflictError, FrostlineError, UsageError
from frostline.lake import commit
from frostline.pipeline import export
from frostline.relation import following
from frostline.tiers import moment, shards, survey

JANUARY = "for values from ('2024-01-01+00') to ('2024-02-01+00')"
TABLE = f"""
create table public.t (id int, ts timestamptz, a text, b text, primary key (id, ts)) partition by range (ts);
create table public.t_1 partition of public.t {JANUARY};
create table public.t_2 partition of public.t for values from ('2024-02-01+00') to ('2024-03-01+00');
insert into public.t select i, timestamptz '2024-01-10+00' + (i % 2) * interval '1 month', repeat('a', 100), 'b' || i
  from generate_series(1, 2000) i;
delete from public.t where id <= 1000;
"""
SWAP = "alter table {0} rename a to c; alter table {0} rename b to a; alter table {0} rename c to b"
"""Two columns of one type: each statement goes on, with the values of the other."""
ANEW = f"""
begin; drop table public.t_1; create table public.t_1 partition of public._t {JANUARY};
insert into public.t_1 values (1, '2024-01-05+00', 'new', 'new'); commit
"""
REWRITE = "vacuum full public.t_1"
"""Half of its rows were deleted, so the others are in lower blocks afterwards."""
NAMES = "begin; alter table public.t_1 rename to t_x; alter table public.t_2 rename to t_1; alter table public.t_x rename to t_2; commit"
UNDONE = {SWAP.format("public._t"): SWAP.format("public._t")}
PLANNED, TAKEN, LISTED, SURVEYED = (moment, "exported"), (moment, "joined"), (survey, "of_rows"), (export, "_copy_rows")
"""What comes next when the batch is planned, the snapshot is taken, the shards are known, and one is surveyed."""
STAGED = (commit, "stage")
EVERY = "select id, ts::text, a, b from {} order by id"


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two months of `t`, of which nothing is archived. Each block is a shard, and tasks run in this process."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLE)
    lake.add("t")
    lake.settings = lake.settings.model_copy(update={"export_shard_bytes": 8192})
    return lake


@pytest.fixture
def cold(table: Lake) -> Lake:
    """The same in the lake, with a mark in each month."""
    (result,) = table.archive()
    assert result.error is None
    run(table.catalog, "update public.t set a = 'changed', b = 'as well' where id in (1501, 1502)")
    return table


def changed(lake: Lake, statement: str) -> None:
    with lake.connect() as connection:
        for part in statement.split(";"):
            run(connection, part)


def refused(result: Any, kind: type[FrostlineError] = ConflictError) -> None:
    assert isinstance(result.error, kind), result
    assert result.error.hint


@pytest.mark.parametrize(
    ("statement", "place", "call"),
    [
        pytest.param(
            SWAP.format("public._t"), PLANNED, 1, id="columns swap names before the snapshot", marks=pytest.mark.slow
        ),
        pytest.param(SWAP.format("public._t"), TAKEN, 1, id="columns swap names after the snapshot"),
        pytest.param(
            SWAP.format("public._t"), LISTED, 1, id="columns swap names before a task", marks=pytest.mark.slow
        ),
        pytest.param(SWAP.format("public._t"), SURVEYED, 1, id="columns swap names in a task"),
        pytest.param(ANEW, PLANNED, 1, id="a partition is made anew before the snapshot", marks=pytest.mark.slow),
        pytest.param(ANEW, TAKEN, 1, id="a partition is made anew after the snapshot", marks=pytest.mark.slow),
        pytest.param(ANEW, LISTED, 1, id="a partition is made anew before a task"),
        pytest.param(ANEW, SURVEYED, 2, id="a partition is made anew in the second task", marks=pytest.mark.slow),
        pytest.param(ANEW, STAGED, 1, id="a partition is made anew when it was exported", marks=pytest.mark.slow),
        pytest.param(REWRITE, TAKEN, 1, id="a partition is rewritten after the snapshot", marks=pytest.mark.slow),
        pytest.param(REWRITE, LISTED, 2, id="a partition is rewritten between two tasks", marks=pytest.mark.slow),
        pytest.param(REWRITE, SURVEYED, 1, id="a partition is rewritten in a task"),
        pytest.param(NAMES, PLANNED, 1, id="partitions swap names before the snapshot", marks=pytest.mark.slow),
        pytest.param(NAMES, TAKEN, 1, id="partitions swap names after the snapshot"),
        pytest.param(NAMES, LISTED, 2, id="partitions swap names between two tasks", marks=pytest.mark.slow),
    ],
)
def test_an_archive_of_what_is_not_the_same_any_more_publishes_nothing(
    table: Lake, monkeypatch: pytest.MonkeyPatch, statement: str, place: tuple[object, str], call: int
) -> None:
    seam = rows(table.catalog, "select s::text from frostline.seam s")
    with monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: changed(table, statement), call=call)
        (result,) = table.archive()
    assert done
    refused(result)
    assert rows(table.catalog, "select s::text from frostline.seam s") == seam
    assert rows(table.catalog, "select * from frostline.lake_file") == []
    changed(table, UNDONE.get(statement, "select 1"))
    expected = rows(table.catalog, EVERY.format("public._t"))
    assert rows(table.catalog, EVERY.format("public.t")) == expected
    (again,) = table.archive()
    assert again.error is None
    assert (again.partitions, rows(table.catalog, "select * from public._t")) == (2, [])
    assert rows(table.catalog, EVERY.format("public.t")) == expected


OVERLAY = "frostline_overlay.t_1"
FORGED = f"""
begin; alter table {OVERLAY} rename to kept; create table {OVERLAY} (like frostline_overlay.kept including all);
insert into {OVERLAY} select * from frostline_overlay.kept; update {OVERLAY} set b = 'forged'; commit
"""
TAKEN_BACK = f"begin; drop table {OVERLAY}; alter table frostline_overlay.kept rename to t_1; commit"
HEAP_SWAP, OVERLAY_SWAP = SWAP.format("public._t"), SWAP.format(OVERLAY)
MARKS, LOADED = (survey, "of_marks"), (shards, "marks_loaded")


@pytest.mark.parametrize(
    ("statement", "undo", "place", "call", "kind"),
    [
        pytest.param(HEAP_SWAP, HEAP_SWAP, PLANNED, 1, ConflictError, id="the heap's columns before the snapshot"),
        pytest.param(
            OVERLAY_SWAP,
            OVERLAY_SWAP,
            PLANNED,
            1,
            UsageError,
            id="the overlay's columns before the snapshot",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            OVERLAY_SWAP,
            OVERLAY_SWAP,
            TAKEN,
            1,
            ConflictError,
            id="its columns after the snapshot",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            OVERLAY_SWAP,
            OVERLAY_SWAP,
            MARKS,
            2,
            ConflictError,
            id="its columns between two tasks",
            marks=pytest.mark.slow,
        ),
        pytest.param(OVERLAY_SWAP, OVERLAY_SWAP, LOADED, 1, ConflictError, id="its columns in a task"),
        pytest.param(FORGED, TAKEN_BACK, TAKEN, 1, ConflictError, id="made anew after the snapshot"),
        pytest.param(FORGED, TAKEN_BACK, MARKS, 1, ConflictError, id="made anew before a task", marks=pytest.mark.slow),
        pytest.param(
            FORGED, TAKEN_BACK, LOADED, 2, ConflictError, id="made anew in the second task", marks=pytest.mark.slow
        ),
        pytest.param(
            f"vacuum full {OVERLAY}",
            "select 1",
            LOADED,
            1,
            ConflictError,
            id="rewritten in a task",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fold_of_an_overlay_that_is_not_the_same_any_more_publishes_nothing(
    cold: Lake,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    undo: str,
    place: tuple[object, str],
    call: int,
    kind: type[FrostlineError],
) -> None:
    expected = rows(cold.catalog, EVERY.format("public.t"))
    before = [rows(cold.catalog, f"select s::text from frostline.{name} s") for name in ("seam", "lake_file")]
    with monkeypatch.context() as patch:
        done = come_before(patch, *place, lambda: changed(cold, statement), call=call)
        (result,) = cold.fold()
    assert done
    refused(result, kind)
    assert [rows(cold.catalog, f"select s::text from frostline.{name} s") for name in ("seam", "lake_file")] == before
    changed(cold, undo)
    assert rows(cold.catalog, EVERY.format("public.t")) == expected
    (again,) = cold.fold()
    assert (again.error, again.marks, again.taken) == (None, 2, 2)
    assert rows(cold.catalog, EVERY.format("public.t")) == expected


def test_columns_that_swapped_names_in_the_heap_alone_are_taken_neither_by_a_fold_nor_by_a_snapshot(cold: Lake) -> None:
    """The overlay has the old names: its values would go into the columns of each other."""
    expected = rows(cold.catalog, EVERY.format("public.t"))
    changed(cold, HEAP_SWAP)
    (result,) = cold.fold()
    refused(result, UsageError)
    with pytest.raises(UsageError, match=r"column 'b' of public\.t is 'a' in its overlay"):
        copies.create(cold, "public.t")
    changed(cold, HEAP_SWAP)
    (again,) = cold.fold()
    assert (again.error, again.taken) == (None, 2)
    copies.create(cold, "public.t")
    assert rows(cold.catalog, EVERY.format("public.t")) == expected


def test_the_advice_about_them_helps(cold: Lake) -> None:
    expected = rows(cold.catalog, "select id, ts::text, b, a from public.t order by id")
    changed(cold, HEAP_SWAP)
    with pytest.raises(UsageError) as refused:
        copies.create(cold, "public.t")
    assert refused.value.hint == "frostline table sync public.t"
    following.follow(cold.catalog, cold.table("t"))
    (again,) = cold.fold()
    assert (again.error, again.taken) == (None, 2)
    assert rows(cold.catalog, EVERY.format("public.t")) == expected
