"""Named snapshots: copy many tables to Iceberg as of one moment, and make all of them visible at once.

docs/design/snapshots.md has the interleavings.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
from pyspark.sql import SparkSession

from frostline import logs
from frostline.catalog import jobs, snapshot_versions
from frostline.catalog.connect import Connection, operational_errors
from frostline.catalog.snapshot_versions import Copied, Known, Run
from frostline.errors import message_of
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model import fields, snapshot
from frostline.model.names import Name
from frostline.model.tables import NO_ROWS
from frostline.pipeline import snapshot_destinations, snapshot_drop
from frostline.pipeline.snapshot_copy import Copying, Report
from frostline.pipeline.snapshot_destinations import Destination, Staged
from frostline.pipeline.snapshot_plan import Plan, Request, Source, chosen, make
from frostline.settings import Settings
from frostline.tiers import moment

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """A version that was made."""

    name: str
    version: int
    lsn: str
    tables: tuple[Copied, ...]
    atomic: bool = True


def create(
    connection: Connection, spark: Callable[[], SparkSession], settings: Settings, request: Request, report: Report
) -> Result:
    """Make a new version of the snapshot. An error before the publish leaves the last one as it was."""
    doing = f"making snapshot {request.name!r}"
    hint = f"frostline snapshot list; then run frostline snapshot create {request.name} again"
    with (
        operational_errors(doing, hint=hint),
        snapshot_versions.exclusive(connection, request.name),
        warehouse.guarded(connection, settings.warehouse),
    ):
        moment.let_idle(connection)
        chosen(connection, request)  # what cannot be meant is refused before a version is begun
        snapshot_destinations.settle(connection, settings, request.name)
        snapshot_drop.tidy(connection, request.name)
        reached(Failpoint.SNAPSHOT_BEFORE_START)
        place = snapshot_destinations.place(settings)
        known = snapshot_versions.newest(connection, request.name, place)
        run = snapshot_versions.start(connection, request.name, paths.warehouse_location(settings.warehouse), place)
        reached(Failpoint.SNAPSHOT_STARTED)
        return Job(connection, settings, request, known, run).run(spark, report)


class Job:
    """One run that has been started; the caller holds the lock of the snapshot's name."""

    def __init__(
        self, connection: Connection, settings: Settings, request: Request, known: Mapping[Name, Known], run: Run
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.request = request
        self.known = known
        self.job = run

    def run(self, spark: Callable[[], SparkSession], report: Report) -> Result:
        """All steps in order."""
        opened = snapshot_destinations.opened(
            self.connection, self.settings, self.request.name, self.job, require_atomic=self.request.require_atomic
        )
        with self._failure_recorded(), opened as destination:
            plan, files, reused = self._copy(destination, spark, report)
            staged = self._stage(destination, plan, files, reused)
            with self._said("publish"):
                atomic = destination.publish(plan.taken, staged, self.known)
            reached(Failpoint.SNAPSHOT_PUBLISHED)
        return Result(
            self.request.name, self.job.version, plan.taken.lsn, tuple(table.copied for table in staged), atomic
        )

    @contextmanager
    def _failure_recorded(self) -> Generator[None]:
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            try:
                reason = jobs.STOPPED if isinstance(error, KeyboardInterrupt) else message_of(error)
                snapshot_versions.fail(self.connection, self.job.id, reason)
            except psycopg.Error:
                _log.warning("%s", logs.fields(snapshot=self.request.name, warning="could not record the failure"))
            raise

    @contextmanager
    def _said(self, stage: str, **values: logs.Value) -> Generator[dict[str, logs.Value]]:
        labels = {"snapshot": self.request.name, "version": self.job.version}
        with logs.stage(_log, stage, **labels, **values) as line:
            yield line

    def _copy(
        self, destination: Destination, spark: Callable[[], SparkSession], report: Report
    ) -> tuple[Plan, Mapping[int, Sequence[WrittenFile]], frozenset[int]]:
        """Write the files of all tables that are not reused, under one snapshot that is watched meanwhile."""
        with self._said("snapshot") as line, moment.held(self.settings.dsn, self.connection) as holder:
            plan = make(holder, self.connection, self.request, destination, self.known)
            if self.settings.catalog_uri is not None:  # folders that a catalog gave us have no token in their names
                locations = [source.location for source in plan.sources]
                snapshot_versions.set_locations(self.connection, self.job, locations)
            reached(Failpoint.SNAPSHOT_HELD)
            shared = Copying(self.settings, self.job, plan, holder, report)
            reused = shared.unchanged(spark) if self.request.incremental else frozenset[int]()
            files = shared.files(spark, reused)
            holder.check()
            rows = sum(file.rows for those in files.values() for file in those)
            line.update(tables=len(plan.sources), reused=len(reused), rows=rows)
        reached(Failpoint.SNAPSHOT_COPIED)
        return plan, files, reused

    def _stage(
        self, destination: Destination, plan: Plan, files: Mapping[int, Sequence[WrittenFile]], reused: frozenset[int]
    ) -> list[Staged]:
        """Write the Iceberg metadata of every table; nothing points at it yet."""
        staged: list[Staged] = []
        for number, source in enumerate(plan.sources):
            if number in reused:
                assert source.base is not None
                copied = replace(source.base, reused=True, location=source.location, read_from=source.read_from)
            else:
                copied = self._stage_one(destination, source, files.get(number, ()))
                reached(Failpoint.SNAPSHOT_STAGED_ONE)
            staged.append(Staged(copied, source.previous))
        reached(Failpoint.SNAPSHOT_STAGED)
        return staged

    def _stage_one(self, destination: Destination, source: Source, files: Sequence[WrittenFile]) -> Copied:
        name = source.table.name
        staged = destination.stage(source.table, source.base, source.location, files)
        made = staged.current_snapshot()
        assert made is not None
        return Copied(
            name=name,
            namespace=snapshot.namespace(self.request.name, name),
            lake_table=name.table,
            metadata_location=staged.metadata_location,
            lake_snapshot_id=made.snapshot_id,
            size_bytes=sum(file.size_bytes for file in files),
            fingerprint=sum((file.fingerprint for file in files), start=NO_ROWS),
            source_oid=source.number,
            columns=tuple(map(fields.of, source.table.columns)),
            last_field_id=source.last_field_id,
            location=source.location,
            read_from=source.read_from,
        )
