"""The umask of our processes, and of others' for a while; what it does to a folder that is shared on purpose."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from frostline import filemode
from frostline.runtime.programs import become_psql
from frostline.settings import Settings

_PRINT = "import os; from frostline import filemode; {}; os.close(os.open('made', os.O_CREAT)); print(oct(os.stat('made').st_mode & 0o777))"


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """With the mask of most shells. The tests after these get back what they had, SIGPIPE included, which psql wants."""
    before, pipe = os.umask(0o022), signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, pipe)
    os.umask(before)


def mode_of(path: Path) -> int:
    path.touch()
    return path.stat().st_mode & 0o777


def made_by(code: str, place: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT.format(code).replace("O_CREAT", "O_CREAT, 0o666")],
        cwd=place,
        umask=0o022,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def test_a_process_of_ours_makes_files_for_its_owner_only_unless_it_is_told(tmp_path: Path) -> None:
    assert made_by("filemode.begin()", tmp_path) == "0o600"
    (tmp_path / "made").unlink()
    assert made_by("filemode.begin(); filemode.use(0o027)", tmp_path) == "0o640"
    (tmp_path / "made").unlink()
    assert made_by("filemode.begin(); filemode.use(0o077); filemode.give_back()", tmp_path) == "0o644"


def test_a_process_of_others_gets_its_own_umask_back_when_the_last_block_ends(tmp_path: Path) -> None:
    together = Barrier(4)

    def make(number: int) -> int:
        with filemode.applied(0o077):
            together.wait()
            return mode_of(tmp_path / str(number))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(4))) == [0o600] * 4
    assert mode_of(tmp_path / "theirs") == 0o644


@pytest.mark.parametrize(("text", "mask"), [("077", 0o077), ("027", 0o027), ("0007", 0o007)])
def test_the_setting_is_written_as_for_the_shell(text: str, mask: int) -> None:
    assert Settings(dsn="unused", warehouse="unused", umask=text).file_mask == mask


def test_psql_makes_files_as_its_caller_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filemode.begin()
    masks: list[int] = []
    monkeypatch.setattr(os, "execve", lambda *_: masks.append(os.umask(0)))
    become_psql("host=nowhere", [])
    assert masks == [0o022]


def test_a_default_acl_of_the_warehouse_wins_over_the_umask(tmp_path: Path) -> None:
    """Of the user 12345: it may read and enter; everybody else may nothing."""
    entries = [
        (0x01, 7, 0xFFFFFFFF),
        (0x02, 5, 12345),
        (0x04, 0, 0xFFFFFFFF),
        (0x10, 7, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    with filemode.applied(0o077):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "file.parquet").touch()
    for made in (tmp_path / "data", tmp_path / "data" / "file.parquet"):
        acl = os.getxattr(made, "system.posix_acl_access")
        tags = {tag: perm for tag, perm, _ in struct.iter_unpack("<HHI", acl[4:])}
        assert tags[0x02] & tags[0x10] & 4, "the user may read"
        assert tags[0x20] == 0
