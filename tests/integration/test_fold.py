"""Fold: changed cold rows reach the lake, their marks go away, and nobody who reads can tell."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import jobs, lake_files, seams
from frostline.errors import CorruptionError
from frostline.lake import commit
from frostline.model.tables import Table
from frostline.observe import status
from frostline.pipeline import fold, verify
from frostline.relation import marks
from frostline.tiers import moment

EVERYTHING = "select count(*), sum(amount), md5(string_agg(e::text, '|' order by id)) from public.events e"
CHANGES = [
    "update public.events set status = 'changed' where id in (1, 2, 700)",
    "delete from public.events where id = 3",
    "insert into public.events (ts, status) values ('2024-02-02', 'late')",
    "update public.events set ts = ts + interval '1 month' where id = 5",
    "update public.events set ts = '2030-01-01' where id = 6",
    "update public.events set amount = null, data = '{}' where id = 2999",
    "insert into public.events (ts, status) values ('2019-02-02', 'before everything')",
]


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Six months of rows, all in the lake only."""
    make_archived_events(lake)
    return lake


def change(lake: Lake) -> tuple[object, ...]:
    """Change cold rows in every way, and say what the relation shows then."""
    with lake.connect() as connection:
        for statement in CHANGES:
            run(connection, statement)
        return everything(connection)


def everything(connection: psycopg.Connection) -> tuple[object, ...]:
    row = connection.execute(EVERYTHING).fetchone()
    assert row is not None
    return row


def test_a_fold_carries_every_change_into_the_lake(cold: Lake) -> None:
    before = change(cold)
    (result,) = cold.fold()
    assert (result.error, result.marks - result.taken) == (None, 0)
    with cold.connect() as connection:
        assert everything(connection) == before
    (state,) = status.read(cold.catalog).tables
    assert state.lake.overlay_rows == 0
    assert cold.value("select count(*) from only public.events_default where ts < '2024-07-01'") == 0
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_only_files_that_hold_marked_keys_are_rewritten(cold: Lake) -> None:
    with cold.connect() as connection:
        connection.execute("update public.events set status = 'x' where id = 1")
    before = {file.path for file in lake_files.recorded(cold.catalog, cold.table())}
    (result,) = cold.fold()
    after = {file.path for file in lake_files.recorded(cold.catalog, cold.table())}
    assert (result.replaced_files, result.written_files) == (1, 1)
    assert len(before & after) == 5


def test_a_fold_without_marks_is_a_no_op(cold: Lake) -> None:
    seam = seams.get(cold.catalog, cold.table())
    (result,) = cold.fold()
    assert (result.marks, result.written_files) == (0, 0)
    assert seams.get(cold.catalog, cold.table()) == seam


def test_a_fold_makes_one_new_snapshot(cold: Lake) -> None:
    change(cold)
    cold.fold()
    assert cold.value("select count(*) from frostline.job where kind = 'fold' and state = 'published'") == 1


