"""The Postgres side of an export: which rows a shard has, how they are read, and what Postgres says about them."""

from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
from psycopg import sql

from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.model.names import Name
from frostline.model.tables import Column, Fingerprint, Table
from frostline.model.tiers import to_text
from frostline.pipeline import fingerprint

_SETTINGS = sql.SQL(
    "set local TimeZone = 'UTC'; set local DateStyle = 'ISO'; set local IntervalStyle = 'postgres'; "
    "set local extra_float_digits = 1; set local bytea_output = 'hex'; set local search_path = pg_catalog"
)
"""Under these every value has one text, whatever the role's or the database's own settings are."""

_SURVEY = sql.SQL(
    "select count(*), coalesce(sum({hash}), 0)::text, array[{unholdable}]::bigint[], {twins} "
    "from {partition} where {rows}"
)

_UNHOLDABLE: dict[str, LiteralString] = {
    "decimal": "{0} = 'NaN'",
    # Postgres' timestamps go on for 29 years after the last one that fits 64 bits of microseconds since 1970.
    "timestamp": "{0} >= '294247-01-10 04:00:54.775807' and {0} < 'infinity'",
    "timestamptz": "{0} >= '294247-01-10 04:00:54.775807+00' and {0} < 'infinity'",
}
"""By lake type: which values it cannot hold."""

_TWINS: dict[str, LiteralString] = {
    "float": r"({0} = 0 and float4send({0}) <> '\x00000000') or ({0} = 'NaN' and float4send({0}) <> '\x7fc00000')",
    "double": r"({0} = 0 and float8send({0}) <> '\x0000000000000000') "
    r"or ({0} = 'NaN' and float8send({0}) <> '\x7ff8000000000000')",
}
"""By lake type: which values are equal to a more common one of other bits (negative zero, unusual NaN)."""


@dataclass(frozen=True)
class Shard:
    """A part of a heap partition that one task exports into one file."""

    table: Table
    dsn: str = field(repr=False)
    snapshot: str
    """What `pg_export_snapshot()` gave to the driver, whose transaction is still open."""
    partition: Name
    lower: int
    """Smallest tier value, on the axis; finite."""
    upper: int
    """The tier value, on the axis, that all rows lie below; finite. The slice is within one lake partition."""
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


@dataclass(frozen=True)
class Survey:
    """What Postgres says about the rows of a shard."""

    fingerprint: Fingerprint
    has_twin_floats: bool
    """Some floats are equal without having the same bits: an encoder that compares values would lose them."""


def survey(shard: Shard) -> Survey:
    """Fingerprint the shard's rows in Postgres; raises UsageError when the lake cannot hold one of the values."""
    checked = [column for column in shard.table.columns if _family(column) in _UNHOLDABLE]
    rows, hash_sum, refused, twins = _ask(shard, _survey_query(shard, checked))
    for column, count in zip(checked, refused, strict=True):
        if count:
            raise _refusal(shard, column, count)
    return Survey(Fingerprint(rows, int(hash_sum)), twins)


def _survey_query(shard: Shard, checked: list[Column]) -> sql.Composed:
    floats = [column for column in shard.table.columns if _family(column) in _TWINS]
    twins = [sql.SQL("coalesce(bool_or({}), false)").format(_test(_TWINS, column)) for column in floats]
    counts = [sql.SQL("count(*) filter (where {})").format(_test(_UNHOLDABLE, column)) for column in checked]
    return _SURVEY.format(
        hash=fingerprint.postgres_row_hash(shard.table),
        unholdable=sql.SQL(", ").join(counts),
        twins=sql.SQL(" or ").join(twins) if twins else sql.SQL("false"),
        partition=sql.Identifier(shard.partition.schema, shard.partition.table),
        rows=_condition(shard),
    )


def _test(tests: dict[str, LiteralString], column: Column) -> sql.Composed:
    return sql.SQL(tests[_family(column)]).format(sql.Identifier(column.name))


def _family(column: Column) -> str:
    return column.carriage.lake_type.partition("(")[0]


def _ask(shard: Shard, query: sql.Composed) -> tuple[int, str, list[int], bool]:
    try:
        with psycopg.connect(shard.dsn, autocommit=True, application_name="frostline export") as connection:
            connection.execute("begin isolation level repeatable read read only")
            connection.execute(join_snapshot(shard))
            row = connection.execute(query).fetchone()
    except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue) as error:
        raise snapshot_gone(shard) from error
    except psycopg.Error as error:
        raise UnavailableError(f"export of {shard.partition}: {error}") from error
    assert row is not None
    return row


def _refusal(shard: Shard, column: Column, count: int) -> UsageError:
    return UsageError(
        f"{shard.partition}: column {column.name!r} has {count} values that the lake type "
        f"{column.carriage.lake_type} cannot hold",
        hint="NaN needs a numeric column without precision, and lake timestamps end in January 294247: "
        "change these values, then archive again",
    )


def snapshot_gone(shard: Shard) -> ConflictError:
    """The driver's transaction has ended, and the snapshot with it."""
    message = f"export of {shard.partition}: snapshot {shard.snapshot} is no longer exported"
    return ConflictError(message, hint="frostline archive")


def join_snapshot(shard: Shard) -> sql.Composed:
    """The statements that come first in every transaction that reads the shard."""
    return sql.SQL("set transaction snapshot {}; {}").format(sql.Literal(shard.snapshot), _SETTINGS)


def rows_query(shard: Shard) -> sql.Composed:
    """Read the shard's rows; the columns are named c1, c2, ... so that no two differ by case only."""
    columns = [
        sql.SQL("{}::text as {}" if column.carriage.as_text else "{} as {}").format(
            sql.Identifier(column.name), sql.Identifier(f"c{number}")
        )
        for number, column in enumerate(shard.table.columns, 1)
    ]
    partition = sql.Identifier(shard.partition.schema, shard.partition.table)
    return sql.SQL("select {} from {} where {}").format(sql.SQL(", ").join(columns), partition, _condition(shard))


def _condition(shard: Shard) -> sql.Composable:
    """Which rows of the partition belong to the shard."""
    kind = shard.table.tier_kind
    key = sql.Identifier(shard.table.tier_key)
    parts = [
        _comparison("{} >= {}::{}", key, to_text(kind, shard.lower), kind.value),
        _comparison("{} < {}::{}", key, to_text(kind, shard.upper), kind.value),
    ]
    ctid = sql.Identifier("ctid")
    if shard.first_block is not None:
        parts.append(_comparison("{} >= {}::{}", ctid, f"({shard.first_block},0)", "tid"))
    if shard.last_block is not None:
        parts.append(_comparison("{} < {}::{}", ctid, f"({shard.last_block + 1},0)", "tid"))
    return sql.SQL(" and ").join(parts)


def _comparison(form: LiteralString, left: sql.Identifier, value: str, type_name: LiteralString) -> sql.Composed:
    return sql.SQL(form).format(left, sql.Literal(value), sql.SQL(type_name))
