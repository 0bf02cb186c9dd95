"""Who may read the files that Frostline makes: their owner, and nobody else unless the setting `umask` says so.

It is done by the umask of the process, not by a mode for each file. Most files are made by others (DuckDB, PyArrow,
Spark, Postgres), so there is no one place to name a mode. And where a folder has a default ACL, as it has when somebody
shares a warehouse on purpose, the system takes the ACL instead of the umask, while a mode of ours would cut it down.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

OWNER_ONLY = 0o077

_lock = threading.Lock()
_mask = OWNER_ONLY
_inside = 0
_before = 0
_callers = 0o022


def begin() -> None:
    """From now on this process, which is ours, makes files for its owner only, and so do those that it starts."""
    global _callers  # noqa: PLW0603  (a process has one umask)
    _callers = os.umask(OWNER_ONLY)


def use(mask: int) -> None:
    """From now on this process, which is ours, makes files as a setting says."""
    global _mask  # noqa: PLW0603
    _mask = mask
    os.umask(mask)


def give_back() -> None:
    """Let what replaces this process make files as its caller would."""
    os.umask(_callers)


def in_use() -> int:
    """What `use` was called with, to be handed to another process."""
    return _mask


@contextmanager
def applied(mask: int) -> Generator[None]:
    """For the block, make files so in a process that is not ours. Threads of others make theirs so too, meanwhile."""
    global _inside, _before  # noqa: PLW0603
    with _lock:
        if not _inside:
            _before = os.umask(mask)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                os.umask(_before)
