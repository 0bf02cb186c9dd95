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
        assert rows(connection, query) == [("NOTE 100",)]
