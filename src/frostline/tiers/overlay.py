"""The marks of an overlay in DuckDB, where lake files are read without the rows that they hide."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import duckdb

from frostline.lake import duck, ducksql, schema
from frostline.model.tables import LakeTable, TierKey
from frostline.tiers import shards
from frostline.tiers.shards import Named, Shard
from frostline.tiers.target import Reader

_MARKS = "create temp table marks as {query}"
_MARKED = "exists (select 1 from marks as m where {same_key})"


@contextmanager
def loaded(table: LakeTable, reader: Reader, shard: Shard, memory_limit: str) -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with a slice of the overlay, all columns of it, in the table `marks`."""
    with duck.borrowed(memory_limit) as connection:
        try:
            named = zip(schema.parquet_names(table), table.columns, strict=True)
            load(connection, table.tier, reader, shard, named)
        except duckdb.Error as error:
            raise shards.failure(error, reader, shard.target, f"export of {shard.target.name}") from None
        # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
        connection.execute("set preserve_insertion_order = false")
        yield connection


def load(
    connection: duckdb.DuckDBPyConnection, tier: TierKey | None, reader: Reader, shard: Shard, named: Named
) -> None:
    """Make the table `marks`, in a transaction that sees the moment: these columns, and whether each mark is live."""
    shards.attach(connection, reader, shard.target)
    connection.execute(_MARKS.format(query=shards.in_duck(tier, shard, named, marks=True)))
    shards.check_again(connection, reader, shard.target)


def is_marked(key: Iterable[str]) -> str:
    """That `marks` has the key of a row `f` of a lake file; the columns of the key as they are called in both."""
    pairs = (f"m.{name} = f.{name}" for name in map(ducksql.identifier, key))
    return _MARKED.format(same_key=" and ".join(pairs))
