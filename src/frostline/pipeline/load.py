"""Load: the cold rows of a batch become files of the lake. docs/design/spark-writes.md says why it is right."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from frostline import failpoints, logs
from frostline.catalog import jobs, lake_files, seams
from frostline.catalog.connect import Connection
from frostline.catalog.jobs import State
from frostline.errors import UsageError
from frostline.failpoints import Failpoint
from frostline.lake import paths
from frostline.lake.commit import StagedCommit
from frostline.lake.datafiles import WrittenFile
from frostline.lake.publish import Exchange
from frostline.model.names import quoted
from frostline.model.range import Range, overlapping
from frostline.model.tables import RecordedFile, Table
from frostline.pipeline import tasks
from frostline.pipeline.export import Export, export_shard
from frostline.relation import heap
from frostline.relation.loading import Loading
from frostline.settings import Settings
from frostline.tiers import moment, survey, target
from frostline.tiers.moment import Moment
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import sound
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Declined:
    """The batch cannot go this way, and nothing of it was written."""

    reason: str | None = None
    """For the user; None when nobody would expect it to go this way."""


@dataclass(frozen=True)
class Piece:
    """The rows of a batch for one lake partition, and the files that may have one of their keys."""

    export: Export
    files: tuple[RecordedFile, ...]


@dataclass(frozen=True)
class Made:
    """What a task did."""

    written: tuple[WrittenFile, ...] = ()
    known_key: int | None = None
    """The hash of a key that the lake has already; then nothing was written."""


def load_piece(piece: Piece) -> Made:
    """Write the rows to a file and prove that they are all there, unless the lake has one of their keys.

    Raises CorruptionError when a file that may have one of the keys is not what was recorded.
    """
    export, table = piece.export, piece.export.table
    wanted = np.array(sorted(survey.key_hashes(table, export.reader, export.shard)), np.int64)
    for file in piece.files:
        sound(file, table)  # a damaged file would not show a key that it has, and the lake would have it twice
        known = fingerprint.first_of_keys(file.path, table, wanted)
        if known is not None:
            return Made(known_key=known)
    written = export_shard(export)
    return Made(() if written is None else (written,))


class Job:
    """The files of one batch; the caller holds the table's lease, and publishes in a transaction of its own."""

    kind = "load"

    def __init__(self, connection: Connection, settings: Settings, table: Table, load: Loading) -> None:
        self.connection = connection
        self.settings = settings
        self.table = table
        self.load = load
        self.seam = seams.get(connection, table)
        failpoints.reached(Failpoint.LOAD_BEFORE_START)
        self.job_id = jobs.start(connection, table, self.kind)
        failpoints.reached(Failpoint.LOAD_STARTED)
        self._files: list[WrittenFile] = []
        self._staged: StagedCommit | None = None

    def write(self, spark: SparkSession | None) -> Declined | None:
        """Write data and metadata; nothing points at them yet. UsageError when the lake has a key of the batch.

        Without Spark this process does what its tasks would.
        """
        with logs.stage(_log, "load", table=str(self.table.name), job=self.job_id) as line:
            made = self._export(spark)
            known_key = next((task.known_key for task in made if task.known_key is not None), None)
            if known_key is not None:
                declined = self.known(known_key)
                line.update(declined=True)
                return declined
            self._files = [file for task in made for file in task.written]
            rows, size = sum(file.rows for file in self._files), sum(file.size_bytes for file in self._files)
            line.update(files=len(self._files), rows=rows, size_bytes=size)
            jobs.advance(self.connection, self.job_id, State.EXPORTED, rows=rows, size_bytes=size)
        failpoints.reached(Failpoint.LOAD_EXPORTED)
        self._staged = self.stage(self.exchange())
        failpoints.reached(Failpoint.LOAD_STAGED)
        return None

    def again(self) -> str:
        """What to do after an error that the rows are to blame for."""
        return "write again"

    def stage(self, change: Exchange) -> StagedCommit | None:
        """Write the metadata."""
        return change.stage(self.connection, self.settings)

    def _export(self, spark: SparkSession | None) -> list[Made]:
        with moment.exported(self.settings.dsn) as exported:
            pieces = list(self._pieces(exported))
            if spark is None:
                return [load_piece(piece) for piece in pieces]
            return tasks.run(spark, load_piece, pieces, lambda _: None) if pieces else []

    def _pieces(self, exported: Moment) -> Iterator[Piece]:
        recorded = lake_files.recorded(self.connection, self.table)
        reader = Reader(exported, "export", self.again())
        location = paths.table_location(self.settings.warehouse, self.table)
        with moment.joined(exported, purpose="export") as connection:
            target.require_columns(connection, self.table)
            read = target.find(connection, [self.load.name])[self.load.name]
            for lower, upper in heap.occupied(connection, self.table, read.name, self.seam.frost_line):
                wanted = Range(lower, upper)
                export = Export(
                    table=self.table,
                    reader=reader,
                    shard=Shard(read, wanted, only_live=True),
                    location=location,
                    job_id=self.job_id,
                    memory_limit=self.settings.export_memory,
                )
                yield Piece(export, tuple(overlapping(recorded, wanted)))

    def known(self, key_hash: int) -> Declined:
        """What to do about a hash that the lake has: UsageError if it has the key too.

        Two keys may have one hash. Then each has to be looked up as it is, which files are not.
        """
        key = self.load.key_of(fingerprint.postgres_key_hash(self.table), key_hash)
        if not self.load.is_known(key):
            return Declined("the lake has another key with the hash of one of its keys")
        columns, values = ", ".join(map(quoted, self.table.key)), ", ".join(key)
        raise UsageError(
            f"Postgres refused a row of the batch: duplicate key ({columns}) = ({values}), which exists in the lake",
            hint="mode='upsert' replaces rows whose key exists",
        )

    def publish(self) -> None:
        """Inside the publishing transaction: the files are part of the table."""
        self.exchange().swap(self.connection, self._staged, self.seam)

    def exchange(self) -> Exchange:
        """What the batch does to the files of the table."""
        replaced: Sequence[str] = ()
        return Exchange(self.table, self.job_id, replaced, self._files)
