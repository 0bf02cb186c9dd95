"""Reads of damaged data files: every answer is right, or an error that names the file. Never a wrong value."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from tests.fixtures import damage
from tests.fixtures.damage import damaged, flip, padded
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline.catalog import lake_files
from frostline.lake.filecheck import Checks
from frostline.pipeline import verify

FLIPS = 150
EVERYTHING = "select * from public.events order by id"
WRONG = "wrong"


def made_cold(lake: Lake) -> Lake:
    """Three months that are only in the lake, in one file each."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=300)
    lake.add()
    (result,) = lake.archive()
    assert result.error is None
    assert rows(lake.catalog, "select count(*) from public._events") == [(0,)]
    return lake


@pytest.fixture(scope="module")
def cold(shared_lake: Lake) -> Lake:
    """Those, for all tests that leave the files as they are."""
    return made_cold(shared_lake)


@pytest.fixture
def app(cold: Lake) -> Iterator[psycopg.Connection]:
    with cold.connect() as connection:
        yield connection


def outcome(app: psycopg.Connection, query: str, right: list[tuple[object, ...]]) -> str:
    """Empty for the right answer, else the error's SQLSTATE and text."""
    try:
        return "" if rows(app, query) == right else WRONG
    except psycopg.Error as error:
        return f"{error.sqlstate} {error.diag.message_primary} {error.diag.message_hint}"


def flips(file: Path) -> list[int]:
    return random.Random(13).sample(range(8 * file.stat().st_size), FLIPS)


def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file(cold: Lake, app: psycopg.Connection) -> None:
    right, file = rows(app, EVERYTHING), cold.data_files()[1]
    for bit in flips(file):
        with damaged(file, lambda content, bit=bit: flip(content, bit)):
            said = outcome(app, EVERYTHING, right)
        assert said.startswith("XX001"), (bit, said)
        assert str(file) in said
        assert "frostline verify" in said
    assert outcome(app, EVERYTHING, right) == ""


def test_these_flips_do_change_answers_where_nothing_is_compared(cold: Lake, app: psycopg.Connection) -> None:
    """So the test above can fail."""
    right, file = rows(app, EVERYTHING), cold.data_files()[1]
    cold.server.backend.files.checks = Checks.OFF
    try:
        said = []
        for bit in flips(file)[:40]:
            with damaged(file, lambda content, bit=bit: flip(content, bit)):
                said.append(outcome(app, EVERYTHING, right))
        assert WRONG in said
        of_the_lake_server = [
            error for error in said if error[:5] in ("58030", "XX000")
        ]  # Postgres may stumble over a value
        assert [error for error in of_the_lake_server if file.name not in error] == []
    finally:
        cold.server.backend.files.checks = Checks.FIRST_READ


@pytest.mark.parametrize("checks", [Checks.FIRST_READ, Checks.SIZE])
@pytest.mark.parametrize(
    "query",
    [
        EVERYTHING,
        "select count(*), sum(amount) from public.events",
        "select count(*) from public.events where data ? 'i' and status similar to '[of]%'",
    ],
)
def test_a_file_of_another_size_is_an_error(cold: Lake, app: psycopg.Connection, checks: Checks, query: str) -> None:
    right, file = rows(app, query), cold.data_files()[1]
    cold.server.backend.files.checks = checks
    try:
        for change in (damage.cut_short, damage.emptied, lambda content: content + b"x"):
            with damaged(file, change):
                said = outcome(app, query, right)
            assert said.startswith("XX001")
            assert f"{file} is damaged: it has" in said
    finally:
        cold.server.backend.files.checks = Checks.FIRST_READ
    assert outcome(app, query, right) == ""


def test_another_valid_file_of_the_same_size_is_an_error(cold: Lake, app: psycopg.Connection) -> None:
    small, large = sorted(cold.data_files(), key=lambda file: file.stat().st_size)[:2]
    right, other = rows(app, EVERYTHING), padded(small.read_bytes(), large.stat().st_size)
    with damaged(large, lambda _: other):
        said = outcome(app, EVERYTHING, right)
        cold.server.backend.files.checks = Checks.SIZE
        unchecked = outcome(app, EVERYTHING, right)
        cold.server.backend.files.checks = Checks.FIRST_READ
    assert said.startswith("XX001")
    assert str(large) in said
    assert unchecked
    assert pq.read_metadata(io.BytesIO(other)).num_rows == 300  # it is a valid file