def test_rows_changed_while_the_fold_runs_stay_marked(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    change(cold)
    reference = _while_staging(cold, monkeypatch, "update public.events set status = 'again' where id in (1, 100)")
    (result,) = cold.fold()
    assert result.marks - result.taken == 1
    with cold.connect() as connection:
        assert [everything(connection)] == reference
    (state,) = status.read(cold.catalog).tables
    assert state.lake.overlay_rows == 2
    cold.fold()
    with cold.connect() as connection:
        assert [everything(connection)] == reference


def test_a_row_deleted_while_the_fold_runs_does_not_come_back(cold: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    change(cold)
    reference = _while_staging(cold, monkeypatch, "delete from public.events where id in (1, 700, 2999)")
    cold.fold()
    with cold.connect() as connection:
        assert [everything(connection)] == reference


def _while_staging(lake: Lake, monkeypatch: pytest.MonkeyPatch, statement: str) -> list[tuple[object, ...]]:
    """Run a statement between the fold's rewrite and its publish; returns what the relation shows then."""
    real: Callable[..., commit.StagedCommit] = commit.stage
    reference: list[tuple[object, ...]] = []

    def stage(*arguments: object, **options: object) -> commit.StagedCommit:
        if not reference:
            with lake.connect() as connection:
                run(connection, statement)
                reference.append(everything(connection))
        return real(*arguments, **options)

    monkeypatch.setattr(commit, "stage", stage)
    return reference


@pytest.mark.slow
def test_a_row_that_somebody_holds_keeps_its_mark(cold: Lake) -> None:
    change(cold)
    with cold.connect() as writer:
        with writer.transaction():
            writer.execute("update public.events set status = 'held' where id = 1")
            (result,) = cold.fold()
            assert result.marks - result.taken == 1
        assert cold.value("select status from public.events where id = 1") == "held"
    cold.fold()
    assert cold.value("select status from public.events where id = 1") == "held"


def test_an_update_that_was_folded_meanwhile_is_not_lost(cold: Lake) -> None:
    """Since our REPEATABLE READ snapshot another writer's change went through overlay and fold, and left no mark."""
    with cold.connect() as ours:
        ours.execute("begin isolation level repeatable read")
        assert ours.execute("select status from public.events where id = 800").fetchone()
        with cold.connect() as theirs:
            theirs.execute("update public.events set status = 'theirs' where id = 800")
        cold.fold()
        with pytest.raises(psycopg.errors.SerializationFailure):
            ours.execute("update public.events set amount = 1 where id = 800")
    assert cold.value("select status from public.events where id = 800") == "theirs"


def test_a_key_that_was_folded_meanwhile_is_not_inserted_twice(cold: Lake) -> None:
    insert = "insert into public._events (id, ts, status) overriding system value values (9001, '2024-02-02', 'x')"
    with cold.connect() as ours:
        ours.execute("begin isolation level repeatable read")
        assert ours.execute("select count(*) from public.events").fetchone() == (3000,)
        with cold.connect() as theirs:
            theirs.execute(insert)
        cold.fold()
        with pytest.raises((psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation)):
            ours.execute(insert)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "insert into public._events (id, ts) overriding system value values ({id}, '{ts}')",
        "update public._events set id = {id}, ts = '{ts}' where status = 'in the default partition'",
        "update public._events set id = {id}, ts = '{ts}' where ts = '2031-01-01'",
    ],
)
def test_a_key_that_is_only_in_the_lake_cannot_be_used_again(cold: Lake, statement: str) -> None:
    with cold.connect() as connection:
        connection.execute("alter table public._events alter column id set generated by default")
        connection.execute(
            "insert into public._events (id, ts, status) values (9002, '2019-01-01', 'in the default partition')"
        )
        connection.execute("insert into public._events (ts) values ('2031-01-01')")
        ((number, ts),) = rows(connection, "select id, ts from public.events where id = 17")
        with pytest.raises(psycopg.errors.UniqueViolation, match="primary key of events"):
            run(connection, statement.format(id=number, ts=ts))


def test_an_older_snapshot_keeps_its_lake_and_its_overlay(cold: Lake) -> None:
    before = change(cold)
    with cold.connect() as reader:
        reader.execute("begin isolation level repeatable read")
        assert everything(reader) == before
        cold.fold()
        with cold.connect() as writer:
            writer.execute("update public.events set status = 'newer' where id = 10")
        cold.fold()
        assert everything(reader) == before


@pytest.mark.slow
def test_a_partition_in_its_grace_period_keeps_its_rows(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add(grace="1 day")
    lake.archive()
    before = change(lake)
    lake.fold()
    with lake.connect() as connection:
        assert everything(connection) == before
    assert lake.value("select status from only public.events_1 where id = 1") == "changed"
    assert verify.run(lake.catalog, lake.table()).faults == ()


@pytest.mark.slow
def test_after_a_fold_clean_goes_on(lake: Lake) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog)
    lake.add(grace="0")
    lake.archive()
    before = change(lake)
    lake.fold()
    assert lake.clean().waiting == ()
    with lake.connect() as connection:
        assert everything(connection) == before
    assert lake.value("select count(*) from only public.events_default") == 1


