"""Fingerprints of rows: the same number from Postgres and from Parquet files.

A row's hash is what `hash_record_extended` gives for its values with seed 0; a fingerprint is the number of rows and
the exact sum of their hashes. Postgres computes it where the rows are. Here it is computed again from the files, by
other code and another Parquet reader than the ones that wrote them.
"""

from collections.abc import Iterable
from typing import LiteralString

import numpy as np
import numpy.typing as npt
from psycopg import sql

from frostline.lake import parquet
from frostline.lake.parquet import Values
from frostline.model.tables import NO_ROWS, Column, Fingerprint, Table
from frostline.pipeline import columnhash
from frostline.pipeline.lookup3 import U64

_POSTGRES_FORMS: dict[str, LiteralString] = {
    "boolean": "{}::int",
    "float": "float4send({})",
    "double": "float8send({})",
    "string": '{}::text collate "C"',
    "decimal": '{}::text collate "C"',
}


def postgres_row_hash(table: Table) -> sql.Composable:
    """The expression that gives one row's hash in Postgres, over columns named as in the table."""
    values = sql.SQL(", ").join(_postgres_value(column) for column in table.columns)
    return sql.SQL("hash_record_extended(row({}), 0)").format(values)


def _postgres_value(column: Column) -> sql.Composable:
    form = _POSTGRES_FORMS.get(_family(column), "{}")
    return sql.SQL(form).format(sql.Identifier(column.name))


def _family(column: Column) -> str:
    return column.carriage.lake_type.partition("(")[0]


def of_parquet(locations: Iterable[str], table: Table) -> Fingerprint:
    """The fingerprint of the rows in these files. Memory is bounded: one batch of one row group at a time."""
    total = NO_ROWS
    for location in locations:
        for batch in parquet.batches(location):
            total += _of_batch(batch, table)
    return total


def _of_batch(arrays: dict[int, Values], table: Table) -> Fingerprint:
    rows = len(next(iter(arrays.values())))
    result: U64 = np.zeros(rows, np.uint64)
    for column in table.columns:
        result = (result << np.uint64(5)) - result
        # A column that is younger than the file has no values in it.
        if column.field_id in arrays:
            result += columnhash.hashes(arrays[column.field_id], column.carriage.lake_type)
    return Fingerprint(rows, _exact_sum(result.view(np.int64)))


def _exact_sum(values: npt.NDArray[np.int64]) -> int:
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