def test_a_missing_file_is_an_error_that_names_it(cold: Lake, app: psycopg.Connection) -> None:
    right, file = rows(app, EVERYTHING), cold.data_files()[1]
    content = file.read_bytes()
    file.unlink()
    said = outcome(app, EVERYTHING, right)
    file.write_bytes(content)
    assert said.startswith("58030")
    assert f"cannot read file://{file}: it is not there" in said
    assert "restore the file from a backup" in said
    assert outcome(app, EVERYTHING, right) == ""


def test_ranges_that_do_not_need_the_file_are_read(cold: Lake, app: psycopg.Connection) -> None:
    january = "select * from public.events where ts < '2024-02-01+00' order by id"
    right = rows(app, january)
    with damaged(cold.data_files()[1], damage.zeroed):
        march = outcome(app, "select count(*) from public.events where ts >= '2024-03-01+00'", [(300,)])
        answers = {outcome(app, january, right), march}
    assert len(answers - {""}) <= 1  # the files' names do not tell which month they have
    assert "" in answers


def test_a_write_of_a_cold_row_whose_file_is_damaged_is_refused(cold: Lake, app: psycopg.Connection) -> None:
    before = rows(app, EVERYTHING)
    statements = [
        "update public.events set status = 'new' where id = 400",
        "delete from public.events where id = 400",
        "insert into public.events (id, ts) overriding system value values (400, '2024-02-07+00')",
    ]
    file = holding(cold, "2024-02-07")
    with damaged(file, damage.flipped_in_the_middle):
        said = [outcome(app, statement, []) for statement in statements]
    assert [error[:5] for error in said] == ["XX001"] * 3
    assert all(str(file) in error for error in said)
    assert rows(app, EVERYTHING) == before


def holding(lake: Lake, day: str) -> Path:
    """The file with the rows of that day."""
    ((lower,),) = rows(lake.catalog, "select (extract(epoch from %s::timestamptz) * 1000000)::bigint", [f"{day}+00"])
    (recorded,) = (
        file for file in lake_files.recorded(lake.catalog, lake.table()) if file.lower <= lower <= file.upper
    )
    return Path(recorded.path.removeprefix("file://"))


CHECKSUMS = "select path, table_id, size_bytes, sha256 from frostline.file_checksum order by path"


def test_a_file_from_before_checksums_is_compared_by_size_until_verify_adds_one(
    cold: Lake, app: psycopg.Connection
) -> None:
    right, file, kept = rows(app, EVERYTHING), cold.data_files()[1], rows(cold.catalog, CHECKSUMS)
    damage.without_checksums(cold)
    damage.forget_everything(cold)
    with damaged(file, damage.cut_short):
        assert outcome(app, EVERYTHING, right).startswith("XX001")
    assert verify.run(cold.catalog, cold.table()).faults == ()
    again = rows(cold.catalog, CHECKSUMS)
    assert set(again) <= set(kept)  # those of the current state
    assert len(again) == 3 + 3  # metadata, manifest list, manifest
    damage.forget_everything(cold)
    with damaged(file, damage.flipped_in_the_middle):
        assert outcome(app, EVERYTHING, right).startswith("XX001")


def test_files_that_only_an_older_snapshot_has_are_compared_too(lake: Lake) -> None:
    """In a lake server that has never read them: it was started again after a fold had replaced them."""
    cold = made_cold(lake)
    right, old = rows(cold.catalog, EVERYTHING), holding(cold, "2024-02-07")
    with cold.connect() as reader, reader.transaction():
        run(reader, "set transaction isolation level repeatable read")
        run(reader, "select 1 from public.events where ts > '2090-01-01'")
        run(cold.catalog, "update public.events set status = 'new' where id = 400")
        (result,) = cold.fold()
        assert (result.error, holding(cold, "2024-02-07") != old) == (None, True)
        damage.forget_everything(cold)
        with damaged(old, damage.flipped_in_the_middle), reader.transaction(force_rollback=True):
            said = outcome(reader, EVERYTHING, right)
        assert said.startswith("XX001")
        assert str(old) in said
        assert outcome(reader, EVERYTHING, right) == ""
