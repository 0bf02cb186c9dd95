"""Jobs over damaged data files: they refuse and name the file, and mark, lake and heap stay as they were."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures import damage
from tests.fixtures.damage import DAMAGES, damaged, flip, rewriting, with_value
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.catalog import lake_files
from frostline.errors import CorruptionError, FrostlineError
from frostline.lake import paths
from frostline.model.names import Name
from frostline.pipeline import expire, load, verify
from frostline.pipeline.export import Export
from frostline.tiers import moment, target
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

pytestmark = pytest.mark.slow

EVERYTHING = "select * from public.events order by id"
KEYS = ["has a checksum", "is from before checksums"]


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Three months that are only in the lake, in one file each."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=100)
    lake.add(snapshot_retention="0")
    (result,) = lake.archive()
    assert result.error is None
    assert rows(lake.catalog, "select count(*) from public._events") == [(0,)]
    return lake


def state(lake: Lake) -> list[Any]:
    """What a job must leave alone when it refuses."""
    return [
        rows(lake.catalog, "select * from frostline.seam"),
        rows(lake.catalog, "select path from frostline.lake_file order by 1"),
        rows(lake.catalog, f"select * from frostline_overlay.{lake.table().internal} order by id"),
        rows(lake.catalog, "select * from public._events order by id"),
    ]


def holding(lake: Lake, month: int) -> Path:
    """The only file of a month."""
    file = lake_files.recorded(lake.catalog, lake.table())[month - 1]
    return Path(file.path.removeprefix("file://"))


def same_size(lake: Lake, file: Path) -> None:
    """Let the catalog know the file's size as it is now, so that only its content can tell."""
    statement = "update frostline.lake_file set size_bytes = %s where path like %s"
    run(lake.catalog, statement, [file.stat().st_size, f"%{file.name}"])


def refusal(results: list[Any]) -> FrostlineError:
    (result,) = results
    assert result.error is not None, "it was done"
    return result.error


@pytest.mark.parametrize("kind", KEYS)
def test_a_fold_over_a_damaged_key_refuses_and_goes_on_when_the_file_is_restored(cold: Lake, kind: str) -> None:
    """It wrote the change as a new row, and the restored file had the old one: each UPDATE raised 40001 for ever."""
    run(cold.catalog, "update public.events set status = 'new' where id = 150")
    before, file = state(cold), holding(cold, 2)
    if kind != KEYS[0]:
        damage.without_checksums(cold)
    with damaged(file, rewriting(with_value("id", 150, 99_999))):
        same_size(cold, file)
        error = refusal(cold.fold())
    same_size(cold, file)
    assert isinstance(error, CorruptionError)
    assert str(file) in str(error)
    assert "restore the file from a backup" in str(error.hint)
    assert state(cold) == before
    (result,) = cold.fold()
    assert (result.error, result.taken) == (None, 1)
    assert verify.run(cold.catalog, cold.table()).faults == ()
    assert run(cold.catalog, "update public.events set status = 'newer' where id = 150").rowcount == 1


def test_a_flipped_bit_anywhere_keeps_a_fold_from_losing_or_inventing_a_row(cold: Lake) -> None:
    """Right rows, or a refusal that names the file; also for marks of keys that never were in the lake."""
    run(cold.catalog, "update public.events set status = 'new' where id in (150, 160)")
    run(cold.catalog, "delete from public.events where id = 170")
    run(cold.catalog, "insert into public.events (ts, status) values ('2024-02-10+00', 'late')")
    right, refused = rows(cold.catalog, EVERYTHING), 0
    for part in random.Random(4).sample(range(1000), 16):
        before, file = state(cold), holding(cold, 2)
        bit = 8 * file.stat().st_size * part // 1000
        with damaged(file, lambda content, bit=bit: flip(content, bit)):
            (result,) = cold.fold()
        if result.error is None:  # nothing that it reads was changed
            run(cold.catalog, "update public.events set status = 'new' where id in (150, 160)")
        else:
            refused += 1
            assert isinstance(result.error, CorruptionError), (bit, result.error)
            assert str(file) in str(result.error)
            assert state(cold) == before
        assert rows(cold.catalog, EVERYTHING) == right
    assert refused > 5
    assert [folded.error for folded in cold.fold()] == [None]
    assert rows(cold.catalog, EVERYTHING) == right
    assert verify.run(cold.catalog, cold.table()).faults == ()


@pytest.mark.parametrize("kind", KEYS)
def test_a_new_cold_row_is_folded_where_every_file_is_sound_and_only_there(cold: Lake, kind: str) -> None:
    if kind != KEYS[0]:
        damage.without_checksums(cold)
    run(cold.catalog, "insert into public.events (ts, status) values ('2024-02-10+00', 'late')")
    before, file = state(cold), holding(cold, 2)
    # The keys are as they were: only the whole file can tell.
    with damaged(file, rewriting(with_value("amount", 150, None))):
        same_size(cold, file)
        assert str(file) in str(refusal(cold.fold()))
    same_size(cold, file)
    assert state(cold) == before
    with damaged(holding(cold, 1), damage.zeroed):  # it cannot have the key
        (result,) = cold.fold()
    assert (result.error, result.taken) == (None, 1)


