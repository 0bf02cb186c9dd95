"""Secrets that Spark tasks need, without being in anything that Spark sends, keeps in memory, or writes to its disks.

What is pickled for a task names a file of the driver instead, which only its own user can read. A task that runs on the
driver's machine under the same user reads it. A task elsewhere finds no such file, and takes what its own machine has:
docs/design/secrets.md.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PREFIX = "frostline-secrets-"
_UNNAMED = "frostline-new-secrets-"
_LOCK = "lock"

_guard = threading.Lock()
_folder: Path | None = None
_holder: int | None = None
_places: dict[str, Path] = {}
_read: dict[str, str] = {}


def put(secret: str) -> str:
    """Write the secret to a file for our own user, once a process, and say where it is. It is gone when we end."""
    with _guard:
        place = _places.get(secret)
        if place is None or not place.exists():  # something may tidy temporary folders
            place = _places[secret] = _own_folder() / uuid.uuid4().hex
            with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                file.write(secret)
        return str(place)


def get(place: str) -> str | None:
    """The secret in that file; None when it is not there, or is not a private one of our own user."""
    if place not in _read:
        with suppress(OSError), os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                _read[place] = file.read()
    return _read.get(place)


def _own_folder() -> Path:
    """The folder of this process. Its lock says that somebody uses it, however the process ends."""
    global _folder, _holder
    if _folder is None or not _folder.exists():
        _remove_abandoned()
        _folder, _holder = _locked_folder()
        atexit.register(_remove, _folder, os.getpid())
    return _folder


def _locked_folder() -> tuple[Path, int]:
    """Under its name only when it is locked: whoever tidies up at this moment would take it for an abandoned one."""
    unnamed = Path(tempfile.mkdtemp(prefix=_UNNAMED))  # with mode 0700
    holder = os.open(unnamed / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(holder, fcntl.LOCK_EX)
    return unnamed.rename(unnamed.with_name(f"{_PREFIX}{uuid.uuid4().hex}")), holder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must not take its parent's secrets away
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    """Remove the folders of our own user's processes that were killed."""
    for folder in _of_our_user():
        with suppress(OSError):  # in use, or gone meanwhile
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _of_our_user() -> Iterator[Path]:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink():
                yield folder
