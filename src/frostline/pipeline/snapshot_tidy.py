"""Deletes the files of snapshots that nobody needs: those of runs that died, and of versions that were dropped."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from frostline import logs
from frostline.catalog import snapshot_versions
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, FrostlineError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths, reachable, snapshots, store, warehouse
from frostline.settings import Settings

_log = logging.getLogger(__name__)


def tidy(connection: Connection, name: str) -> int:
    """Delete what dead runs and dropped versions of the snapshot left; says how many files. Can be repeated at will.

    The caller holds the lock of the name, and has seen that the warehouse is ours. Only folders that this database made
    are looked at, and no file goes that a version which is there has.
    """
    dead = snapshot_versions.dead(connection, name)
    if all(dead.values()):
        return 0
    deleted = 0
    with store.reachable(f"delete what dead runs of snapshot {name!r} left"):
        written = list(_written_by(connection, name, dead.keys()))
        needed = _needed(connection, name, written) if written else frozenset[str]()
        for _ in paths.delete_each(location for location in written if location not in needed):
            deleted += 1
            reached(Failpoint.SNAPSHOT_DELETED_ONE)
    snapshot_versions.set_tidied(connection, list(dead))
    _log.info("%s", logs.fields(stage="leftovers", snapshot=name, runs=len(dead), files=deleted))
    return deleted


@dataclass(frozen=True)
class Tidied:
    """What was done for all snapshots."""

    files: int
    """That were deleted."""
    errors: tuple[FrostlineError, ...]
    """One a snapshot that failed, which did not stop the others."""


def tidy_all(connection: Connection, settings: Settings) -> Tidied:
    """The same for every snapshot that nobody works on just now."""
    deleted = 0
    errors: list[FrostlineError] = []
    for name in snapshot_versions.untidied_names(connection):
        try:
            held = snapshot_versions.exclusive(connection, name)
            with held, warehouse.guarded(connection, settings.warehouse):
                deleted += tidy(connection, name)
        except ConflictError:
            _log.info("%s", logs.fields(stage="leftovers", snapshot=name, note="a run is going on"))
        except FrostlineError as error:
            _log.error("%s", logs.fields(stage="leftovers", snapshot=name, error=error.message))
            errors.append(error)
    return Tidied(deleted, tuple(errors))


def _written_by(connection: Connection, name: str, dead: Collection[int]) -> Iterator[str]:
    """The files of these runs in our own folders, whose names have one of our tokens."""
    tokens: dict[str, set[str]] = {}
    for token, place in snapshot_versions.folders(connection, name):
        tokens.setdefault(place, set()).add(token)
    for place, ours in tokens.items():
        if not _is_in_use(place):
            _log.warning("%s", logs.fields(stage="leftovers", snapshot=name, left=place, note="another warehouse"))
            continue
        for file in paths.below(paths.snapshot_root(place, name)):
            folder = file.location.rsplit("/", 3)[-3]
            if folder.rpartition("-")[2] in ours and paths.job_of(file.location) in dead:
                yield file.location
    for location in snapshot_versions.locations(connection, list(dead)):
        yield from (file.location for file in paths.stored(location) if paths.job_of(file.location) in dead)


def _is_in_use(place: str) -> bool:
    """Whether it is the warehouse that has our marker. One that this database had before may be somebody else's now."""
    marker = warehouse.in_use()
    return marker is None or marker.place == place


def _needed(connection: Connection, name: str, written: Collection[str]) -> frozenset[str]:
    """Everything that the versions which are there consist of, as far as it may be among these files.

    Copies in other folders are not looked at: another lineage of the database may have made them, and deleted them.
    """
    needed: set[str] = set()
    folders = {file.rsplit("/", 2)[0] for file in written}
    for location in snapshot_versions.needed(connection, name, folders):
        needed |= {location} | _of_version(location, written)
    return frozenset(needed)


def _of_version(location: str, written: Collection[str]) -> set[str]:
    """What a copy consists of. If somebody dropped it in a catalog outside, nobody knows: its whole folder stays."""
    try:
        return set(reachable.current(snapshots.metadata_now(location)))
    except UnavailableError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        folder = location.rpartition("/metadata/")[0]
        _log.warning(
            "%s", logs.fields(stage="leftovers", folder=folder, warning=f"{error.message}; nothing is deleted there")
        )
        return {file for file in written if file.startswith(f"{folder}/")}
