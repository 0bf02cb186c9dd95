"""Fingerprints of rows: the same number from Postgres and from Parquet files.

A row's hash is what `hash_record_extended` gives for its values with seed 0; a fingerprint is the number of rows and
the exact sum of their hashes. Postgres computes it where the rows are. Here it is computed again from the files, by
other code and another Parquet reader than the ones that wrote them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
from psycopg import sql

from frostline.lake import checksums, duck, ducktext, parquet
from frostline.lake.datafiles import Seal
from frostline.lake.parquet import Values
from frostline.model import laketypes, missing
from frostline.model.missing import OwnValue
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import NO_ROWS, Column, Fingerprint, StoredTable, TierKey
from frostline.tiers.proof import columnhash
from frostline.tiers.proof.lookup3 import U64

Hashes: TypeAlias = npt.NDArray[np.int64]
Key: TypeAlias = tuple[str, ...]
"""The values of a primary key, for people."""

_arrow, _compute = cast("Any", pa), cast("Any", pyarrow.compute)
_MEMORY = "512MB"


def postgres_row_hash(table: StoredTable) -> sql.Composable:
    """The expression that gives one row's hash in Postgres, over columns named as in the table."""
    return _postgres_hash(table.columns)


def postgres_key_hash(table: StoredTable) -> sql.Composable:
    """The same over the columns of the primary key only."""
    return _postgres_hash([table.column(name) for name in table.key])


def _postgres_hash(columns: Iterable[Column]) -> sql.Composable:
    values = [
        sql.SQL(laketypes.of(column.encoding.lake_type).hashed).format(sql.Identifier(column.name))
        for column in columns
    ]
    return sql.SQL("hash_record_extended(row({}), 0)").format(sql.SQL(", ").join(values))


def of_parquet(locations: Iterable[str], table: StoredTable) -> Fingerprint:
    """The fingerprint of the rows in these files. Memory is bounded: one batch of one row group at a time."""
    total = NO_ROWS
    for location in locations:
        for batch in parquet.batches(location):
            total += _of(_row_hashes(batch, table.columns))
    return total


def of_remaining(location: str, table: StoredTable, gone: Hashes) -> Fingerprint:
    """The fingerprint of the file's rows but those at these places. Memory is bounded as above."""
    total, start = NO_ROWS, 0
    for batch in parquet.batches(location):
        hashes = _row_hashes(batch, table.columns)
        total += _of(hashes[~np.isin(np.arange(start, start + len(hashes)), gone)])
        start += len(hashes)
    return total


def sealed(location: str, table: StoredTable) -> Seal:
    """What a file that was just written holds, to be compared with what it must hold."""
    checksum = checksums.of(location)
    return Seal(checksum, of_parquet([location], table))


def split(
    location: str, table: StoredTable, keys: frozenset[int], *, within: Range = EVERYTHING
) -> tuple[Fingerprint, Fingerprint]:
    """The fingerprints of the file's rows whose key does not have one of these hashes, and of those whose key has.

    Only rows whose tier value lies in the range `within` are counted.
    """
    others, named = NO_ROWS, NO_ROWS
    wanted = np.array(sorted(keys), np.int64)
    for batch in parquet.batches(location):
        hashes = _row_hashes(batch, table.columns)
        is_named = np.isin(_key_hashes(batch, table), wanted)
        counted = _in_range(batch, table, within)
        others += _of(hashes[~is_named & counted])
        named += _of(hashes[is_named & counted])
    return others, named


def of_keys(location: str, table: StoredTable, keys: frozenset[int]) -> tuple[Fingerprint, Hashes]:
    """The fingerprint of those rows of a file whose key has one of these hashes, and their keys' hashes.

    Cheap where they are few.
    """
    total, named = NO_ROWS, [np.zeros(0, np.int64)]
    wanted = pa.array(np.fromiter(keys, np.int64, len(keys)))
    for batch in parquet.batches(location):
        hashes = _key_hashes(batch, table)
        is_named = _compute.is_in(pa.array(hashes), value_set=wanted)
        named.append(hashes[is_named.to_numpy(zero_copy_only=False)])
        total += _of(
            _row_hashes({field_id: values.filter(is_named) for field_id, values in batch.items()}, table.columns)
        )
    return total, np.concatenate(named)


def placed_keys(keys: Any, table: StoredTable) -> tuple[Hashes, Hashes]:
    """Of an Arrow table with the columns of the primary key in their order: each key's hash, and its tier value."""
    hashes, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in keys.to_batches():
        columns: list[Values] = batch.columns
        ids = [table.column(name).field_id for name in table.key]
        values = dict(zip(ids, columns, strict=True))
        hashes.append(_key_hashes(values, table))
        places.append(columnhash.axis(values[table.column(_tier(table).name).field_id]))
    return np.concatenate(hashes), np.concatenate(places)


