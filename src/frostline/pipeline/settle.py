"""Finishes what an undo has left in a lake that was away: docs/design/thaw.md, "A lake that cannot be used".

Such an undo lowers T and leaves S, so the lake has files at or above T, which the view hides. They go before the next
job that writes to the lake. Otherwise there are none.
"""

import logging
from collections.abc import Sequence

from frostline import logs
from frostline.catalog import jobs, lake_files, leases, pointers, seams
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import Pointer
from frostline.errors import UnavailableError
from frostline.lake import claim, paths, publish, snapshots, store
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model.range import Range, overlapping
from frostline.model.tables import RecordedFile, Seam, Table
from frostline.pipeline import job, tasks
from frostline.pipeline.copying import Trim, trim_file
from frostline.settings import Settings

_log = logging.getLogger(__name__)


def lake(connection: Connection, settings: Settings, table: Table) -> None:
    """Take what lies at or above the frost line out of the lake; nothing to do but after an undo without the lake.

    The caller holds the table's job lock, and the warehouse is there.
    """
    base, seam = pointers.find(connection, Pointer.of(table)), seams.get(connection, table)
    if base is None:
        return
    above = lake_files.within(connection, table, Range(seam.frost_line, None))
    is_empty = not lake_files.totals(connection, table)[0]
    if (above or is_empty) and not claim.has_rows(connection, table) and not _is_readable(base):
        _begin_anew(connection, table)
    elif above:
        line = seam.frost_line
        job_id = jobs.start(connection, table, "undo", line, line)
        said = logs.stage(_log, "settle", table=str(table.name), job=job_id, files=len(above))
        with job.failure_recorded(connection, job_id), said:
            _Settling(connection, settings, table, seam, job_id).run(above)


def _is_readable(base: str) -> bool:
    """Whether the lake's metadata can be read, and its manifests; UnavailableError when nobody can tell."""
    try:
        metadata = snapshots.metadata_now(base)
        list(snapshots.data_files(metadata.current_snapshot(), paths.file_io(base)))
    except UnavailableError as error:
        if store.may_pass(error):
            raise
        return False
    except Exception:  # noqa: BLE001  (a damaged file can make a parser say anything)
        return False
    return True


def _begin_anew(connection: Connection, table: Table) -> None:
    """The lake has no row that anybody reads, and its metadata is lost: it begins as at the first archive."""
    with connection.transaction():
        leases.require(connection, table)
        publish.begin_anew(connection, table)
    _log.warning("%s", logs.fields(stage="settle", table=str(table.name), note="the lake's metadata was lost: anew"))


class _Settling:
    """One job that has begun."""

    def __init__(self, connection: Connection, settings: Settings, table: Table, seam: Seam, job_id: int) -> None:
        self.connection = connection
        self.settings = settings
        self.table = table
        self.seam = seam
        self.job_id = job_id

    def run(self, above: Sequence[RecordedFile]) -> None:
        """All steps in order. An error before publish leaves readers as they were and the job row failed."""
        self._publish(above, [self._trimmed(file) for file in overlapping(above, Range(None, self.seam.frost_line))])

    def _trimmed(self, file: RecordedFile) -> WrittenFile:
        """In this process: there are few of them, if any."""
        location, memory = paths.table_location(self.settings.warehouse, self.table), self.settings.export_memory
        keep = Range(None, self.seam.frost_line)
        piece = Trim(self.table, file, keep, location, self.job_id, memory)
        return tasks.unwrap(tasks.attempt(trim_file, piece))

    def _publish(self, above: Sequence[RecordedFile], trimmed: Sequence[WrittenFile]) -> None:
        change = Exchange(self.table, self.job_id, [file.path for file in above], trimmed)
        staged = change.stage(self.connection, self.settings)
        hint = "frostline jobs shows whether it was done; then run the command again"
        with publish.transaction(self.connection, f"settling the lake of {self.table.name}", hint=hint):
            change.swap(self.connection, staged, self.seam)
            jobs.describe(self.connection, self.job_id, f"{len(above)} files that an undo had left")
