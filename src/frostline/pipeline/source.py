"""The Postgres side of a task: which rows a shard has, how they are read, and what Postgres says about them.

Everything is read under the snapshot that the driver has exported: by psycopg what Postgres can say itself, through
DuckDB the rows, which Python never touches.
"""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, LiteralString

import duckdb
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from frostline.catalog.connect import Dsn, first_line, local_settings, only_row
from frostline.errors import ConflictError, FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, ducksql, schema, store
from frostline.model import laketypes
from frostline.model.laketypes import LakeType
from frostline.model.names import Name
from frostline.model.tables import Column, Fingerprint, LakeTable
from frostline.model.tiers import to_text
from frostline.tiers.proof import fingerprint

_SURVEY = sql.SQL(
    "select count(*), coalesce(sum({hash}), 0)::text, array[{unholdable}]::bigint[], {twins} "
    "from only {partition} where {rows}"
)
_NAME = "select * from postgres_query('pg', {query})"
_MARKS = "create temp table marks as select {columns}, frostline_live from postgres_query('pg', {query})"
_COLUMN = "frostline_{number}::{type} as {name}"
_NO_TABLE = re.compile(r'relation ".*" does not exist')


@dataclass(frozen=True)
class Shard:
    """A part of a heap partition that one task exports into one file."""

    table: LakeTable
    dsn: Dsn = field(repr=False)
    snapshot: str
    """What `pg_export_snapshot()` gave to the driver, whose transaction is still open."""
    partition: Name
    lower: int | None
    """Smallest tier value, on the axis; finite. None for "all there are"."""
    upper: int | None
    """The tier value, on the axis, that all rows lie below; finite. The slice is within one lake partition, if the lake
    has any. None for "all there are"."""
    location: str
    """The table's location in the lake."""
    job_id: int
    first_block: int | None = None
    """None for "from the beginning"."""
    last_block: int | None = None
    """Inclusive. None for "to the end", which the last shard of a partition must say: the heap may have grown."""
    memory_limit: str = "512MB"
    in_order: bool = True
    """Sort the rows by the tier key."""
    only_live: bool = False
    """The partition is an overlay, and its rows that are gone are left out."""
    command: str = "frostline archive"
    """What to run again when it fails."""
    lock_timeout_s: int = 0
    """How long to wait for the right to read, which somebody else may wait to take away; 0 is without end."""
    oid: int | None = None
    """What the partition's name must mean. A lock on a table does not keep its schema from being renamed, and another
    schema from getting the name."""


@dataclass(frozen=True)
class Survey:
    """What Postgres says about the rows of a shard."""

    fingerprint: Fingerprint
    has_twin_floats: bool
    """Some floats are equal without having the same bits: an encoder that compares values would lose them."""


def survey(shard: Shard) -> Survey:
    """Fingerprint the shard's rows in Postgres; raises UsageError when the lake cannot hold one of the values."""
    unholdable = _tests(shard.table, lambda lake_type: lake_type.unholdable)
    rows, hash_sum, refused, twins = _ask(shard, _survey_query(shard, list(unholdable.values())))
    for column, count in zip(unholdable, refused, strict=True):
        if count:
            raise _refusal(shard, column, count)
    return Survey(Fingerprint(rows, int(hash_sum)), twins)


@dataclass(frozen=True)
class Marks:
    """What Postgres says about the marks of a slice of the overlay."""

    live: Fingerprint
    """The images that the lake must have afterwards."""
    keys: frozenset[int]
    """The hash of every marked key."""
    has_twin_floats: bool


def survey_marks(shard: Shard) -> Marks:
    """Fingerprint the live images and hash the keys of an overlay's slice."""
    live = replace(shard, only_live=True)
    found = survey(live)
    return Marks(found.fingerprint, key_hashes(shard), found.has_twin_floats)


def key_hashes(shard: Shard) -> frozenset[int]:
    """The hash of every key of the shard."""
    with _reading(shard) as connection:
        rows = connection.execute(_key_hashes(shard)).fetchall()
    return frozenset(key for (key,) in rows)


def _key_hashes(shard: Shard) -> sql.Composed:
    return sql.SQL("select {} from only {} where {}").format(
        fingerprint.postgres_key_hash(shard.table), _partition(shard), _condition(shard)
    )


def marks_query(shard: Shard) -> sql.Composed:
    """Read the marks of an overlay's slice: the columns as `rows_query` names them, and whether the row is live."""
    return sql.SQL("select {}, frostline_live from only {} where {}").format(
        _columns(shard.table), _partition(shard), _condition(shard)
    )


