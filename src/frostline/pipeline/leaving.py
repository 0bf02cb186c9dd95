"""Deletes what a table has left in the warehouse when it was given back: docs/design/leaving.md.

`table remove` calls it when it has committed; where files may still be read then, or the process dies, `sweep` and the
worker go on.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from frostline import failpoints, logs
from frostline.catalog import horizon, left_folders, pointers
from frostline.catalog.connect import Connection
from frostline.catalog.left_folders import LeftFolder
from frostline.errors import FrostlineError
from frostline.failpoints import Failpoint
from frostline.lake import paths, store, warehouse
from frostline.relation import bound
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What became of one folder."""

    location: str
    files: int = 0
    """So many were deleted."""
    waits_for: str | None = None
    """Why it has to stay for now."""
    left: int = 0
    """Files that stay for good: of another lineage of this database, or of nobody that we know."""
    error: FrostlineError | None = None


def delete_left(connection: Connection, settings: Settings) -> list[Result]:
    """Delete the files of each folder that is left. One folder's failure does not stop the others; it is in its result.

    Outside a transaction. Harmless to repeat, and to do twice at once.
    """
    results: list[Result] = []
    for folder in left_folders.list_all(connection):
        try:
            results.append(_delete(connection, settings, folder))
        except FrostlineError as error:
            _log.error("%s", logs.fields(stage="leave", folder=folder.location, error=error.message))
            results.append(Result(folder.location, error=error))
    return results


def _delete(connection: Connection, settings: Settings, folder: LeftFolder) -> Result:
    if folder.is_needed or pointers.lead_into(connection, folder.location):
        left_folders.forget(connection, folder, with_jobs=False)
        return Result(folder.location)
    reason = _waits_for(connection, settings, folder)
    if reason is not None:
        return Result(folder.location, waits_for=reason)
    with warehouse.guarded(connection, settings.warehouse), store.reachable(f"delete the files in {folder.location}"):
        ours = left_folders.own_jobs(connection, folder)
        files = [file.location for file in paths.below(folder.location)]
        doomed = [location for location in files if paths.job_of(location) in ours]
        for _ in paths.delete_each(doomed):
            failpoints.reached(Failpoint.LEAVE_DELETED_ONE)
        left = len(files) - len(doomed)
        if not left:
            _remove_folders(folder.location)
    left_folders.forget(connection, folder, with_jobs=not left)
    _log.info("%s", logs.fields(stage="leave", folder=folder.location, files=len(doomed), left=left))
    return Result(folder.location, len(doomed), left=left)


def _waits_for(connection: Connection, settings: Settings, folder: LeftFolder) -> str | None:
    """Who may still read the files. Live Postgres snapshots come first: docs/design/upkeep.md."""
    if not paths.is_inside(folder.location, paths.warehouse_location(settings.warehouse)):
        return "another warehouse than that of the settings"
    if older := horizon.older_snapshots(connection, folder.xid):
        return f"transactions from before: {', '.join(older)}"
    if behind := bound.settle_standbys(connection):
        return f"{behind} standbys that are behind"
    return "somebody who has pinned a state of it" if folder.is_pinned else None


def _remove_folders(location: str) -> None:
    """In a file system: the folders of the table, and that of its schema, where nothing is in them."""
    place = paths.local_path(location)
    if place is not None:
        for folder in (place / "data", place / "metadata", place, place.parent):
            with suppress(OSError):
                folder.rmdir()
