"""DataFrames of managed tables: Spark's own Parquet reader for the lake, tasks in Postgres for the heap."""

import json
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)
from pyspark.sql.types import StructField, StructType

from frostline import logs
from frostline.errors import UsageError
from frostline.lake import paths
from frostline.model import missing
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column
from frostline.model.tiers import BY_TYPNAME, MICROS_PER_DAY, TierKind
from frostline.spark import conditions, lakeconditions, lakefiles, source, types
from frostline.spark.conditions import Where
from frostline.spark.keeper import KEEPER, Kept
from frostline.tiers import files as lake
from frostline.tiers import pieces
from frostline.tiers.files import ColdFile
from frostline.tiers.pieces import Part
from frostline.tiers.point import AsOf, TablePoint

_BROADCAST_MARKS = 1_000_000
_KEY = "frostline_key_{}"
_STRICT = {"datetimeRebaseMode": "CORRECTED", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""What the session says otherwise would change values or leave rows out."""
_views: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""The points of the views that were made here, by their names."""

Plan: TypeAlias = Any
"""A logical plan of Spark's, in Java."""

_log = logging.getLogger(__name__)


def read(
    spark: SparkSession,
    table: str,
    *,
    dsn: str | None = None,
    home: str | Path | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_of: AsOf = None,
) -> DataFrame:
    """The table at one point in time, the same for all actions on it and on what is derived from it.

    `where` is a condition of Spark SQL; what it says about the tier key leaves lake files and partitions out before
    Spark looks at them. The point is held until `release`, or the end of the process.
    """
    kept = KEEPER.take(dsn, home, [table], as_of)
    try:
        return _Frame.of(spark, kept, table, columns, where).build()
    except BaseException:
        KEEPER.release(kept.id)
        raise


def read_many(
    spark: SparkSession,
    tables: Iterable[str],
    *,
    dsn: str | None = None,
    home: str | Path | None = None,
    as_of: str | None = None,
) -> dict[str, DataFrame]:
    """Several tables at one common point, by their names. Releasing one of them releases all."""
    kept = KEEPER.take(dsn, home, list(tables), as_of)
    try:
        return {table: _Frame.of(spark, kept, table, None, None).build() for table in kept.point.tables}
    except BaseException:
        KEEPER.release(kept.id)
        raise


def view(spark: SparkSession, name: str, table: str, **options: Any) -> DataFrame:
    """Make the table known to Spark SQL as a temporary view; takes what `read` takes.

    A view that this made before under the same name is replaced, and its point released.
    """
    frame = read(spark, table, **options)
    frame.createOrReplaceTempView(name)
    made = _views.setdefault(spark, {})
    if name in made:
        KEEPER.release(made[name])
    made[name] = next(iter(_points_of(frame)))
    return frame


@contextmanager
def reading(spark: SparkSession, table: str, **options: Any) -> Generator[DataFrame]:
    """What `read` gives, released at the end of the block."""
    frame = read(spark, table, **options)
    try:
        yield frame
    finally:
        release(frame)


def release(frame: DataFrame | None = None) -> None:
    """Give up all points that a DataFrame was made of; without one, all of this process."""
    ids = KEEPER.ids() if frame is None else _points_of(frame)
    if frame is not None and not ids:
        raise UsageError("this DataFrame shows no point in time", hint="release the one that read, or load, gave")
    for point_id in ids:
        KEEPER.release(point_id)


def _points_of(frame: DataFrame) -> list[str]:
    """The numbers of the points that a frame is made of, however it was derived; each once.

    Its plan knows. The frame's own columns do not tell: a union shows those of one side.
    """
    java: Any = frame
    return list(dict.fromkeys(_points_in(java._jdf.queryExecution().analyzed())))  # noqa: SLF001


def _points_in(plan: Plan) -> Iterator[str]:
    yield from _points_shown(plan)
    for below in (plan.children(), plan.subqueries()):
        for index in range(below.size()):
            yield from _points_in(below.apply(index))


def _points_shown(plan: Plan) -> Iterator[str]:
    """Of the columns that come out of this step."""
    output = plan.output()
    for index in range(output.size()):
        metadata = output.apply(index).metadata()
        if metadata.contains(types.POINT):
            yield metadata.getString(types.POINT)


@dataclass(frozen=True)
class _Frame:
    """One DataFrame in the making."""

    spark: SparkSession
    kept: Kept
    name: str
    wanted: dict[str, Column]
    """What comes out."""
    needed: dict[str, Column]
    """That, and what the condition wants to know."""
    where: str | None
    range: Range
    condition: lakeconditions.Condition
    """What is known of the rows of a lake table."""

    @classmethod
    def of(
        cls, spark: SparkSession, kept: Kept, name: str, columns: Sequence[str] | None, where: str | None
    ) -> "_Frame":
        """Read the arguments."""
        at = kept.point.tables[name]
        shown = lake.shown_names(at.table)
        wanted = types.chosen(at.table.name, shown, columns)
        known = _known(spark, at, shown, where)
        needed = {key: value for key, value in shown.items() if key in wanted or key in known.columns}
        return cls(spark, kept, name, wanted, needed, where, known.range, known.of_files)

    @property
    def at(self) -> TablePoint:
        """The table at the point."""
        return self.kept.point.tables[self.name]

    def build(self) -> DataFrame:
        """All parts together, with the condition, and nothing but the wanted columns."""
        source.register_parts(self.spark)
        parts = [part for part in (self._cold(), self._part(Part.LIVE), self._part(Part.HOT)) if part is not None]
        union = reduce(DataFrame.unionAll, parts or [self._nothing()])
        filtered = union if self.where is None else union.where(self.where)
        metadata = {types.POINT: self.kept.id}
        return filtered.select(*(_column(name).alias(name, metadata=metadata) for name in self.wanted))

    def _nothing(self) -> DataFrame:
        untyped: Any = self.spark
        return untyped.createDataFrame([], types.schema(self.needed))

    def _part(self, part: Part, columns: dict[str, Column] | None = None) -> DataFrame | None:
        """Rows that tasks read; None when there are none."""
        if not pieces.cut(self.at, part, self.range, self.condition):
            return None
        chosen = self.needed if columns is None else columns
        reader = self.spark.read.format(source.PARTS).option("point", self.kept.id).option("table", self.name)
        return reader.option("part", part).option("columns", json.dumps(list(chosen))).load()

    def _cold(self) -> DataFrame | None:
        """The lake's rows below the frost line whose keys are not in the overlay."""
        table, files = self.at.table, pieces.cold_files(self.at, self.range, self.condition)
        if not files:
            return None
        lakefiles.require_finite(table, list(self.needed.values()), files)
        shown = lake.shown_names(table)
        keys = {name: column for name, column in shown.items() if column.name in table.key}
        rows = self._files(files, {**self.needed, **keys}).where(self._below_the_line(files))
        return self._unmarked(rows, keys).select(*map(_column, self.needed))

    def _files(self, files: list[ColdFile], columns: dict[str, Column]) -> DataFrame:
        if not _opens(self.spark, files[0].path):
            _log.warning("%s", logs.fields(stage="read", table=self.name, warning="Spark has no reader of this store"))
            return self._by_tasks(columns)
        groups = lakefiles.by_names(files)
        own = {column.field_id for column in columns.values() if missing.own(column) is not None}
        if any(own - dict(names).keys() for names in groups):  # rows have values of their own, which DuckDB computes
            return self._by_tasks(columns)
        if not lakefiles.are_told_apart(groups):
            return self._by_tasks(columns)
        lakefiles.compare(self.spark, files, self.kept.checks)
        return reduce(DataFrame.unionAll, [self._group(dict(names), group, columns) for names, group in groups.items()])

    def _by_tasks(self, columns: dict[str, Column]) -> DataFrame:
        """The lake's rows as tasks of ours read them."""
        rows = self._part(Part.COLD, columns)
        assert rows is not None
        return rows

    def _group(self, names: dict[int, str], files: list[ColdFile], columns: dict[str, Column]) -> DataFrame:
        """Files in which the columns have the same names. What they lack has its missing value, or null."""
        present = [column for column in columns.values() if column.field_id in names]
        stored = StructType([StructField(names[column.field_id], types.spark_type(column)) for column in present])
        reader = self.spark.read.schema(stored).options(**_STRICT)
        intact = [file.path for file in files if not file.deletes]
        worn = [file for file in files if file.deletes]
        parts = [reader.parquet(*intact)] if intact else []
        parts += [self._without_deleted(reader.parquet(*(file.path for file in worn)), worn)] if worn else []
        chosen = [self._of_file(names, name, column) for name, column in columns.items()]
        return reduce(DataFrame.unionAll, [rows.select(*chosen) for rows in parts])

    def _of_file(self, names: dict[int, str], name: str, column: Column) -> SparkColumn:
        """The column of a file. Statistics in a file leave NaN out, and Spark, where it is the largest, believes them.

        What was written for tiered tables has none where there is a NaN.
        """
        stored = _stored(names, name, column)
        if not self.at.is_lake_table or column.encoding.lake_type not in ("float", "double"):
            return stored
        nan = F.lit(float("nan")).cast(types.spark_type(column))
        return F.nanvl(stored, nan).alias(name)  # the same value, and nothing that is pushed to the file

    def _without_deleted(self, rows: DataFrame, files: list[ColdFile]) -> DataFrame:
        """Without the rows that delete files name, by file and place."""
        locations = sorted({location for file in files for location in file.deletes})
        places = self.spark.read.schema("file_path string, pos bigint").options(**_STRICT).parquet(*locations)
        gone = places.select(
            F.substring_index("file_path", "/", -1).alias("gone_file"), F.col("pos").alias("gone_place")
        )
        placed = rows.withColumn(lakefiles.FILE, F.col("_metadata.file_name"))
        placed = placed.withColumn(lakefiles.PLACE, F.col("_metadata.row_index"))
        same = [F.col(lakefiles.FILE) == F.col("gone_file"), F.col(lakefiles.PLACE) == F.col("gone_place")]
        return placed.join(gone, same, "left_anti")

    def _below_the_line(self, files: Iterable[ColdFile]) -> SparkColumn:
        """Only where a file may reach beyond the line; else Spark has one condition less."""
        table, line = self.at.table, self.at.line
        below = Range(None, line)
        if line is None or all(below.covers(lake.tier_range(table, file)) for file in files):
            return F.lit(True)  # noqa: FBT003
        assert table.tier is not None
        key = next(name for name, column in lake.shown_names(table).items() if column.name == table.tier.name)
        return _column(key) < _tier_literal(table.tier.kind, line)

    def _unmarked(self, rows: DataFrame, keys: dict[str, Column]) -> DataFrame:
        """Without the rows whose keys are in the overlay."""
        marks = self._part(Part.KEYS, keys)
        if marks is None:
            return rows
        marks = marks.toDF(*(_KEY.format(number) for number in range(len(keys))))
        if self.at.marks <= _BROADCAST_MARKS:
            marks = F.broadcast(marks)
        same = [_column(name) == F.col(_KEY.format(number)) for number, name in enumerate(keys)]
        return rows.join(marks, same, "left_anti")


def _known(spark: SparkSession, at: TablePoint, shown: dict[str, Column], where: str | None) -> Where:
    if where is None:
        return Where(frozenset(), EVERYTHING)
    tier = at.table.tier
    key = next((name for name, column in shown.items() if tier and column.name == tier.name), None)
    return conditions.of_where(spark, types.schema(shown), where, key, shown)


def _column(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")


def _stored(names: dict[int, str], name: str, column: Column) -> SparkColumn:
    """A column of a file, or what rows of a file that lacks it have."""
    if column.field_id not in names:
        return _missing(column).cast(types.spark_type(column)).alias(name)
    return _column(names[column.field_id]).alias(name)


def _missing(column: Column) -> SparkColumn:
    """The missing value. Dates and timestamps come as numbers, which Spark's casts would take otherwise."""
    if column.missing is None:
        return F.lit(None)
    known = missing.value(column.missing, column.encoding.lake_type)
    kind = BY_TYPNAME.get(column.encoding.lake_type)
    if kind is not None and isinstance(known, int):
        return _tier_literal(kind, known)
    return F.lit(bytearray(known) if isinstance(known, bytes) else known)


def _tier_literal(kind: TierKind, value: int) -> SparkColumn:
    """A tier value in the type of the tier key, in no session's time zone."""
    match kind:
        case TierKind.TIMESTAMPTZ:
            return F.timestamp_micros(F.lit(value))
        case TierKind.TIMESTAMP:
            days, micros = divmod(value, MICROS_PER_DAY)
            clock = f"{micros // 1_000_000}.{micros % 1_000_000:06}"
            return F.expr(f"timestamp_ntz'1970-01-01' + make_dt_interval({days}, 0, 0, {clock})")
        case TierKind.DATE:
            return F.date_from_unix_date(F.lit(value))
        case _:
            return F.lit(value)


def _opens(spark: SparkSession, path: str) -> bool:
    """Whether Spark's own readers know this store."""
    if paths.local_path(path) is not None:
        return True
    context: Any = spark.sparkContext
    try:
        context._jvm.org.apache.hadoop.fs.Path(path).getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError:
        return False
    return True