def _partition(shard: Shard) -> sql.Identifier:
    return sql.Identifier(shard.partition.schema, shard.partition.table)


def _survey_query(shard: Shard, unholdable: Sequence[sql.Composed]) -> sql.Composed:
    floats = _tests(shard.table, lambda lake_type: lake_type.twins).values()
    twins = [sql.SQL("coalesce(bool_or({}), false)").format(test) for test in floats]
    counts = [sql.SQL("count(*) filter (where {})").format(composed) for composed in unholdable]
    return _SURVEY.format(
        hash=fingerprint.postgres_row_hash(shard.table),
        unholdable=sql.SQL(", ").join(counts),
        twins=sql.SQL(" or ").join(twins) if twins else sql.SQL("false"),
        partition=_partition(shard),
        rows=_condition(shard),
    )


def _tests(table: LakeTable, of: Callable[[LakeType], LiteralString | None]) -> dict[Column, sql.Composed]:
    """The condition that the lake type of each column has of this kind; without the columns that need none."""
    return {
        column: sql.SQL(test).format(sql.Identifier(column.name))
        for column in table.columns
        if (test := of(laketypes.of(column.encoding.lake_type)))
    }


@contextmanager
def _reading(shard: Shard) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection that reads the driver's snapshot."""
    try:
        with psycopg.connect(shard.dsn, autocommit=True, application_name="frostline export") as connection:
            connection.execute("begin isolation level repeatable read read only")
            connection.execute(join_snapshot(shard))
            _check_name(connection, shard)
            yield connection
            _check_name(connection, shard)
    except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue) as error:
        raise snapshot_gone(shard) from error
    except psycopg.errors.UndefinedTable as error:
        raise renamed(shard) from error
    except psycopg.Error as error:
        hint = "frostline status; then run the command again"
        raise UnavailableError(f"cannot read {shard.partition}: {first_line(error)}", hint=hint) from error


def _check_name(connection: psycopg.Connection[tuple[Any, ...]], shard: Shard) -> None:
    if shard.oid is not None:
        row = connection.execute(name_query(shard)).fetchone()
        check_name(shard, row)


def name_query(shard: Shard) -> sql.Composed:
    """What the partition's name means now, whatever the snapshot is: names are never read under it."""
    return sql.SQL("select to_regclass({})::oid::bigint").format(sql.Literal(_partition(shard).as_string()))


def check_name(shard: Shard, found: tuple[Any, ...] | None) -> None:
    """Look at the answer to `name_query`: ConflictError when the name means another table, or none.

    Before the rows are read, so that nobody is told of columns that another table lacks. And after that, in the same
    transaction: what the query saw is known then. In between `_condition` keeps another table's rows out.
    """
    if found is None or found[0] != shard.oid:
        raise ConflictError(
            f"{shard.partition} is not the table it was when the run began: its schema was renamed",
            hint="nothing was published; run the command again",
        )


def _ask(shard: Shard, query: sql.Composed) -> tuple[int, str, list[int], bool]:
    with _reading(shard) as connection:
        rows, hash_sum, refused, twins = only_row(connection.execute(query))
    return rows, hash_sum, refused, twins


def _refusal(shard: Shard, column: Column, count: int) -> UsageError:
    return UsageError(
        f"{shard.partition}: column {column.name!r} has {count} values that the lake type "
        f"{column.encoding.lake_type} cannot hold",
        hint="NaN needs a numeric column without precision, and lake timestamps end in January 294247: "
        f"change these values, then: {shard.command}",
    )


def renamed(shard: Shard) -> ConflictError:
    """There is no table of the partition's name any more."""
    message = f"{shard.partition} was dropped or renamed while it was exported; nothing was published"
    return ConflictError(message, hint=shard.command)


def snapshot_gone(shard: Shard) -> ConflictError:
    """The driver's transaction has ended, and the snapshot with it."""
    message = f"export of {shard.partition}: snapshot {shard.snapshot} is no longer exported"
    return ConflictError(message, hint=shard.command)


def join_snapshot(shard: Shard) -> sql.Composed:
    """The statements that come first in every transaction that reads the shard.

    Rows that row security would hide from us are an error, instead of missing.
    """
    form = sql.SQL("set transaction snapshot {}; {}; set local row_security = off; set local lock_timeout = {}")
    return form.format(sql.Literal(shard.snapshot), local_settings(), sql.Literal(f"{shard.lock_timeout_s}s"))


