"""Export: what runs inside one Spark task. One shard of a heap partition becomes one verified Parquet file.

Rows move from Postgres to Parquet inside DuckDB, as columns and as a stream; Python never touches a value. Everything
is read under one snapshot that the driver has exported, so all shards of a job show one point in time.
"""

from dataclasses import replace

import duckdb

from frostline.errors import CorruptionError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.lake import datafiles, duck, ducksql, paths, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.pipeline import source
from frostline.pipeline.source import Shard
from frostline.tiers.proof import fingerprint

_COPY = "copy (select {columns} from postgres_query('pg', {query}) {order}) to {location} ({options})"


def export_shard(shard: Shard) -> WrittenFile | None:
    """Write the shard's rows to a new Parquet file and prove that they are all there; None when there are no rows.

    Raises CorruptionError when the file does not hold what Postgres has, and UsageError for values that the lake
    cannot hold. A file that is left behind by a failure is garbage for the orphan sweep: its name is used only once.
    """
    heap = source.survey(shard)
    if not heap.fingerprint.rows:
        return None
    location = paths.data_file(shard.location, shard.job_id)
    warehouse.prepare(location)
    reached(Failpoint.EXPORT_BEFORE_FILE)
    in_order = write(shard, location, dictionaries=not heap.has_twin_floats)
    reached(Failpoint.EXPORT_WROTE_FILE)
    seal = fingerprint.sealed(location, shard.table)
    found = seal.fingerprint
    if found != heap.fingerprint:
        raise CorruptionError(
            f"export of {shard.partition} is not what the heap has: {heap.fingerprint.rows} rows with hash sum "
            f"{heap.fingerprint.hash_sum} there, {found.rows} with {found.hash_sum} in {location}"
        )
    return datafiles.describe(location, shard.table, seal, in_order=in_order)


def write(shard: Shard, location: str, *, dictionaries: bool) -> bool:
    """Copy the rows to a file; returns whether they are in order.

    Sorting needs more memory than streaming when rows are wide. Rather than fail, it goes without.
    """
    try:
        _copy_rows(shard, location, dictionaries=dictionaries)
    except duckdb.OutOfMemoryException:
        if not shard.in_order:
            raise UnavailableError(
                f"export of {shard.partition} needs more memory than {shard.memory_limit}",
                hint=f"set export_memory higher, then: {shard.command}",
            ) from None
        return write(replace(shard, in_order=False), location, dictionaries=dictionaries)
    except duckdb.Error as error:
        # The message may show the connection string, so neither it nor its traceback goes on.
        raise source.duck_failure(shard, error) from None
    return shard.in_order


def _copy_rows(shard: Shard, location: str, *, dictionaries: bool) -> None:
    """Copy in one read-only transaction of DuckDB, which is one of Postgres too."""
    with duck.borrowed(shard.memory_limit) as connection:
        source.attach(connection, shard)
        connection.execute(_copy(shard, location, dictionaries=dictionaries))
        source.check_name_in_duck(connection, shard)


def _copy(shard: Shard, location: str, *, dictionaries: bool) -> str:
    return _COPY.format(
        columns=source.typed_columns(shard.table),
        query=ducksql.literal(source.rows_query(shard).as_string()),
        order=_order(shard) if shard.in_order else "",
        location=ducksql.literal(location),
        options=datafiles.copy_options(shard.table, dictionaries=dictionaries),
    )


def _order(shard: Shard) -> str:
    names, tier = [column.name for column in shard.table.columns], shard.table.tier
    assert tier is not None
    return f"order by frostline_{names.index(tier.name) + 1}"
