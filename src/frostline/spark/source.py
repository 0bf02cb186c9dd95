"""The Python data source `frostline`: `spark.read.format("frostline")`, and Spark SQL's `using frostline`.

Its tasks read the rows of a piece, without what Spark has no value for, and raise errors that Spark shows.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from weakref import WeakSet

import duckdb
import pyarrow as pa
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from frostline.catalog.connect import Dsn
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, objectstore, store
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.model import laketypes
from frostline.model.range import EVERYTHING
from frostline.model.tables import Column
from frostline.pipeline import tasks
from frostline.relation import names
from frostline.spark import conditions, lakeconditions, lakefiles, types
from frostline.spark.keeper import KEEPER, Address, Request, ask, tell_released
from frostline.tiers import files, pieces, rows, shards
from frostline.tiers.moment import Moment
from frostline.tiers.pieces import LakePiece, Part
from frostline.tiers.point import AsOf, TablePoint
from frostline.tiers.rows import Reading
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

NAME = "frostline"
PARTS = "frostline_parts"
"""The same source, for what `frostline.spark.read` puts together."""
_OPTIONS = ("dsn", "home", "table", "as_of", "columns", "point", "part")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_REFUSED = "cannot be held by Spark: column "
_GONE = "the point in time of this DataFrame is gone: it was released, or its connection to Postgres was lost"
_sessions: WeakSet[SparkSession] = WeakSet()
"""Those that know the parts."""


def register(spark: SparkSession, *, dsn: str | None = None, home: str | None = None) -> None:
    """Make the format `frostline` known to the session; `dsn` or `home` are for those who then name neither."""
    given = (("dsn", None if dsn is None else Dsn(dsn)), ("home", home))
    _register(spark, NAME, {key: value for key, value in given if value is not None})


def register_parts(spark: SparkSession) -> None:
    """Make the parts known to the session, once."""
    if spark not in _sessions:
        _register(spark, PARTS, {})
        _sessions.add(spark)
    spark.conf.set(_PUSHDOWN, "true")


def _register(spark: SparkSession, format_name: str, defaults: Mapping[str, str]) -> None:
    class Registered(FrostlineSource):
        """Made here, so that it is pickled with what it knows."""

        called = format_name
        keeper = KEEPER.address()
        given = defaults

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(Registered)


class FrostlineSource(DataSource):
    """A table at a point. Spark makes one for each `load()`, and every action of the DataFrame uses that one again."""

    called: ClassVar[str]
    keeper: ClassVar[Address]
    given: ClassVar[Mapping[str, str]]

    def __init__(self, options: dict[str, str]) -> None:
        chosen = {**self.given, **options}
        unknown = [key for key in chosen if key not in _OPTIONS]
        if unknown:
            raise UsageError(f"unknown option {unknown[0]!r}", hint=f"there are {', '.join(_OPTIONS[:5])}")
        if "table" not in chosen:
            raise UsageError("option 'table' is not given", hint=".option('table', 'public.events')")
        request, part, wanted = _request(chosen), _part(chosen.get("part")), _listed(chosen.get("columns"))
        kept = ask(self.keeper, request)
        self._point_id, self._is_own = kept.id, request.point_id is None
        with self._released_on_failure():
            at = kept.point.tables[chosen["table"]]
            columns = types.chosen(at.table.name, files.shown_names(at.table), wanted)
            self._reading = reading(kept.point.moment, kept.access, at, part, columns, kept.checks)
        tasks.ease_the_next_task()

    @contextmanager
    def _released_on_failure(self) -> Generator[None]:
        """Nobody gets a DataFrame then, so nobody could release its point."""
        try:
            yield
        except BaseException:
            if self._is_own:
                tell_released(self.keeper, self._point_id)
            raise

    @classmethod
    def name(cls) -> str:
        """What comes after `using`."""
        return cls.called

    def schema(self) -> StructType:
        """All columns, or those of the option."""
        return types.schema(self._reading.columns, self._point_id)

    def reader(self, schema: StructType) -> "FrostlineReader":
        """The reader of one plan."""
        if [(field.name, field.dataType) for field in schema] != [
            (field.name, field.dataType) for field in self.schema()
        ]:
            hint = "choose columns by option 'columns', and cast them afterwards"
            with self._released_on_failure():
                raise UsageError("a schema of your own cannot be given", hint=hint)
        return FrostlineReader(self._reading)


@dataclass(frozen=True)
class Task(InputPartition):
    """What one task reads."""

    piece: Shard | LakePiece


class FrostlineReader(DataSourceReader):
    """Plans in a process next to the driver, and reads in the tasks."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._range = EVERYTHING
        self._condition = lakeconditions.EVERY_ROW

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Narrow the tier values by the filters; Spark applies all of them again."""
        tier = self._reading.at.table.tier
        shown = [name for name, column in self._reading.columns.items() if tier and column.name == tier.name]
        if shown:
            self._range = conditions.of_filters(filters, shown[0])
        if self._reading.at.is_lake_table:
            self._condition = lakeconditions.of_filters(filters, self._reading.columns)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        with objectstore.used(self._reading.access):
            planned = pieces.cut(self._reading.at, self._reading.part, self._range, self._condition)
        cold = [file for piece in planned if isinstance(piece, LakePiece) for file in piece.files]
        lakefiles.require_finite(self._reading.at.table, list(self._reading.columns.values()), cold)
        tasks.ease_the_next_task()
        return [Task(piece) for piece in planned]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one; Spark asks for None when there is nothing to read."""
        if isinstance(partition, Task):
            yield from batches(self._reading, partition.piece)
            tasks.ease_the_next_task()


