"""Export: what runs inside one Spark task. One shard of a heap partition becomes one verified Parquet file.

Rows move from Postgres to Parquet inside DuckDB, as columns and as a stream; Python never touches a value. Everything
is read under one snapshot that the driver has exported, so all shards of a job show one point in time.
"""

import re
from dataclasses import replace

import duckdb
from psycopg.conninfo import make_conninfo

from frostline.errors import CorruptionError, FrostlineError, UnavailableError
from frostline.failpoints import Failpoint, reached
from frostline.lake import datafiles, duck, ducksql, paths, schema, store, warehouse
from frostline.lake.datafiles import WrittenFile
from frostline.model import laketypes
from frostline.model.tables import Column, LakeTable
from frostline.pipeline import fingerprint, source
from frostline.pipeline.source import Shard

_COLUMN = "frostline_{number}::{type} as {name}"
_COPY = "copy (select {columns} from postgres_query('pg', {query}) {order}) to {location} ({options})"
_NAME = "select * from postgres_query('pg', {query})"
_NO_TABLE = re.compile(r'relation ".*" does not exist')
_ROW_GROUP_ROWS = 122_880
_ROW_GROUP_BYTES = "64MB"


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
        raise failure(shard, error) from None
    return shard.in_order


def _copy_rows(shard: Shard, location: str, *, dictionaries: bool) -> None:
    """Copy in one read-only transaction of DuckDB, which is one of Postgres too."""
    with duck.borrowed(shard.memory_limit) as connection:
        join(connection, shard)
        connection.execute(_copy(shard, location, dictionaries=dictionaries))
        check_name(connection, shard)


def join(connection: duckdb.DuckDBPyConnection, shard: Shard) -> None:
    """Attach Postgres as `pg` and begin a transaction there that reads the driver's snapshot."""
    # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
    connection.execute("set preserve_insertion_order = false")
    conninfo = make_conninfo(shard.dsn, application_name="frostline export")
    duck.begin_in_postgres(connection, conninfo, source.join_snapshot(shard).as_string())
    check_name(connection, shard)


def check_name(connection: duckdb.DuckDBPyConnection, shard: Shard) -> None:
    """ConflictError when the partition's name means another table by now, to those who have joined."""
    if shard.oid is not None:
        query = ducksql.literal(source.name_query(shard).as_string())
        source.check_name(shard, connection.execute(_NAME.format(query=query)).fetchone())


def failure(shard: Shard, error: duckdb.Error) -> FrostlineError:
    """What a DuckDB error means, without the connection string that its message may show."""
    message, trouble = str(error), store.trouble(error)
    if trouble:
        return UnavailableError(f"export of {shard.partition} failed: {trouble.reason}", hint=trouble.hint)
    if "snapshot" in message and ("does not exist" in message or "invalid" in message):
        return source.snapshot_gone(shard)
    if _NO_TABLE.search(message):
        return source.renamed(shard)
    reason = duck.postgres_reason(message)
    return UnavailableError(f"export of {shard.partition} failed: {reason}", hint=shard.command)


def _copy(shard: Shard, location: str, *, dictionaries: bool) -> str:
    return _COPY.format(
        columns=typed_columns(shard.table),
        query=ducksql.literal(source.rows_query(shard).as_string()),
        order=_order(shard) if shard.in_order else "",
        location=ducksql.literal(location),
        options=options(shard.table, dictionaries=dictionaries),
    )


def _order(shard: Shard) -> str:
    names, tier = [column.name for column in shard.table.columns], shard.table.tier
    assert tier is not None
    return f"order by frostline_{names.index(tier.name) + 1}"


def typed_columns(table: LakeTable) -> str:
    """The columns frostline_1, frostline_2, ... that Postgres sends, under their names and types in the lake."""
    numbered = enumerate(zip(table.columns, schema.parquet_names(table), strict=True), 1)
    return ", ".join(_typed_column(number, column, name) for number, (column, name) in numbered)


def _typed_column(number: int, column: Column, name: str) -> str:
    lake_type = laketypes.duck_type(column.carriage.lake_type)
    return _COLUMN.format(number=number, type=lake_type, name=ducksql.identifier(name))


def options(table: LakeTable, *, dictionaries: bool) -> str:
    """How data files are written: compression, row groups, Iceberg field ids."""
    field_ids = zip(schema.parquet_names(table), table.columns, strict=True)
    chosen = {
        "format": "parquet",
        "compression": "zstd",
        # DuckDB looks binary keys up in it by another hash than it writes, and then finds nothing.
        "write_bloom_filter": "false",
        "row_group_size": str(_ROW_GROUP_ROWS),
        "row_group_size_bytes": ducksql.literal(_ROW_GROUP_BYTES),
        "field_ids": "{" + ", ".join(f"{ducksql.literal(name)}: {column.field_id}" for name, column in field_ids) + "}",
    }
    if not dictionaries:
        chosen["dictionary_size_limit"] = "0"
    return ", ".join(f"{name} {value}" for name, value in chosen.items())
