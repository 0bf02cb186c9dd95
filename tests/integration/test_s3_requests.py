"""What the lake server asks an object store for: a file of the lake never changes, so each thing once."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.counted import Counted, counted
from tests.fixtures.lakeserver import PASSWORD, USER, StoredTables, column, lake_dsn, table
from tests.fixtures.s3 import access
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows
from tests.fixtures.waiting import until

from frostline.lake import filecheck, objectstore
from frostline.lake.filecheck import Checks
from frostline.model.tables import LakeFile, Table
from frostline.model.tiers import TierKind
from frostline.server.listen import LakeServer

EVENTS = table(7, [column(1, "id", "int8"), column(2, "n", "int8"), column(3, "note", "text")], "n", TierKind.BIGINT)
FILES, ROWS = 30, 100
SOURCE = 'public."7[,1000000)"'


@dataclass
class InStore(StoredTables):
    """Lake tables whose files are in a bucket."""

    store: Seaweed | None = None
    bucket: str = ""

    def _write(self, written: Table, name: str, values: Mapping[str, Sequence[object]]) -> LakeFile:
        made = super()._write(written, name, values)
        self.put(name, Path(made.path).read_bytes())
        return replace(made, path=f"s3://{self.bucket}/{name}")

    def put(self, name: str, content: bytes) -> None:
        """Write one object."""
        assert self.store is not None
        with self.store.filesystem().open_output_stream(f"{self.bucket}/{name}") as file:
            file.write(content)


@pytest.fixture
def between(seaweed: Seaweed) -> Iterator[Counted]:
    """The store, and what it is asked for."""
    with counted(seaweed.s3_endpoint) as proxy, objectstore.used(replace(access(seaweed), endpoint=proxy.uri)):
        yield proxy


@pytest.fixture
def lake(seaweed: Seaweed, tmp_path: Path) -> InStore:
    """Thirty files, each with its own range of the tier key; the ids of each are all over the place."""
    stored = InStore(tmp_path, store=seaweed, bucket=seaweed.new_bucket())
    stored.add(EVENTS)
    numbers = range(FILES * ROWS)
    stored.publish(
        7,
        1,
        *(
            {
                "id": [number * 7 % len(numbers) for number in numbers[first : first + ROWS]],
                "n": list(numbers[first : first + ROWS]),
                "note": [f"note {number}" for number in numbers[first : first + ROWS]],
            }
            for first in range(0, len(numbers), ROWS)
        ),
    )
    return stored


@contextmanager
def asked(lake: InStore, checks: Checks = Checks.SIZE) -> Generator[psycopg.Connection]:
    """A lake server over the bucket, and a client of it."""
    server = LakeServer("127.0.0.1", 0, lake, USER, PASSWORD, None, warehouse=f"s3://{lake.bucket}", checks=checks)
    server.start()
    try:
        with psycopg.connect(lake_dsn(server), autocommit=True) as connection:
            yield connection
    finally:
        server.stop()


def test_a_warm_scan_asks_the_store_for_nothing(lake: InStore, between: Counted) -> None:
    with asked(lake) as connection:
        scan = f"select sum(id), count(note) from {SOURCE}"
        first = rows(connection, scan)
        assert between.methods()["HEAD"] == 2 * FILES, "DuckDB's own look at each, and ours"
        assert len(between.files()) == FILES
        between.asked.clear()
        assert rows(connection, scan) == first == [(4498500, 3000)]
        assert rows(connection, f"select n, note from {SOURCE} where id = 700") == [(100, "note 100")]
        assert between.asked == []


def test_another_column_of_a_file_that_is_known_is_one_read_more(lake: InStore, between: Counted) -> None:
    with asked(lake) as connection:
        assert rows(connection, f"select id from {SOURCE} where n = 100") == [(700,)]
        between.asked.clear()
        assert rows(connection, f"select note from {SOURCE} where n = 100") == [("note 100",)]
        assert between.methods()["HEAD"] == 0
        assert between.files() <= {"7-1-1.parquet"}


@pytest.mark.parametrize("checks", [Checks.SIZE, Checks.OFF])
def test_a_file_that_somebody_has_replaced_is_read_anew(
    lake: InStore, between: Counted, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restored from a backup, say: what was kept of the damaged one must not be shown for ever."""
    with asked(lake, checks) as connection:
        query = f"select note from {SOURCE} where n = 100"
        assert rows(connection, query) == [("note 100",)]
        name, before = "7-1-1.parquet", (lake.directory / "7-1-1.parquet").read_bytes()
        path, now = f"s3://{lake.bucket}/{name}", before.replace(b"note 100", b"NOTE 100")
        assert len(now) == len(before)
        assert now != before, "the text is in the file as it is"
        known = filecheck.paths.stamp(path)
        while filecheck.paths.stamp(path) == known:  # a store tells seconds
            lake.put(name, now)
        monkeypatch.setattr(filecheck, "_STORE_S", 0.0)
        until(lambda: said(connection, query) == str([("NOTE 100",)]))


