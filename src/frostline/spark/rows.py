"""What runs inside one task: the rows of a piece, as Arrow batches. Python never touches a value."""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import make_conninfo

from frostline import filemode, sqlfiles
from frostline.catalog.connect import local_settings
from frostline.errors import ConflictError, FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, ducksql, ducktext, objectstore, store
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.model import laketypes
from frostline.model.range import Range
from frostline.model.tables import Column, LakeTable, TierKey
from frostline.model.tiers import TierKind, to_text
from frostline.relation import names
from frostline.spark import filesums, lakefiles
from frostline.spark.pieces import HeapPiece, LakePiece, Part
from frostline.spark.point import Moment, TablePoint, Target, policies_apply

_statement = sqlfiles.statements(__name__, "rows")

_ASK = "from postgres_query('pg', {query})"
_TYPED = "select {columns} from postgres_query('pg', {query})"
_MARKS = "create temp table marks as {query}"
_LAKE = "select {columns} from {rows} as f where {conditions}"
_UNMARKED = "not exists (select 1 from marks as m where {same_key})"
_BATCH_ROWS = 65_536
_MEMORY = "512MB"
_REFUSED = "cannot be held by Spark: column "
_READ_AGAIN = "read the table again"
_GONE = "the point in time of this DataFrame is gone: it was released, or its connection to Postgres was lost"

_POLICIES = re.compile(r"query would be affected by row-level security policy for table (\".*\")")
_LOST = re.compile(r"snapshot \".*\" does not exist|invalid snapshot identifier")


@dataclass(frozen=True)
class Reading:
    """What the tasks of one DataFrame have in common."""

    moment: Moment
    access: Access | None
    at: TablePoint
    part: Part
    columns: Mapping[str, Column]
    """By their names in Spark."""
    checks: Checks | None = None
    """How files are compared; None is what fits their store."""


