"""Export: what runs inside one Spark task. One shard of a heap partition becomes one verified Parquet file.

Rows move from Postgres to Parquet inside DuckDB, as columns and as a stream; Python never touches a value. Everything
is read under one snapshot that the driver has exported, so all shards of a job show one point in time.
"""

from dataclasses import dataclass, replace

import duckdb

from frostline.errors import CorruptionError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.lake import datafiles, duck, ducksql, paths, schema, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model.tables import StoredTable
from frostline.tiers import shards, survey
from frostline.tiers.proof import fingerprint
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_COPY = "copy ({rows} {order}) to {location} ({options})"


@dataclass(frozen=True)
class Export:
    """A shard that one task writes to one file."""

    table: StoredTable
    reader: Reader
    shard: Shard
    """Within one lake partition, if the lake has any."""
    location: str
    """The table's location in the lake."""
    job_id: int
    memory_limit: str = "512MB"
    in_order: bool = True
    """Sort the rows by the tier key."""


def export_shard(export: Export) -> WrittenFile | None:
    """Write the shard's rows to a new Parquet file and prove that they are all there; None when there are no rows.

    Raises CorruptionError when the file does not hold what Postgres has, and UsageError for values that the lake
    cannot hold. A file that is left behind by a failure is garbage for the orphan sweep: its name is used only once.
    """
    heap = survey.of_rows(export.table, export.reader, export.shard)
    if not heap.fingerprint.rows:
        return None
    location = paths.data_file(export.location, export.job_id)
    warehouse.prepare(location)
    reached(Failpoint.EXPORT_BEFORE_FILE)
    in_order = write(export, location, dictionaries=not heap.has_twin_floats)
    reached(Failpoint.EXPORT_WROTE_FILE)
    seal = fingerprint.sealed(location, export.table)
    written = seal.fingerprint
    if written != heap.fingerprint:
        raise CorruptionError(
            f"export of {export.shard.target.name} is not what the heap has: {heap.fingerprint.rows} rows with hash "
            f"sum {heap.fingerprint.hash_sum} there, {written.rows} with {written.hash_sum} in {location}"
        )
    return datafiles.describe(location, export.table, seal, in_order=in_order)


def write(export: Export, location: str, *, dictionaries: bool) -> bool:
    """Copy the rows to a file; returns whether they are in order.

    Sorting needs more memory than streaming when rows are wide. Rather than fail, it goes without.
    """
    doing = f"export of {export.shard.target.name}"
    try:
        _copy_rows(export, location, dictionaries=dictionaries)
    except duckdb.OutOfMemoryException:
        if not export.in_order:
            raise UnavailableError(
                f"{doing} needs more memory than {export.memory_limit}",
                hint=f"set export_memory higher, then: {export.reader.again}",
            ) from None
        return write(replace(export, in_order=False), location, dictionaries=dictionaries)
    except duckdb.Error as error:
        # The message may show the connection string, so neither it nor its traceback goes on.
        raise shards.failure(error, export.reader, export.shard.target, doing) from None
    return export.in_order


def _copy_rows(export: Export, location: str, *, dictionaries: bool) -> None:
    """Copy in one read-only transaction of DuckDB, which is one of Postgres too."""
    table, order = export.table, ""
    if export.in_order:
        assert table.tier is not None
        order = f"order by frostline_{[column.name for column in table.columns].index(table.tier.name) + 1}"
    statement = _COPY.format(
        rows=shards.in_duck(table.tier, export.shard, zip(schema.parquet_names(table), table.columns, strict=True)),
        order=order,
        location=ducksql.literal(location),
        options=datafiles.copy_options(table, dictionaries=dictionaries),
    )
    with duck.borrowed(export.memory_limit) as connection:
        # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
        connection.execute("set preserve_insertion_order = false")
        shards.attach(connection, export.reader, export.shard.target)
        connection.execute(statement)
        shards.check_again(connection, export.reader, export.shard.target)
