"""Data files are compared before they are read: their size each time, their checksum the first time.

What was compared is remembered by path, size and time of the last change, so a file that is changed later is compared
again. One that rots without a trace in the file system is found by the next process that reads it, or by
`frostline verify`. In an object store nobody waits for a second look: it is taken beside the queries, now and then.
docs/design/damaged-files.md has the reasons and what it costs.
"""

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

from frostline.lake import checksums, damage, objectstore, paths, store
from frostline.settings import Settings

MOST_REMEMBERED = 200_000
_UNKNOWN_S = 600.0
"""A file without a recorded checksum is asked for again after this time: a `frostline verify` may have added it."""
_STORE_S = 60.0
"""How long an object store is not asked again about a file. Frostline changes nothing in place there, but a file may be
deleted, or restored by somebody."""
_STORE_THREADS = 16
_FOR_EVER = float("inf")
_POLL_S = 0.05

_Item = TypeVar("_Item")
GiveUp: TypeAlias = Callable[[], None]
"""Is called all the time, and raises when the work is not wanted any more."""
Stamp: TypeAlias = tuple[int, int]
"""A file's size, and when it was changed last."""
Recorded: TypeAlias = Callable[[Collection[str]], Mapping[str, bytes]]
"""Gives the recorded checksums of those of the files that have one."""


class Checks(StrEnum):
    """What is compared."""

    FIRST_READ = "first_read"
    """The size each time, and the checksum of the whole file when it is read first."""
    SIZE = "size"
    OFF = "off"


class File(Protocol):
    """A data file as a snapshot of the lake describes it."""

    @property
    def path(self) -> str:
        """Its location."""
        ...

    @property
    def size_bytes(self) -> int:
        """How large it must be."""
        ...


@dataclass(frozen=True)
class _Seen:
    """A file as it was when it was compared, and until when that is good."""

    stamp: Stamp
    looked_at: float
    until: float


def chosen(settings: Settings) -> Checks:
    """What the settings say, or else is right for the warehouse."""
    return Checks(settings.lake_checksums) if settings.lake_checksums else fitting(settings.warehouse)


def fitting(location: str) -> Checks:
    """In a directory everything is compared. An object store keeps checksums of its own, and a file is far away."""
    return Checks.SIZE if objectstore.names(location) else Checks.FIRST_READ


def read_whole(file: File, wanted: bytes, give_up: GiveUp = lambda: None) -> None:
    """CorruptionError unless the file has the checksum."""
    with store.reachable(f"read {file.path}"):
        actual = checksums.of(file.path, give_up)
    if actual != wanted:
        raise damage.wrong_checksum(f"file {file.path}")