def batches(reading: Reading, piece: HeapPiece | LakePiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    files = piece.files if isinstance(piece, LakePiece) else ()
    with _explained(), filesums.blamed(files), _opened(reading) as connection:
        # Batches then come while rows are read.
        connection.execute("set preserve_insertion_order = false")
        if isinstance(piece, HeapPiece):
            query = _heap_query(connection, reading, piece)
        else:
            filesums.compare_here(piece.files, reading.checks)
            query = _lake_query(connection, reading, piece)
        yield from connection.execute(query).to_arrow_reader(_BATCH_ROWS)


@contextmanager
def _opened(reading: Reading) -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB that reaches the lake as the driver does."""
    with objectstore.used(reading.access), filemode.applied(filemode.OWNER_ONLY), duck.borrowed(_MEMORY) as connection:
        yield connection


def _heap_query(connection: duckdb.DuckDBPyConnection, reading: Reading, piece: HeapPiece) -> str:
    _join(connection, reading.moment, piece.target)
    tier = reading.at.table.tier
    assert tier is not None  # what has a heap has a tier key
    rows = _postgres_rows(tier, piece, reading.columns.values())
    typed = ", ".join(
        f"frostline_{number}::{laketypes.duck_type(column.encoding.lake_type)} as {ducksql.identifier(name)}"
        for number, (name, column) in enumerate(reading.columns.items(), 1)
    )
    return _TYPED.format(columns=typed, query=ducksql.literal(rows))


def _join(connection: duckdb.DuckDBPyConnection, moment: Moment, target: Target) -> None:
    """Begin a transaction that sees the point, and prove that it does, and that the table is the one that was there."""
    conninfo = make_conninfo(moment.dsn, application_name="frostline spark")
    join = _statement("join").format(
        snapshot=sql.Literal(moment.snapshot), settings=local_settings(), target=names.identifier(target.name)
    )
    duck.begin_in_postgres(connection, conninfo, join.as_string())
    horizon, filenode, has_its_columns = _asked(connection, _check(target))
    if horizon != moment.horizon:
        raise ConflictError(_GONE, hint=_READ_AGAIN)
    if filenode != target.filenode:
        raise ConflictError(f"{target.name} was emptied or rewritten after the point in time", hint=_READ_AGAIN)
    if not has_its_columns or not _asked(connection, _types(target))[0]:
        raise ConflictError(f"the columns of {target.name} have changed since the point in time", hint=_READ_AGAIN)


def _asked(connection: duckdb.DuckDBPyConnection, question: sql.Composed) -> tuple[Any, ...]:
    row = connection.execute(_ASK.format(query=ducksql.literal(question.as_string()))).fetchone()
    assert row is not None
    return row


def _check(target: Target) -> sql.Composed:
    name, is_called = sql.Literal(names.identifier(target.name).as_string()), _statement("is_called")
    schema, relation = sql.Literal(target.name.schema), sql.Literal(target.name.table)
    columns = [
        is_called.format(
            name=name, number=column.number, schema=schema, relation=relation, column=sql.Literal(column.name)
        )
        for column in target.columns
    ]
    return _statement("check").format(name=name, is_as_it_was=sql.SQL(" and ").join(columns))


def _types(target: Target) -> sql.Composed:
    name, has_type = names.identifier(target.name), _statement("is_of_type")
    columns = [
        has_type.format(target=name, column=sql.Identifier(column.name), type_id=column.type_id)
        for column in target.columns
    ]
    return _statement("types").format(is_as_it_was=sql.SQL(" and ").join(columns))


def _postgres_rows(tier: TierKey, piece: HeapPiece, columns: Iterable[Column]) -> str:
    statement = _statement("rows").format(
        columns=sql.SQL(", ").join(_sent(number, column) for number, column in enumerate(columns, 1)),
        target=names.identifier(piece.target.name),
        condition=sql.SQL(" and ").join(_conditions(tier, piece)),
    )
    return statement.as_string()


def _sent(number: int, column: Column) -> sql.Composed:
    """The column as Postgres sends it, under a name that no two share."""
    value = sql.Identifier(column.name)
    refused = laketypes.of(column.encoding.lake_type).refused_by_spark
    plain = "{0}::text" if column.encoding.as_text else "{0}"
    # The cast fails, and its error names the column. It depends on the row, or Postgres would do it while planning.
    # It is to the column's very type: of any other, DuckDB would be told numeric without precision, and read a double.
    form = sql.SQL("case when " + refused + " then ({1} || {0}::text)::{2} else {0} end" if refused else plain)
    message = sql.Literal(f"{_REFUSED}{column.name!r} is ")
    own_type = names.trusted(column.pg_type.formatted)
    return sql.SQL("{} as {}").format(form.format(value, message, own_type), sql.Identifier(f"frostline_{number}"))


def _conditions(tier: TierKey, piece: HeapPiece) -> Iterator[sql.Composable]:
    key, kind = sql.Identifier(tier.name), tier.kind
    low, high = _ends(kind, piece.range)
    type_name = names.trusted(kind.value)
    if low > kind.lowest:
        yield sql.SQL("{} >= {}::{}").format(key, sql.Literal(to_text(kind, low)), type_name)
    if high < kind.highest:
        yield sql.SQL("{} <= {}::{}").format(key, sql.Literal(to_text(kind, high)), type_name)
    if piece.first_block is not None:
        yield sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({piece.first_block},0)"))
    if piece.last_block is not None:
        yield sql.SQL("ctid < {}::tid").format(sql.Literal(f"({piece.last_block + 1},0)"))
    yield sql.SQL("frostline_live") if piece.only_live else sql.SQL("true")


def _lake_query(connection: duckdb.DuckDBPyConnection, reading: Reading, piece: LakePiece) -> str:
    table = reading.at.table
    shown = lakefiles.shown_names(table)
    keys = {name: column for name, column in shown.items() if column.name in table.key}
    tier = {name: column for name, column in shown.items() if table.tier and column.name == table.tier.name}
    files = [ducksql.literal(file.path) for file in piece.files]
    conditions = [one for name in tier for one in _within(table, name, piece)]
    if piece.marked:
        _load_marks(connection, reading, piece.range, keys)
        same_key = " and ".join(f"m.{_quoted(name)} = f.{_quoted(name)}" for name in keys)
        conditions.append(_UNMARKED.format(same_key=same_key))
    else:
        connection.execute("begin")
    return _LAKE.format(
        columns=", ".join(f"f.{_quoted(name)}" for name in reading.columns),
        rows=ducksql.read_parquet(files, {**reading.columns, **keys, **tier}.items()),
        conditions=" and ".join(conditions) or "true",
    )


def _quoted(name: str) -> str:
    return ducksql.identifier(name)


def _within(table: LakeTable, name: str, piece: LakePiece) -> Iterator[str]:
    """That the tier key of this name lies in the range, where a file reaches beyond it."""
    assert table.tier is not None
    kind = table.tier.kind
    low, high = _ends(kind, piece.range)
    ranges = [_ends(kind, lakefiles.tier_range(table, file)) for file in piece.files]
    if any(lower < low for lower, _ in ranges):
        yield f"f.{_quoted(name)} >= {ducktext.tier_literal(kind, low)}"
    if any(upper > high for _, upper in ranges):
        yield f"f.{_quoted(name)} <= {ducktext.tier_literal(kind, high)}"


def _ends(kind: TierKind, found: Range) -> tuple[int, int]:
    """The smallest and the largest value of a range, as literals of the type can be: one further may be none."""
    last = kind.highest if found.upper is None else found.upper - 1
    return kind.lowest if found.lower is None else found.lower, last


def _load_marks(
    connection: duckdb.DuckDBPyConnection, reading: Reading, wanted: Range, keys: Mapping[str, Column]
) -> None:
    """The keys in the overlay that the files may hold, in a table of this connection."""
    overlay = reading.at.overlay
    assert overlay is not None
    marks = replace(reading, part=Part.KEYS, columns=keys)
    query = _heap_query(connection, marks, HeapPiece(overlay, wanted, None, None))
    connection.execute(_MARKS.format(query=query))


@contextmanager
def _explained() -> Generator[None]:
    """Errors that say what to do. DuckDB's own may show the connection string, and do not go on."""
    try:
        yield
    except duckdb.Error as error:
        raise _spoken(_failure(error)) from None
    except FrostlineError as error:
        raise _spoken(error) from None


def _spoken(error: FrostlineError) -> FrostlineError:
    """Spark shows the text of an error only, so the hint goes into it."""
    return type(error)(f"{error.message}; {error.hint}" if error.hint else error.message)


def _failure(error: duckdb.Error) -> FrostlineError:
    message = str(error)
    of_postgres = "ERROR:" in message or "Unable to connect" in message
    return _of_postgres(message) if of_postgres or not isinstance(error, duckdb.IOException) else _of_the_store(error)


def _of_the_store(error: duckdb.IOException) -> FrostlineError:
    try:
        with store.reachable("read the lake"):
            raise error
    except UnavailableError as explained:
        return explained


def _of_postgres(message: str) -> FrostlineError:
    reason = duck.postgres_reason(message)
    if _LOST.match(reason):
        return ConflictError(_GONE, hint=_READ_AGAIN)
    if policies := _POLICIES.search(reason):
        return policies_apply(policies[1])
    if _REFUSED in reason:
        return UsageError(_REFUSED + reason.partition(_REFUSED)[2].rstrip('"'), hint="leave it out: columns=[...]")
    if "Conversion Error" in message:  # which shows the value
        reason = "a value is not of its column's type"
    return UnavailableError(f"the rows cannot be read: {reason}", hint="frostline status")