@pytest.mark.slow
def test_a_damaged_file_is_not_carried_on(cold: Lake) -> None:
    change(cold)
    cold.catalog.execute("update frostline.lake_file set hash_sum = hash_sum + 1")
    (result,) = cold.fold()
    assert isinstance(result.error, CorruptionError)
    (state,) = status.read(cold.catalog).tables
    assert state.lake.overlay_rows > 0


@pytest.mark.slow
def test_a_file_that_holds_a_marked_key_and_was_not_found_to_is_not_left_as_it_is(
    cold: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row would be there twice: once in that file, and once as the image."""
    with cold.connect() as connection:
        connection.execute("update public.events set status = 'x' where id = 1")
    files = lake_files.recorded(cold.catalog, cold.table())
    january = min(files, key=lambda file: file.lower)
    with moment.exported(cold.dsn) as exported:
        table = cold.table()
        begun = fold.Fold(cold.jobs(), table, seams.get(cold.catalog, table), jobs.start(cold.catalog, table, "fold"))
        (piece,) = begun.pieces(exported)
        piece = replace(piece, files=tuple(files))
        assert fold.rewrite_piece(piece).replaced == (january.path,)
        monkeypatch.setattr(fold, "_holds_a_mark", lambda *_: False)
        with pytest.raises(CorruptionError, match=january.path):
            fold.rewrite_piece(piece)


@pytest.mark.slow
def test_nobody_but_frostline_can_silence_the_marks(cold: Lake) -> None:
    with cold.connect() as connection:
        connection.execute("set frostline.folding = 'on'")
        connection.execute("insert into public.events (ts, status) values ('2024-02-03', 'seen')")
    assert cold.value("select count(*) from public.events where status = 'seen'") == 1


@pytest.mark.slow
def test_after_a_fold_and_a_vacuum_the_overlay_is_not_read_whole_for_each_cold_row(cold: Lake) -> None:
    overlay = f"frostline_overlay.events_{cold.table().id}"
    run(cold.catalog, "update public.events set status = 'x' where id <= 1000")
    assert cold.fold()[0].taken == 1000
    run(cold.catalog, f"vacuum {overlay}")
    with cold.connect() as connection, connection.transaction(force_rollback=True):
        assert run(connection, "update public.events set status = 'y' where id <= 500").rowcount == 500
        query = "select seq_scan from pg_stat_xact_all_tables where relid = %s::regclass"
        assert value(connection, query, (overlay,)) < 10


@pytest.mark.slow
def test_a_publish_of_more_marks_than_fit_into_memory_reads_no_note_whole_for_each(cold: Lake) -> None:
    run(cold.catalog, "update public.events set status = 'y'")
    table, frost_line = cold.table(), seams.get(cold.catalog, cold.table()).frost_line
    with moment.exported(cold.dsn) as exported:
        assert marks.remember(cold.catalog, table, exported.snapshot, frost_line) == 3000
    with cold.catalog.transaction(force_rollback=True):
        run(cold.catalog, "set local work_mem = '64kB'; set local hash_mem_multiplier = 1")
        assert marks.take_away(cold.catalog, table, frost_line, []) == 3000
        notes = "('frostline_folded', 'frostline_locked', 'frostline_done')"
        read = value(cold.catalog, f"select sum(seq_tup_read) from pg_stat_xact_all_tables where relname in {notes}")
    assert read < 20 * 3000


@pytest.mark.slow
def test_what_lies_in_the_place_of_a_mark_now_is_not_taken_away(cold: Lake) -> None:
    run(cold.catalog, "update public.events set status = 'y' where id = 1")
    table, frost_line = cold.table(), seams.get(cold.catalog, cold.table()).frost_line
    overlay = f"frostline_overlay.{table.internal}"
    places = f"select ctid::text from {overlay}"
    with moment.exported(cold.dsn) as exported:
        assert marks.remember(cold.catalog, table, exported.snapshot, frost_line) == 1
    (before,) = rows(cold.catalog, places)
    run(cold.catalog, f"create table public.kept as select id, ts from {overlay}")
    run(cold.catalog, f"truncate {overlay}")
    for _ in range(200):  # as a vacuum would have it: another mark, in that very place
        run(cold.catalog, f"insert into {overlay} (id, ts, frostline_live) select id, ts, false from public.kept")
        if rows(cold.catalog, places) == [before]:
            break
        run(cold.catalog, f"delete from {overlay}")
    assert rows(cold.catalog, places) == [before]
    with cold.catalog.transaction():
        assert marks.take_away(cold.catalog, table, frost_line, []) == 0
    assert rows(cold.catalog, places) == [before]


@pytest.mark.slow
@pytest.mark.parametrize(("tries", "taken"), [(10, 1), (1, 0)])
def test_a_row_that_leaves_its_partition_while_a_fold_locks_it_keeps_its_mark(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tries: int, taken: int
) -> None:
    lake.catalog.execute("""
        create table public.t (id int, k int, n int, primary key (id, k)) partition by range (k);
        create table public.t_1 partition of public.t for values from (0) to (100);
        create table public.t_2 partition of public.t for values from (100) to (200);
        create table public.t_3 partition of public.t for values from (200) to (300);
        insert into public.t values (1, 1, 0), (2, 101, 0), (3, 299, 0)
    """)
    lake.add("t", hot="99")
    lake.archive("t")
    run(lake.catalog, "update public.t set n = n + 1")
    monkeypatch.setattr(marks, "LOCK_TRIES", tries)
    monkeypatch.setattr(marks, "_parts", _with_a_pause(marks._parts))
    with lake.connect() as other, ThreadPoolExecutor(1) as pool:
        run(other, "select pg_advisory_lock(77)")
        folding = pool.submit(lake.fold, "t")
        while not value(other, "select count(*) from pg_locks where objid = 77 and not granted"):
            assert not folding.done()
        run(other, "update public.t set k = 250 where id = 1")
        run(other, "select pg_advisory_unlock(77)")
        (result,) = folding.result()
        shown = "select id, k, n from public.t order by id"
        assert (result.error, rows(other, shown)) == (None, [(1, 250, 1), (2, 101, 1), (3, 299, 1)])
        assert (result.marks, result.taken) == (2, taken)
        monkeypatch.undo()
        lake.fold("t")
        assert rows(other, shown) == [(1, 250, 1), (2, 101, 1), (3, 299, 1)]


def _with_a_pause(parts: Callable[..., dict[str, sql.Composable]]) -> Callable[..., dict[str, sql.Composable]]:
    """The statements of a fold, waiting at each heap row as long as somebody holds a lock of the test's."""

    def pausing(table: Table, frost_line: int) -> dict[str, sql.Composable]:
        made = parts(table, frost_line)
        pause = sql.SQL("({} and pg_catalog.pg_advisory_xact_lock(77) is not null)").format(made["heap_below_line"])
        return {**made, "heap_below_line": pause}

    return pausing


@pytest.mark.slow
def test_negative_zero_and_nan_survive_a_rewrite(lake: Lake) -> None:
    lake.catalog.execute("""
        create table public.t (id int, ts date, f float8, primary key (id, ts)) partition by range (ts);
        create table public.t_1 partition of public.t for values from ('2024-01-01') to ('2024-02-01');
        insert into public.t
        values (1, '2024-01-01', 0), (2, '2024-01-01', '-0'), (3, '2024-01-01', 'NaN'), (4, '2024-01-02', 1)
    """)
    lake.add("t")
    lake.archive("t")
    lake.clean("t")
    with lake.connect() as connection:
        connection.execute("update public.t set f = '-0' where id = 4")
        before = connection.execute("select id, float8send(f) from public.t order by id").fetchall()
        (result,) = lake.fold("t")
        assert result.error is None
        assert connection.execute("select id, float8send(f) from public.t order by id").fetchall() == before