def said(connection: psycopg.Connection, query: str) -> str:
    """The rows, or the error: a query that has a part of each file fails, until the lake server has noticed."""
    try:
        return str(rows(connection, query))
    except psycopg.Error as error:
        return str(error)


def test_nobody_waits_for_the_second_look_at_a_file(
    lake: InStore, between: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the first was. It is taken while the query goes on."""
    with asked(lake) as connection:
        scan = f"select sum(id), count(note) from {SOURCE}"
        assert rows(connection, scan) == [(4498500, 3000)]
        between.asked.clear()
        between.looks.clear()
        with monkeypatch.context() as patched:
            patched.setattr(filecheck, "_STORE_S", 0.0)
            for _ in range(3):
                assert rows(connection, scan) == [(4498500, 3000)]
            until(lambda: between.asked)
        between.looks.set()
        until(lambda: len(between.files()) == FILES)
        assert set(between.methods()) == {"HEAD"}


def test_a_file_that_somebody_has_deleted_is_missed(
    lake: InStore, between: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lake server has kept of it is not shown for ever."""
    assert between.asked == []
    with asked(lake) as connection:
        query = f"select note from {SOURCE} where n = 100"
        assert rows(connection, query) == [("note 100",)]
        assert lake.store is not None
        lake.store.filesystem().delete_file(f"{lake.bucket}/7-1-1.parquet")
        monkeypatch.setattr(filecheck, "_STORE_S", 0.0)
        until(lambda: "7-1-1.parquet" in said(connection, query))


def test_a_look_up_by_key_reads_only_files_whose_statistics_do_not_exclude_it(
    seaweed: Seaweed, tmp_path: Path, between: Counted
) -> None:
    """A lake server that has read nothing yet, ids that rise with the tier key, and no condition on the tier key."""
    stored = InStore(tmp_path, store=seaweed, bucket=seaweed.new_bucket())
    stored.add(EVENTS)
    numbers = [range(first, first + ROWS) for first in range(0, FILES * ROWS, ROWS)]
    stored.publish(7, 1, *({"id": list(ids), "n": list(ids), "note": [f"note {i}" for i in ids]} for ids in numbers))
    with asked(stored) as connection:
        assert rows(connection, f"select note from {SOURCE} where id = 1234") == [("note 1234",)]
        assert between.files() == {"7-1-12.parquet"}
        assert between.methods()["HEAD"] == 2, "DuckDB's own look, and ours"
        between.asked.clear()
        assert rows(
            connection, f"select note from {SOURCE} where id = any('{{350,1250,99999}}'::bigint[]) order by n"
        ) == [
            ("note 350",),
            ("note 1250",),
        ]
        assert between.files() == {"7-1-3.parquet"}, "of the other one all is known"
        between.asked.clear()
        assert rows(connection, f"select note from {SOURCE} where id = 99999") == []
        assert between.asked == []