def count_keys(location: str, table: StoredTable, keys: frozenset[int]) -> int:
    """How many rows of a file have a key with one of these hashes. Reads the columns of the key only."""
    wanted = np.array(sorted(keys), np.int64)
    of_key = {table.column(name).field_id for name in table.key}
    return sum(
        int(np.isin(_key_hashes(batch, table), wanted).sum()) for batch in parquet.batches(location, only=of_key)
    )


def first_of_keys(location: str, table: StoredTable, wanted: npt.NDArray[np.int64]) -> int | None:
    """One of these hashes that a key of the file has; None when it has none. Reads the columns of the key only."""
    of_key = {table.column(name).field_id for name in table.key}
    for batch in parquet.batches(location, only=of_key):
        hashes = _key_hashes(batch, table)
        matches = hashes[np.isin(hashes, wanted)]
        if len(matches):
            return int(matches[0])
    return None


def key_hashes(location: str, table: StoredTable) -> Iterator[Hashes]:
    """The hashes of all keys of a file, in batches. Reads the columns of the key only."""
    of_key = {table.column(name).field_id for name in table.key}
    for batch in parquet.batches(location, only=of_key):
        yield _key_hashes(batch, table)


def keys_of(location: str, table: StoredTable, wanted: Hashes) -> list[tuple[int, Key]]:
    """The keys of a file that have one of these hashes, each with its hash. Reads the columns of the key only."""
    keys: list[tuple[int, Key]] = []
    of_key = [table.column(name).field_id for name in table.key]
    for batch in parquet.batches(location, only=of_key):
        hashes = _key_hashes(batch, table)
        places = np.flatnonzero(np.isin(hashes, wanted))
        keys += [(int(hashes[at]), tuple(_shown(batch[key][int(at)]) for key in of_key)) for at in places]
    return keys


def _shown(value: Any) -> str:
    """A value of a key for people; one that Python cannot hold as the file has it."""
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        return str(value.value)


def _key_hashes(batch: dict[int, Values], table: StoredTable) -> npt.NDArray[np.int64]:
    return _row_hashes(batch, [table.column(name) for name in table.key]).view(np.int64)


def _in_range(arrays: dict[int, Values], table: StoredTable, within: Range) -> npt.NDArray[np.bool_]:
    values = columnhash.axis(arrays[table.column(_tier(table).name).field_id])
    is_within = np.ones(len(values), np.bool_)
    if within.lower is not None:
        is_within &= values >= within.lower
    if within.upper is not None:
        is_within &= values < within.upper
    return is_within


def _tier(table: StoredTable) -> TierKey:
    assert table.tier is not None  # only of managed tables is it asked where a row lies
    return table.tier


def _of(hashes: U64) -> Fingerprint:
    values = hashes.view(np.int64)
    exact_sum = (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
    return Fingerprint(len(values), exact_sum)


def _row_hashes(arrays: dict[int, Values], columns: Iterable[Column]) -> U64:
    """One hash a row over these columns, as Postgres hashes a record of them."""
    rows = len(next(iter(arrays.values())))
    result: U64 = np.zeros(rows, np.uint64)
    for column in columns:
        result = (result << np.uint64(5)) - result
        if column.field_id in arrays:
            result += columnhash.hashes(arrays[column.field_id], column.encoding.lake_type)
        elif (own := missing.own(column)) is not None:
            result += columnhash.hashes(pa.array(_own_values(arrays, own), pa.string()), column.encoding.lake_type)
        elif column.missing is not None:  # the column is younger than the file; NULL adds nothing
            result += columnhash.of_missing(column.missing, column.encoding.lake_type)
    return result


def _own_values(arrays: dict[int, Values], own: OwnValue) -> list[str]:
    """What each row has in a column that the file lacks, computed from its key."""
    names = [f"k{number}" for number in range(len(own.key))]
    keys = _arrow.table([arrays[field_id] for field_id, _ in own.key], names=names)
    texts = ", ".join(
        f"cast({name} as varchar)" if lake_type == "boolean" else ducktext.printed_value(name, lake_type)
        for name, (_, lake_type) in zip(names, own.key, strict=True)
    )
    with duck.borrowed(_MEMORY) as connection:
        connection.execute("begin")
        connection.register("keys", keys)
        rows = connection.execute(f"select {texts} from keys").fetchall()  # noqa: S608
        connection.unregister("keys")
    return [own.of(parts) for parts in rows]
