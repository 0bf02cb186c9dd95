"""What runs inside one task: the rows of a piece, without what Spark has no value for, and errors that it shows."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa
from psycopg import sql

from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, store
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.model import laketypes
from frostline.model.tables import Column
from frostline.relation import names
from frostline.tiers import rows, shards
from frostline.tiers.moment import Moment
from frostline.tiers.pieces import LakePiece, Part
from frostline.tiers.point import TablePoint
from frostline.tiers.rows import Reading
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_REFUSED = "cannot be held by Spark: column "
_GONE = "the point in time of this DataFrame is gone: it was released, or its connection to Postgres was lost"


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
