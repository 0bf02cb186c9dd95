"""Files are compared before they are read: once, again when they change, and not for longer than anybody waits."""

import hashlib
import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from frostline.errors import CorruptionError
from frostline.lake import checksums, expected, filecheck, paths
from frostline.lake.damage import UnreadableFile
from frostline.lake.expected import CheckedIO
from frostline.lake.filecheck import Checks, FileCheck
from frostline.settings import Settings


@dataclass(frozen=True)
class One:
    """A file as a snapshot names it."""

    path: str
    size_bytes: int


class Records:
    """The recorded checksums, and how often they were asked for."""

    def __init__(self) -> None:
        self.sums: dict[str, bytes] = {}
        self.asked = 0

    def __call__(self, wanted: Collection[str]) -> Mapping[str, bytes]:
        self.asked += 1
        return {path: self.sums[path] for path in wanted if path in self.sums}

    def add(self, file: Path, content: bytes) -> One:
        file.write_bytes(content)
        location = f"file://{file}"
        self.sums[location] = hashlib.sha256(content).digest()
        return One(location, len(content))


@pytest.fixture
def records() -> Records:
    return Records()


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, records: Records) -> None:
    check, file = FileCheck(Checks.FIRST_READ), tmp_path / "a file.parquet"
    recorded = records.add(file, b"content")
    assert [check.compare([recorded], records) for _ in range(3)] == [7, 0, 0]
    assert records.asked == 1
    os.utime(file, ns=(1, 1))
    assert [check.compare([recorded], records) for _ in range(2)] == [7, 0]
    file.write_bytes(b"damaged")
    for _ in range(2):  # a refusal is not remembered as if it were sound
        with pytest.raises(CorruptionError, match=r"a file\.parquet is damaged: its checksum is not the recorded one"):
            check.compare([recorded], records)
    file.write_bytes(b"content")
    assert check.compare([recorded], records) == 7


@pytest.mark.parametrize("checks", [Checks.FIRST_READ, Checks.SIZE])
def test_the_size_is_compared_each_time(tmp_path: Path, records: Records, checks: Checks) -> None:
    check, file = FileCheck(checks), tmp_path / "f.parquet"
    recorded = records.add(file, b"content")
    check.compare([recorded], records)
    file.write_bytes(b"contents")
    with pytest.raises(CorruptionError, match="it has 8 bytes instead of 7") as refusal:
        check.compare([recorded], records)
    assert "restore the file from a backup" in str(refusal.value.hint)
    file.unlink()
    with pytest.raises(UnreadableFile, match="it is not there"):
        check.compare([recorded], records)


def test_nothing_is_compared_when_it_is_off(tmp_path: Path, records: Records) -> None:
    recorded = records.add(tmp_path / "f", b"content")
    (tmp_path / "f").unlink()
    assert FileCheck(Checks.OFF).compare([recorded], records) == 0


def test_a_file_without_a_checksum_is_asked_for_again_later(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, file = FileCheck(Checks.FIRST_READ), tmp_path / "f"
    file.write_bytes(b"content")
    recorded = One(f"file://{file}", 7)
    assert [check.compare([recorded], records), check.compare([recorded], records), records.asked] == [0, 0, 1]
    monkeypatch.setattr(filecheck, "_UNKNOWN_S", 0.0)
    other = FileCheck(Checks.FIRST_READ)
    other.compare([recorded], records)
    records.sums[recorded.path] = bytes(32)
    with pytest.raises(CorruptionError):
        other.compare([recorded], records)


def test_many_files_are_compared_and_the_damaged_one_is_named(tmp_path: Path, records: Records) -> None:
    files = [records.add(tmp_path / f"{number}.parquet", bytes([number]) * 10) for number in range(40)]
    assert FileCheck(Checks.FIRST_READ, threads=4).compare(files, records) == 400
    (tmp_path / "17.parquet").write_bytes(b"x" * 10)
    with pytest.raises(CorruptionError, match=r"17\.parquet"):
        FileCheck(Checks.FIRST_READ, threads=4).compare(files, records)


def test_many_who_want_the_same_file_read_it_once(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    real = checksums.of
    monkeypatch.setattr(checksums, "of", lambda location, give_up: read.append(location) or real(location, give_up))
    check, recorded = FileCheck(Checks.FIRST_READ), records.add(tmp_path / "f", b"content" * 100_000)
    threads = [threading.Thread(target=check.compare, args=([recorded], records)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [recorded.path]


@pytest.mark.parametrize("count", [1, 5])
def test_whoever_does_not_want_to_wait_any_more_need_not(tmp_path: Path, records: Records, count: int) -> None:
    files = [records.add(tmp_path / f"{number}", bytes(3 << 20)) for number in range(count)]

    def give_up() -> None:
        raise KeyboardInterrupt

    check = FileCheck(Checks.FIRST_READ)
    with pytest.raises(KeyboardInterrupt):
        check.compare(files, records, give_up)
    check.compare(files, records)
    assert check.compare(files, records) == 0


def test_what_is_remembered_is_bounded(tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filecheck, "MOST_REMEMBERED", 3)
    check = FileCheck(Checks.FIRST_READ)
    files = [records.add(tmp_path / f"{number}", b"content") for number in range(5)]
    for recorded in files:
        check.compare([recorded], records)
    assert [check.compare([file], records) for file in files[2:]] == [0, 0, 0]
    assert check.compare(files[:1], records) == 7


@pytest.mark.parametrize(
    ("warehouse", "said", "checks"),
    [
        ("/srv/lake", None, Checks.FIRST_READ),
        ("s3://bucket/lake", None, Checks.SIZE),
        ("/srv/lake", "off", Checks.OFF),
        ("s3://bucket/lake", "first_read", Checks.FIRST_READ),
    ],
)
def test_the_setting_wins_over_what_fits_the_store(warehouse: str, said: str | None, checks: Checks) -> None:
    chosen = Settings.model_validate({"dsn": "-", "warehouse": warehouse, "lake_checksums": said})
    assert filecheck.chosen(chosen) is checks


def test_small_files_are_compared_whenever_pyiceberg_opens_them(tmp_path: Path) -> None:
    file = tmp_path / "v1.metadata.json"
    file.write_bytes(b"{}")
    location = f"file://{file}"
    io = paths.file_io(location)
    assert isinstance(io, CheckedIO)
    with io.new_input(location).open() as plain:
        assert bytes(plain.read()) == b"{}"
    expected.add({location: hashlib.sha256(b"{}").digest()})
    with io.new_input(location).open() as same:
        assert bytes(same.read()) == b"{}"
    assert (len(io.new_input(location)), io.new_input(location).exists()) == (2, True)
    file.write_bytes(b"[]")
    with pytest.raises(CorruptionError, match=r"v1\.metadata\.json is damaged"):
        io.new_input(location).open()