def _request(options: Mapping[str, str]) -> Request:
    if "point" in options:
        return Request(point_id=options["point"])
    return Request(options.get("dsn"), options.get("home"), (options["table"],), _as_of(options.get("as_of")))


def _part(text: str | None) -> Part:
    try:
        return Part.ALL if text is None else Part(text)
    except ValueError:
        raise UsageError(f"unknown part {text!r}", hint=f"there are {', '.join(Part)}") from None


def _as_of(text: str | None) -> AsOf:
    """An option is a text: a number is a lake snapshot, what reads as a time is one, anything else is a name."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _listed(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        names: Any = json.loads(text) if text.startswith("[") else text.split(",")
    except ValueError:
        raise UsageError(f"option 'columns' is no list: {text!r}", hint='say id,ts or ["id", "ts"]') from None
    return [str(name).strip() for name in names]


def reading(
    moment: Moment,
    access: Access | None,
    at: TablePoint,
    part: Part,
    columns: Mapping[str, Column],
    checks: Checks | None = None,
) -> Reading:
    """What the tasks of one DataFrame have in common; the columns by their names in Spark."""
    reader = Reader(moment, "spark", "read the table again", _GONE, lock_timeout_s=None)
    return Reading(reader, access, at, part, columns, checks, sent)


def sent(column: Column) -> sql.Composable:
    """The column as Postgres sends it; it refuses what Spark has no value for."""
    refused = laketypes.of(column.encoding.lake_type).refused_by_spark
    if not refused:
        return shards.plain(column)
    # The cast fails, and its error names the column. It depends on the row, or Postgres would do it while planning.
    # It is to the column's very type: of any other, DuckDB would be told numeric without precision, and read a double.
    form = sql.SQL("case when " + refused + " then ({1} || {0}::text)::{2} else {0} end")
    message = sql.Literal(f"{_REFUSED}{column.name!r} is ")
    return form.format(sql.Identifier(column.name), message, names.trusted(column.pg_type.formatted))


def batches(reading: Reading, piece: Shard | LakePiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    with _explained(reading, piece):
        yield from rows.batches(reading, piece)


@contextmanager
def _explained(reading: Reading, piece: Shard | LakePiece) -> Generator[None]:
    """Errors that say what to do. DuckDB's own may show the connection string, and do not go on."""
    try:
        yield
    except duckdb.Error as error:
        raise _spoken(_failure(error, reading, piece)) from None
    except FrostlineError as error:
        raise _spoken(error) from None


def _spoken(error: FrostlineError) -> FrostlineError:
    """Spark shows the text of an error only, so the hint goes into it."""
    return type(error)(f"{error.message}; {error.hint}" if error.hint else error.message)


def _failure(error: duckdb.Error, reading: Reading, piece: Shard | LakePiece) -> FrostlineError:
    message = str(error)
    if isinstance(error, duckdb.IOException) and "ERROR:" not in message and "Unable to connect" not in message:
        return _of_the_store(error)
    reason = duck.postgres_reason(message)  # the rest of the message may show the statement
    if _REFUSED in reason:
        return UsageError(_REFUSED + reason.partition(_REFUSED)[2].rstrip('"'), hint="leave it out: columns=[...]")
    read = piece.target if isinstance(piece, Shard) else reading.at.overlay
    return shards.failure(error, reading.reader, read, "reading the rows")


def _of_the_store(error: duckdb.IOException) -> FrostlineError:
    try:
        with store.reachable("read the lake"):
            raise error
    except UnavailableError as explained:
        return explained