def rows_query(shard: Shard) -> sql.Composed:
    """Read the shard's rows; the columns are named frostline_1, ... so that no two differ by case only."""
    return sql.SQL("select {} from only {} where {}").format(
        _columns(shard.table), _partition(shard), _condition(shard)
    )


def _columns(table: LakeTable) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{}::text as {}" if column.encoding.as_text else "{} as {}").format(
            sql.Identifier(column.name), sql.Identifier(f"frostline_{number}")
        )
        for number, column in enumerate(table.columns, 1)
    )


def _condition(shard: Shard) -> sql.Composable:
    """Which rows of the partition belong to the shard."""
    parts: list[sql.Composable] = []
    if shard.lower is not None:
        parts.append(_tier_compared(shard, "{} >= {}::{}", shard.lower))
    if shard.upper is not None:
        parts.append(_tier_compared(shard, "{} < {}::{}", shard.upper))
    if shard.only_live:
        parts.append(sql.SQL("{}").format(sql.Identifier("frostline_live")))
    if shard.oid is not None:
        parts.append(_comparison("{} = {}::{}", sql.Identifier("tableoid"), str(shard.oid), "oid"))
    ctid = sql.Identifier("ctid")
    if shard.first_block is not None:
        parts.append(_comparison("{} >= {}::{}", ctid, f"({shard.first_block},0)", "tid"))
    if shard.last_block is not None:
        parts.append(_comparison("{} < {}::{}", ctid, f"({shard.last_block + 1},0)", "tid"))
    return sql.SQL(" and ").join(parts) if parts else sql.SQL("true")


def _tier_compared(shard: Shard, form: LiteralString, value: int) -> sql.Composed:
    tier = shard.table.tier
    assert tier is not None  # only of a table with one is a part asked for
    return _comparison(form, sql.Identifier(tier.name), to_text(tier.kind, value), tier.kind.value)


def _comparison(form: LiteralString, left: sql.Identifier, value: str, type_name: LiteralString) -> sql.Composed:
    return sql.SQL(form).format(left, sql.Literal(value), sql.SQL(type_name))


def attach(connection: duckdb.DuckDBPyConnection, shard: Shard) -> None:
    """Attach Postgres as `pg` and begin a transaction there that reads the driver's snapshot."""
    # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
    connection.execute("set preserve_insertion_order = false")
    conninfo = make_conninfo(shard.dsn, application_name="frostline export")
    duck.begin_in_postgres(connection, conninfo, join_snapshot(shard).as_string())
    check_name_in_duck(connection, shard)


def check_name_in_duck(connection: duckdb.DuckDBPyConnection, shard: Shard) -> None:
    """ConflictError when the partition's name means another table by now, to those who have joined."""
    if shard.oid is not None:
        query = ducksql.literal(name_query(shard).as_string())
        check_name(shard, connection.execute(_NAME.format(query=query)).fetchone())


@contextmanager
def marks_loaded(marks: Shard) -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with an overlay's slice in the table `marks`, read under the job's snapshot."""
    with duck.borrowed(marks.memory_limit) as connection:
        try:
            attach(connection, marks)
            columns = typed_columns(marks.table)
            query = ducksql.literal(marks_query(marks).as_string())
            connection.execute(_MARKS.format(columns=columns, query=query))
            check_name_in_duck(connection, marks)
        except duckdb.Error as error:
            raise duck_failure(marks, error) from None
        yield connection


def duck_failure(shard: Shard, error: duckdb.Error) -> FrostlineError:
    """What a DuckDB error means, without the connection string that its message may show."""
    message, trouble = str(error), store.trouble(error)
    if trouble:
        return UnavailableError(f"export of {shard.partition} failed: {trouble.reason}", hint=trouble.hint)
    if "snapshot" in message and ("does not exist" in message or "invalid" in message):
        return snapshot_gone(shard)
    if _NO_TABLE.search(message):
        return renamed(shard)
    reason = duck.postgres_reason(message)
    return UnavailableError(f"export of {shard.partition} failed: {reason}", hint=shard.command)


def typed_columns(table: LakeTable) -> str:
    """The columns frostline_1, frostline_2, ... that Postgres sends, under their names and types in the lake."""
    numbered = enumerate(zip(table.columns, schema.parquet_names(table), strict=True), 1)
    return ", ".join(_typed_column(number, column, name) for number, (column, name) in numbered)


def _typed_column(number: int, column: Column, name: str) -> str:
    lake_type = laketypes.duck_type(column.encoding.lake_type)
    return _COLUMN.format(number=number, type=lake_type, name=ducksql.identifier(name))
