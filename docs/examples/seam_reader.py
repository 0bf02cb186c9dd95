"""Reads a table of two tiers from outside Postgres. Relies on docs/reference/seam-protocol.md and on nothing else."""

from contextlib import contextmanager, nullcontext

import psycopg
from psycopg import rows, sql
from pyiceberg.expressions import LessThan
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import NestedField

SEAM = "select * from frostline.seam_v1 where schema_name = %s and table_name = %s"
COLUMNS = "select * from frostline.seam_column_v1 where table_id = %s order by position"
PIN = "select frostline.pin_v1(%s, %s, 'seam_reader', %s)"
HOT = sql.SQL("select {} from {} where {} >= {}")
FILES = """select bool_and(c.relfilenode = pg_relation_filenode(c.oid)) from pg_class c
            where c.oid = %s::regclass
               or c.oid in (select t.relid from pg_partition_tree(%s) t) and pg_relation_size(c.oid) > 0"""
OWN = "select frostline.missing_v1(%s, frostline.key_v1({}))"
MARKS = sql.SQL("select {}, frostline_live from {} where {} < {}")


def read(dsn, schema, table, seconds=600):
    """All rows as of one point in time. Columns that travel as text are text."""
    with psycopg.connect(dsn, autocommit=True, row_factory=rows.namedtuple_row) as connection:
        connection.execute("set timezone = 'UTC'")  # as the lake has it
        connection.execute("begin isolation level repeatable read read only")
        seam = connection.execute(SEAM, (schema, table)).fetchone()
        columns = connection.execute(COLUMNS, (seam.table_id,)).fetchall()
        key = [number for number, column in enumerate(columns) if column.name in seam.key_columns]
        hot, marks = from_postgres(connection, seam, columns)
        if not connection.execute(FILES, (seam.overlay, seam.heap)).fetchone()[0]:
            raise LookupError(f"{schema}.{table} was rewritten meanwhile: read it again")
        wanted = in_lake(connection, columns)
        with pinned(dsn, seam, seconds) if seam.metadata_location else nullcontext() as renew:
            connection.execute("rollback")
            hidden = {tuple(m[n] for n in key) for m in marks}
            cold = from_lake(seam, wanted, renew) if seam.snapshot_id is not None else ()
            cold = list(with_own_values(connection, seam, columns, cold))
            return hot + [m[:-1] for m in marks if m[-1]] + [r for r in cold if tuple(r[n] for n in key) not in hidden]


def from_postgres(connection, seam, columns):
    """The hot rows, then the overlay with `frostline_live` in the end. Binary, so that a `real` keeps all its bits."""
    cursor = connection.cursor(binary=True, row_factory=rows.tuple_row)
    for text, source, called in ((HOT, sql.SQL(seam.heap), "name"), (MARKS, sql.SQL(seam.overlay), "overlay_name")):
        own = {c.name: sql.Identifier(getattr(c, called)) for c in columns}
        chosen = [sql.SQL("frostline.text_v1({})" if c.as_text else "{}").format(own[c.name]) for c in columns]
        yield list(cursor.execute(text.format(sql.SQL(", ").join(chosen), source, own[seam.tier_key], seam.frost_line)))


def in_lake(connection, columns):
    """The columns as Iceberg's fields: with the names of the heap, and what rows of files have that lack one."""
    typed = [sql.SQL("{}::{}").format(c.missing, sql.SQL("text" if c.as_text else c.type)) for c in columns]
    cursor = connection.cursor(binary=True, row_factory=rows.tuple_row)
    values = cursor.execute(sql.SQL("select {}").format(sql.SQL(", ").join(typed))).fetchone()
    fields = ((c.field_id, c.name, c.lake_type, False, None, m) for c, m in zip(columns, values, strict=True))
    return Schema(*(NestedField(*field) for field in fields))


def from_lake(seam, wanted, renew):
    """The rows of S below T, by field id. PyIceberg takes the axis value of any kind of line."""
    scan = StaticTable.from_metadata(seam.metadata_location).scan(snapshot_id=seam.snapshot_id)
    tier_key = scan.projection().find_column_name(wanted.find_field(seam.tier_key).field_id)
    scan = scan.filter(LessThan(tier_key, seam.frost_line_axis))
    for batch in ArrowScan(scan.table_metadata, scan.io, wanted, scan.row_filter).to_record_batches(scan.plan_files()):
        renew()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def with_own_values(connection, seam, columns, cold):
    """The same rows; where `missing` says how to compute a value from the row's key, with what Postgres computes."""
    number = {column.name: n for n, column in enumerate(columns)}
    key = [number[name] for name in seam.key_columns]
    own = [n for n, c in enumerate(columns) if c.type == "uuid" and (c.missing or "").startswith("uuid")]
    texts = (sql.SQL("frostline.text_v1({}::{})").format(sql.Placeholder(), sql.SQL(columns[n].type)) for n in key)
    asked = sql.SQL(OWN).format(sql.SQL(", ").join(texts))
    for row in map(list, cold):
        for n in own:
            if row[n] == columns[n].missing:
                (row[n],) = connection.execute(asked, [row[n], *(row[k] for k in key)]).fetchone()
        yield tuple(row)


@contextmanager
def pinned(dsn, seam, seconds):
    """Hold the state of the lake. Gives what renews the pin; TimeoutError in the end if it did not hold."""
    with psycopg.connect(dsn, autocommit=True) as pins:
        (pin,) = pins.execute(PIN, (seam.table_id, seam.metadata_location, seconds)).fetchone()
        try:
            yield lambda: pins.execute("select frostline.renew_pin_v1(%s, %s)", (pin, seconds))
        finally:
            if not pins.execute("select frostline.release_pin_v1(%s)", (pin,)).fetchone()[0]:
                raise TimeoutError("the pin ran out: what was read does not count, read again")