class FileCheck:
    """Compares files, and remembers which were what they must be. For many threads at once."""

    def __init__(self, checks: Checks, threads: int = 2, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when a file in an object store is not the one that was looked at before."""
        self.checks = checks
        self._changed = changed
        self._threads = threads
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._path_locks = [threading.Lock() for _ in range(64)]
        """Several who want the same file wait for the one who reads it."""
        self._due: set[str] = set()
        """Files in an object store that are to be looked at again, or are being looked at."""

    def compare(self, files: Sequence[File], recorded: Recorded, give_up: GiveUp = lambda: None) -> int:
        """CorruptionError for a file that is not what was written; UnreadableFile for one that is not there.

        `give_up` is called all the time, and may raise. Gives back how many bytes had to be read.
        """
        known = self.unread(files, recorded, give_up)
        wanted = [file for file in files if file.path in known]
        _in_threads(wanted, lambda file, stop: self._read(file, known[file.path], stop), self._threads, give_up)
        return sum(file.size_bytes for file in wanted)

    def unread(self, files: Sequence[File], recorded: Recorded, give_up: GiveUp = lambda: None) -> Mapping[str, bytes]:
        """Compare the sizes; the checksums of those files that have to be read, by path."""
        if self.checks is Checks.OFF:
            return {}
        stamps = self._stamps(files, give_up)
        if any(self._is_another(path, stamp) for path, stamp in stamps.items()):
            self._changed()
        unseen = {path: stamp for path, stamp in stamps.items() if not self._is_known(path, stamp)}
        if self.checks is Checks.SIZE or not unseen:
            self._remember(unseen, _FOR_EVER)
            return {}
        known = recorded(list(unseen))
        self._remember({path: stamp for path, stamp in unseen.items() if path not in known}, _UNKNOWN_S)
        return {path: known[path] for path in unseen if path in known}

    def stamps(self, files: Sequence[File]) -> tuple[Stamp, ...] | None:
        """As they are now, in an object store as they were when it was asked last; None unless they were compared so.

        Two answers that are equal speak of the same files with the same bytes.
        """
        stamps: list[Stamp] = []
        for file in files:
            seen = self._seen.get(file.path)
            if seen is None or not (objectstore.holds(file.path) or paths.stamp(file.path) == seen.stamp):
                return None
            stamps.append(seen.stamp)
        return tuple(stamps)

    def unchanged(self, files: Sequence[File]) -> tuple[Stamp, ...] | None:
        """Their stamps, if all are as they were when they were compared; None where `compare` has to say more.

        Each is looked at as `compare` would.
        """
        stamps, now = list[Stamp](), time.monotonic()
        for file in files:
            seen = self._seen.get(file.path)
            if seen is None or now >= seen.until or not self._is_still(file.path, seen, now):
                return None
            stamps.append(seen.stamp)
        return tuple(stamps)

    def _is_still(self, path: str, seen: _Seen, now: float) -> bool:
        if objectstore.holds(path):
            self._look_again_if_due(path, seen, now)
            return True
        try:
            return paths.stamp(path) == seen.stamp
        except OSError:
            return False

    def remember(self, file: File) -> None:
        """Somebody else has read it, and it was what it must be."""
        self._remember({file.path: _looked_at(file)}, _FOR_EVER)

    def _stamps(self, files: Sequence[File], give_up: GiveUp) -> dict[str, Stamp]:
        """Of those files that have to be looked at now. An object store is asked about many at once."""
        due = [file for file in files if not self._is_fresh(file.path)]
        if not due or not objectstore.holds(due[0].path):
            return {file.path: _looked_at(file) for file in due}
        stamps: dict[str, Stamp] = {}

        def look(file: File, _: GiveUp) -> None:
            stamps[file.path] = _looked_at(file)

        _in_threads(due, look, _STORE_THREADS, give_up)
        return stamps

    def _is_fresh(self, path: str) -> bool:
        """Whether it is known as it is without a look: in an object store, where it was compared before."""
        seen, now = self._seen.get(path), time.monotonic()
        if seen is None or now >= seen.until or not objectstore.holds(path):
            return False
        self._look_again_if_due(path, seen, now)
        return True

    def _look_again_if_due(self, path: str, seen: _Seen, now: float) -> None:
        """Nobody waits for it: the file is what it was but for a deletion or a repair by hand."""
        if now < seen.looked_at + _STORE_S:
            return
        with self._lock:
            is_idle = not self._due
            self._due.add(path)
        if is_idle:
            threading.Thread(target=self._look_again, name="frostline-look", daemon=True).start()

    def _look_again(self) -> None:
        """Until nothing is due. What is not as it was is forgotten, so that the next query compares it."""
        due = self._still_due(())
        while due:
            others: list[str] = []
            _in_threads(due, lambda path, _, others=others: self._look_at_again(path, others), _STORE_THREADS, _go_on)
            if others:
                self._changed()
                with self._lock:
                    for path in others:
                        self._seen.pop(path, None)
            due = self._still_due(due)

    def _still_due(self, done: Collection[str]) -> list[str]:
        with self._lock:
            self._due.difference_update(done)
            return list(self._due)

    def _look_at_again(self, path: str, others: list[str]) -> None:
        """A store that does not answer is asked again soon: whoever needs the file is told what is wrong."""
        with contextlib.suppress(Exception):
            stamp, seen = paths.stamp(path), self._seen.get(path)
            if seen is None or seen.stamp != stamp:
                others.append(path)
                return
            with self._lock:
                self._seen[path] = replace(seen, looked_at=time.monotonic())

    def _is_another(self, path: str, stamp: Stamp) -> bool:
        """Whether somebody has put another file in its place. In a directory DuckDB itself sees that."""
        seen = self._seen.get(path)
        return seen is not None and seen.stamp != stamp and objectstore.holds(path)

    def _is_known(self, path: str, stamp: Stamp) -> bool:
        """Whether the file was compared when it was as it is now."""
        with self._lock:
            seen, now = self._seen.get(path), time.monotonic()
            if seen is None or seen.stamp != stamp or now >= seen.until:
                return False
            self._seen[path] = _Seen(stamp, now, seen.until)
            self._seen.move_to_end(path)
            return True

    def _read(self, file: File, wanted: bytes, give_up: GiveUp) -> None:
        path_lock = self._path_locks[hash(file.path) % len(self._path_locks)]
        while not path_lock.acquire(timeout=_POLL_S):
            give_up()
        try:
            stamp = _looked_at(file)
            if not self._is_known(file.path, stamp):  # somebody else may have read it while we waited
                read_whole(file, wanted, give_up)
                self._remember({file.path: stamp}, _FOR_EVER)
        finally:
            path_lock.release()

    def _remember(self, stamps: Mapping[str, Stamp], seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            for path, stamp in stamps.items():
                self._seen[path] = _Seen(stamp, now, now + seconds)
                self._seen.move_to_end(path)
            while len(self._seen) > MOST_REMEMBERED:
                self._seen.popitem(last=False)


def _go_on() -> None:
    """Nothing waits that could give up."""


def _looked_at(file: File) -> Stamp:
    """Size and time of the last change; an error unless the size is right."""
    with store.reachable(f"read {file.path}"):
        stamp = paths.stamp(file.path)
    if stamp is None:
        raise damage.missing(file.path)
    if stamp[0] != file.size_bytes:
        raise damage.wrong_size(file.path, stamp[0], file.size_bytes)
    return stamp


class _Stopped(Exception):
    """Another thread has failed, or the caller is gone."""


def _in_threads(items: Sequence[_Item], do: Callable[[_Item, GiveUp], None], threads: int, give_up: GiveUp) -> None:
    """Call the function with each. Raises the first error, and what `give_up` raises; the others then stop soon.

    Nobody waits for the threads at the end of the process: their disk may be away.
    """
    work, needed = _Work(items, do), min(threads, len(items))
    workers = [threading.Thread(target=work.run, name="frostline-check", daemon=True) for _ in range(needed)]
    for worker in workers:
        worker.start()
    try:
        give_up()  # also where all is done before anybody waits
        for worker in workers:
            while worker.is_alive():
                worker.join(_POLL_S)
                give_up()
    finally:
        work.ended.set()
    if work.failed:
        raise work.failed[0]


class _Work(Generic[_Item]):
    def __init__(self, items: Sequence[_Item], do: Callable[[_Item, GiveUp], None]) -> None:
        self._left, self._do = deque(items), do
        self.failed: list[BaseException] = []
        self.ended = threading.Event()

    def _stop(self) -> None:
        if self.ended.is_set():
            raise _Stopped

    def _next(self) -> _Item | None:
        self._stop()
        try:
            return self._left.popleft()
        except IndexError:
            return None

    def run(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._do(item, self._stop)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  (it is raised where the work was asked for)
            self.failed.append(error)
            self.ended.set()
