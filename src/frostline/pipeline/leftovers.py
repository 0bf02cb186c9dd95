"""The files of jobs that failed. No snapshot has them, so they go before the next job of the table begins."""

import logging

from frostline import logs
from frostline.catalog import jobs
from frostline.catalog.connect import Connection
from frostline.lake import paths, store
from frostline.model.tables import Table
from frostline.settings import Settings

_log = logging.getLogger(__name__)


def remove(connection: Connection, settings: Settings, table: Table) -> None:
    """Delete what failed jobs of this table left in the lake. The caller holds the table's lease."""
    location = paths.table_location(settings.warehouse, table.name, table.id)
    for job_id in jobs.untidied(connection, table):
        with store.reachable(f"delete what job {job_id} left in the lake"):
            found = paths.written_by(location, job_id)
            for file in found:
                paths.delete(file)
        jobs.set_tidied(connection, job_id)
        _log.info("%s", logs.fields(stage="leftovers", table=str(table.name), job=job_id, files=len(found)))