def test_a_load_whose_key_a_damaged_file_hides_is_refused(cold: Lake) -> None:
    """Rows of Spark go into the lake as files, after a look at the keys that are there."""
    table, file = cold.table(), holding(cold, 2)
    run(cold.catalog, "create table public.batch as select *, true as frostline_live from public.events where id = 150")
    recorded = tuple(lake_files.recorded(cold.catalog, table))
    with moment.exported(cold.dsn) as exported, moment.joined(exported, purpose="tests") as connection:
        batch = Name("public", "batch")
        shard = Shard(target.find(connection, [batch])[batch], recorded[1].range, only_live=True)
        location = paths.table_location(cold.settings.warehouse, table)
        export = Export(table, Reader(exported, "export", "write again"), shard, location, 1)
        assert load.load_piece(load.Piece(export, recorded[1:2])).known_key is not None
        with damaged(file, rewriting(with_value("id", 150, 99_999))), pytest.raises(CorruptionError, match=file.name):
            load.load_piece(load.Piece(export, recorded[1:2]))


JOBS: dict[str, Callable[[Lake], Any]] = {
    "fold": lambda lake: refusal(lake.fold()),
    "compact": lambda lake: refusal(lake.compact()),
    "retain": lambda lake: refusal(lake.retain()),
    "thaw": lambda lake: raised(lambda: lake.thaw(first="2024-02-01+00")),
}


def raised(job: Callable[[], object]) -> FrostlineError:
    with pytest.raises(FrostlineError) as caught:
        job()
    return caught.value


def prepare(lake: Lake, job: str) -> None:
    """Let the job need the file of February."""
    if job == "compact":
        run(lake.catalog, "insert into public.events (ts, status) values ('2024-02-10+00', 'late')")
        assert [result.error for result in lake.fold()] == [None]
    if job == "retain":
        lake.retain()
        run(lake.catalog, "update frostline.managed_table set retention_interval = now() - '2024-02-10 12:00+00'")
    if job == "fold":
        run(lake.catalog, "update public.events set status = 'new' where id = 150")


@pytest.mark.parametrize("job", JOBS)
def test_a_job_over_a_damaged_file_refuses_in_one_line_that_names_it_and_the_way_out(cold: Lake, job: str) -> None:
    prepare(cold, job)
    before, file = state(cold), holding(cold, 2)
    for name, change in DAMAGES.items():
        with damaged(file, change):
            error = JOBS[job](cold)
        assert isinstance(error, CorruptionError), (name, error)
        assert (error.exit_code, error.sqlstate) == (1, "XX001")
        assert str(file) in str(error), name
        assert "restore the file from a backup" in str(error.hint)
        assert "\n" not in str(error)
        assert state(cold) == before
    content = file.read_bytes()
    file.unlink()
    assert str(file) in str(JOBS[job](cold))
    file.write_bytes(content)
    assert state(cold) == before


@pytest.mark.quick
def test_a_clean_over_a_damaged_file_refuses_and_an_undo_does_without_the_files(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=100)
    lake.add(grace="10 years")
    assert [result.error for result in lake.archive()] == [None]
    right, file = rows(lake.catalog, EVERYTHING), holding(lake, 2)
    run(lake.catalog, "update frostline.managed_table set grace_period = '0'")
    file.write_bytes(damage.flipped_in_the_middle(file.read_bytes()))
    with pytest.raises(CorruptionError, match=file.name):
        lake.clean()
    run(lake.catalog, "update frostline.managed_table set grace_period = '10 years'")
    lake.undo()
    assert rows(lake.catalog, EVERYTHING) == right


@pytest.mark.quick
def test_every_file_that_a_job_writes_has_a_checksum(cold: Lake) -> None:
    """Archive, fold, compact, retain, thaw and undo: data and metadata; and they are gone with the files."""
    for job in ("fold", "compact", "retain"):
        prepare(cold, job)
        assert [result.error for result in getattr(cold, job)()] == [None]
    cold.thaw(first="2024-03-01+00")
    assert recorded(cold) == on_disk(cold)
    assert [result.error for result in expire.run(cold.catalog, cold.settings, [cold.table()])] == [None]
    assert recorded(cold) == on_disk(cold)
    assert verify.run(cold.catalog, cold.table()).faults == ()


def recorded(lake: Lake) -> dict[str, bytes]:
    return {
        path.rpartition("/")[2]: bytes(sha256)
        for path, sha256 in rows(lake.catalog, "select path, sha256 from frostline.file_checksum")
    }


def on_disk(lake: Lake) -> dict[str, bytes]:
    files = [file for pattern in ("data/*.parquet", "metadata/*.*") for file in lake.warehouse.rglob(pattern)]
    return {file.name: hashlib.sha256(file.read_bytes()).digest() for file in files}
