"""What Postgres says about the rows of a shard, to be compared with what is written of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import LiteralString

from psycopg import sql

from frostline.catalog.connect import only_row
from frostline.errors import UsageError
from frostline.model import laketypes
from frostline.model.laketypes import LakeType
from frostline.model.tables import Column, Fingerprint, StoredTable
from frostline.relation import names
from frostline.tiers import shards
from frostline.tiers.proof import fingerprint
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_SURVEY = sql.SQL(
    "select count(*), coalesce(sum({hash}), 0)::text, array[{unholdable}]::bigint[], {twins} "
    "from only {target} where {rows}"
)


@dataclass(frozen=True)
class Survey:
    """What the rows of a shard are."""

    fingerprint: Fingerprint
    has_twin_floats: bool
    """Some floats are equal without having the same bits: an encoder that compares values would lose them."""


@dataclass(frozen=True)
class Marks:
    """What the marks of a shard of the overlay are."""

    live: Fingerprint
    """The images that the lake must have afterwards."""
    keys: frozenset[int]
    """The hash of every marked key."""
    has_twin_floats: bool


def of_rows(table: StoredTable, reader: Reader, shard: Shard) -> Survey:
    """Fingerprint the shard's rows in Postgres; raises UsageError when the lake cannot hold one of the values."""
    unholdable = _tests(table, lambda lake_type: lake_type.unholdable)
    query = _survey_query(table, shard, list(unholdable.values()))
    with shards.session(reader, shard.target) as connection:
        rows, hash_sum, refused, twins = only_row(connection.execute(query))
    for column, count in zip(unholdable, refused, strict=True):
        if count:
            raise UsageError(
                f"{shard.target.name}: column {column.name!r} has {count} values that the lake type "
                f"{column.encoding.lake_type} cannot hold",
                hint="NaN needs a numeric column without precision, and lake timestamps end in January 294247: "
                f"change these values, then: {reader.again}",
            )
    return Survey(Fingerprint(rows, int(hash_sum)), twins)


def of_marks(table: StoredTable, reader: Reader, shard: Shard) -> Marks:
    """Fingerprint the live images and hash the keys of a shard of the overlay."""
    live = of_rows(table, reader, replace(shard, only_live=True))
    return Marks(live.fingerprint, key_hashes(table, reader, shard), live.has_twin_floats)


def key_hashes(table: StoredTable, reader: Reader, shard: Shard) -> frozenset[int]:
    """The hash of every key of the shard."""
    query = sql.SQL("select {} from only {} where {}").format(
        fingerprint.postgres_key_hash(table),
        names.identifier(shard.target.name),
        shards.condition(table.tier, shard),
    )
    with shards.session(reader, shard.target) as connection:
        rows = connection.execute(query).fetchall()
    return frozenset(key for (key,) in rows)


def _survey_query(table: StoredTable, shard: Shard, unholdable: Sequence[sql.Composed]) -> sql.Composed:
    floats = _tests(table, lambda lake_type: lake_type.twins).values()
    twins = [sql.SQL("coalesce(bool_or({}), false)").format(test) for test in floats]
    counts = [sql.SQL("count(*) filter (where {})").format(composed) for composed in unholdable]
    return _SURVEY.format(
        hash=fingerprint.postgres_row_hash(table),
        unholdable=sql.SQL(", ").join(counts),
        twins=sql.SQL(" or ").join(twins) if twins else sql.SQL("false"),
        target=names.identifier(shard.target.name),
        rows=shards.condition(table.tier, shard),
    )


def _tests(table: StoredTable, of: Callable[[LakeType], LiteralString | None]) -> dict[Column, sql.Composed]:
    """The condition that the lake type of each column has of this kind; without the columns that need none."""
    return {
        column: sql.SQL(test).format(sql.Identifier(column.name))
        for column in table.columns
        if (test := of(laketypes.of(column.encoding.lake_type)))
    }
