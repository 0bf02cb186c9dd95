"""The Spark jobs of a snapshot of many tables: one over the pieces of all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import SparkSession

from frostline.catalog.connect import Dsn
from frostline.catalog.snapshot_versions import Run
from frostline.catalog.snapshots import Holder
from frostline.errors import FrostlineError
from frostline.lake.datafiles import WrittenFile
from frostline.model import snapshot
from frostline.model.tables import NO_ROWS, Fingerprint
from frostline.pipeline import tasks
from frostline.pipeline.snapshot_copy import HeapPiece, LakePiece, Piece, copy_pieces, survey_pieces
from frostline.pipeline.snapshot_plan import Cold, Heap, Plan, Source, ranges
from frostline.pipeline.source import Shard
from frostline.pipeline.tasks import Progress
from frostline.settings import Settings

_LOCK_TIMEOUT_S = 30
"""Who waits to alter a table waits for the holder, and the tasks wait behind him. Rather than all of them for ever, the
run gives up: Postgres sees no deadlock in this, because the holder waits outside of it."""
_MARK_BYTES = 100
"""About what a mark takes in the overlay; only for sharing work out."""

Report = Callable[[Progress], None]
OnePiece = TypeVar("OnePiece", HeapPiece, Piece)
Made = TypeVar("Made")


class Copying:
    """What a run does under its snapshot."""

    def __init__(self, settings: Settings, job: Run, plan: Plan, holder: Holder, report: Report) -> None:
        self.settings = settings
        self.job = job
        self.plan = plan
        self.holder = holder
        self.report = report

    def files(self, spark: Callable[[], SparkSession], without: frozenset[int]) -> Mapping[int, Sequence[WrittenFile]]:
        """Copy the tables but for these; the written files by the number of their table."""
        pieces = [one for number in self._numbers(without) for one in self._pieces(number)]
        files: dict[int, list[WrittenFile]] = {}
        for made in self._run(spark, copy_pieces, pieces):
            for number, file in made.files:
                files.setdefault(number, []).append(file)
        return files

    def unchanged(self, spark: Callable[[], SparkSession]) -> frozenset[int]:
        """The tables that have the very columns and rows of their last copy.

        Postgres computes the fingerprint of each under the snapshot; of a managed table, of its hot rows, to which the
        recorded ones of the lake's files are added.
        """
        found = {n: _in_lake(one.cold) for n, one in enumerate(self.plan.sources) if _may_be_same(one)}
        pieces = [one for number in found for one in self._heap_pieces(number)]
        for surveyed in self._run(spark, survey_pieces, pieces):
            for number, one in surveyed.found:
                found[number] += one
        return frozenset(number for number, one in found.items() if one == _recorded(self.plan.sources[number]))

    def _numbers(self, without: frozenset[int]) -> Iterator[int]:
        return (number for number in range(len(self.plan.sources)) if number not in without)

    def _run(
        self,
        spark: Callable[[], SparkSession],
        function: Callable[[Sequence[OnePiece]], Made],
        pieces: Sequence[tuple[OnePiece, int]],
    ) -> list[Made]:
        if not pieces:
            return []
        bins = snapshot.bins(pieces, self.settings.export_shard_bytes)
        try:
            return tasks.run(spark(), function, bins, self._watched)
        except FrostlineError:
            self.holder.check()  # when it is gone, that is why
            raise

    def _watched(self, progress: Progress) -> None:
        self.holder.watch()
        self.report(progress)

    def _pieces(self, number: int) -> Iterator[tuple[Piece, int]]:
        """All pieces of a table, each with about how many bytes it has."""
        yield from self._heap_pieces(number)
        source = self.plan.sources[number]
        if source.cold is None:
            return
        for file in source.cold.files:
            marks = replace(
                self._shard(source, source.cold.overlay),
                table=source.cold.table,
                lower=file.lower,
                upper=file.upper + 1,
            )
            yield LakePiece(number, source.table, source.cold.table, marks, file, source.cold.line), file.size_bytes

    def _heap_pieces(self, number: int) -> Iterator[tuple[HeapPiece, int]]:
        """Those that Postgres has."""
        source = self.plan.sources[number]
        hot = source.cold.line if source.cold and source.cold.line > source.cold.table.tier_kind.lowest else None
        for heap, first, last, size in ranges(source, self.settings.export_shard_bytes):
            shard = replace(self._shard(source, heap), lower=hot, first_block=first, last_block=last)
            yield HeapPiece(number, shard), size
        if source.cold and source.cold.marks:
            shard = replace(self._shard(source, source.cold.overlay), upper=source.cold.line, only_live=True)
            yield HeapPiece(number, shard), source.cold.marks * _MARK_BYTES

    def _shard(self, source: Source, relation: Heap) -> Shard:
        """All rows of a relation."""
        return Shard(
            table=source.table,
            dsn=Dsn(self.settings.dsn),
            snapshot=self.plan.moment.snapshot,
            partition=relation.name,
            lower=None,
            upper=None,
            location=source.location,
            job_id=self.job.id,
            memory_limit=self.settings.export_memory,
            in_order=False,
            command="run frostline snapshot create again",
            lock_timeout_s=_LOCK_TIMEOUT_S,
            oid=relation.oid,
        )


def _may_be_same(source: Source) -> bool:
    """Whether the copy that is there has the same columns, and Postgres alone can say whether it has the same rows."""
    if source.base is None or source.base.columns != tuple(map(snapshot.carried, source.table.columns)):
        return False
    return source.cold is None or (
        source.cold.marks == 0 and all(file.upper < source.cold.line for file in source.cold.files)
    )


def _in_lake(cold: Cold | None) -> Fingerprint:
    """What the records of a managed table say that its lake holds."""
    return sum((file.fingerprint for file in cold.files), start=NO_ROWS) if cold else NO_ROWS


def _recorded(source: Source) -> Fingerprint | None:
    return source.base.fingerprint if source.base else None
