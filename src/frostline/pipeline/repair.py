"""Repair: what somebody else did to a lake, and the two ways out. docs/design/foreign-commits.md has the reasons.

Restore lets the Iceberg catalog point to the seam again. Adopt first takes the rows of an append into the table.
"""

import logging
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from frostline import logs
from frostline.catalog import jobs, leases, seams, tables
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import CorruptionError, FrostlineError, UsageError, message_of
from frostline.lake import difference, paths, snapshots, store, warehouse
from frostline.lake.difference import NOTHING, Content, Difference
from frostline.model.names import Name
from frostline.model.tables import Standing, Table
from frostline.pipeline import adoption, job
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """What somebody else did, and what was done about it."""

    table: Table
    standing: Standing
    files: Difference
    operations: tuple[str, ...] = ()
    """Of the snapshots since ours."""
    other_names: tuple[Name, ...] = ()
    """Tables of the Iceberg catalog whose metadata is in the folder of this one: it was renamed."""
    missing: tuple[str, ...] = ()
    """Files of ours that are gone from the store."""
    no_append: str | None = None
    """Why there is nothing to adopt."""
    is_readable: bool = True
    """The other's metadata is; else nobody knows what is different."""
    done: str | None = None
    rows: int = 0
    """How many were adopted."""

    @property
    def is_foreign(self) -> bool:
        """Whether there is anything to repair."""
        return self.standing.is_foreign or bool(self.other_names)

    @property
    def theirs(self) -> Content | None:
        """What the catalog has in place of ours, if it has something else and that can be read."""
        return self.files.theirs if self.standing.is_foreign and self.is_readable else None


def look(connection: Connection, table: Table) -> Found:
    """What is different. Reads all manifests of both states, and asks the store for each of our files."""
    standing = seams.standing(connection, table)
    location = standing.location
    ours = NOTHING if location is None else difference.content(snapshots.read_metadata(location))
    folder = None if location is None else location.rpartition("/metadata/")[0]
    with store.reachable(f"look for the lake's files of {table.name}"):
        missing = tuple(path for path in ours.files if paths.size_bytes(path) is None)
    found = Found(
        table,
        standing,
        Difference(ours, ours),
        other_names=tuple(seams.other_names(connection, table, folder)) if folder else (),
        missing=missing,
        no_append="nobody else has committed to it",
    )
    return _compared(found, ours) if standing.is_foreign else found


def _compared(found: Found, ours: Content) -> Found:
    """With what the other metadata has, if there is any and it can be read."""
    standing = found.standing
    if standing.pointer is None:
        return replace(found, files=Difference(ours, NOTHING), no_append="the catalog has no such table any more")
    try:
        theirs = snapshots.metadata_now(standing.pointer)
        files = Difference(ours, difference.content(theirs))
    except (FrostlineError, ValueError, OSError) as error:
        why = f"its metadata cannot be read: {' '.join(message_of(error).split())}"
        return replace(found, no_append=why, is_readable=False)
    done = tuple(difference.operations(theirs, standing.snapshot_id))
    why = "Frostline has put nothing into the lake yet"
    if standing.location is not None:
        why = difference.why_not_rows(found.table, snapshots.read_metadata(standing.location), theirs, files)
    return replace(found, files=files, operations=done, no_append=why)


def restore(connection: Connection, settings: Settings, chosen: Table) -> Found:
    """Let the Iceberg catalog point to the seam's state, as it did. The other's files stay where they are.

    CorruptionError when a file of that state is gone: then the other's may be all that is left of its rows.
    """
    with _leased(connection, settings, chosen) as table:
        found = look(connection, table)
        if not found.is_foreign:
            return found
        _refuse_missing(found)
        job_id = jobs.start(connection, table, "repair")
        with job.failure_recorded(connection, job_id), _publishing(connection, table):
            leases.require(connection, table)
            point_back(connection, found)
            jobs.describe(connection, job_id, f"restored; the other's metadata was {found.standing.pointer}")
            jobs.advance(connection, job_id, State.PUBLISHED)
    _log.info("%s", logs.fields(stage="repair", table=str(table.name), job=job_id, done="restored"))
    return replace(found, done="restored")


@contextmanager
def _leased(connection: Connection, settings: Settings, table: Table) -> Generator[Table]:
    """The table's lease, as every job has it, and the warehouse, but for a lake that is not as it should be."""
    with (
        job.leased(connection, settings, table, "repair", "repairing"),
        warehouse.guarded(connection, settings.warehouse),
    ):
        yield tables.get(connection, table.name)


def _publishing(connection: Connection, table: Table) -> AbstractContextManager[None]:
    hint = f"frostline repair {table.name} shows whether it was done"
    return job.publishing(connection, f"repairing {table.name}", hint=hint)


def point_back(connection: Connection, found: Found) -> None:
    """Inside a transaction: the catalog has what the seam has, and no other name for it."""
    standing = found.standing
    seams.put_pointer(connection, found.table, standing.pointer, standing.location, found.other_names)


def _refuse_missing(found: Found) -> None:
    if found.missing:
        raise CorruptionError(
            f"{len(found.missing)} files of {found.table.name} are gone, the first is {found.missing[0]}; "
            "nothing was changed",
            hint=f"restore them from a backup of the warehouse, then run frostline repair {found.table.name}",
        )


def adopt(connection: Connection, settings: Settings, chosen: Table) -> Found:
    """Take the rows that somebody else has appended into the table, as if they had been inserted, and point back.

    UsageError, with nothing changed, when it was no append, or when Postgres would not take one of the rows.
    """
    with _leased(connection, settings, chosen) as table:
        found = look(connection, table)
        if found.no_append:
            hint = f"frostline repair {table.name} --restore" if found.is_foreign else "frostline status"
            raise UsageError(f"nothing of {table.name} can be adopted: {found.no_append}", hint=hint)
        _refuse_missing(found)
        with adoption.loaded(connection, settings, table, found.files.added) as rows, _publishing(connection, table):
            point_back(connection, found)
            rows.publish_all()
    _log.info("%s", logs.fields(stage="repair", table=str(table.name), job=rows.job_id, done="adopted", rows=rows.rows))
    return replace(found, done="adopted", rows=rows.rows)
