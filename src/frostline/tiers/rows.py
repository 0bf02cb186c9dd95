"""The rows of a piece, as Arrow batches: of the heap, of the overlay, of lake files. Python never touches a value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from frostline import filemode
from frostline.lake import duck, duckfiles, ducksql, ducktext, lake_rows, objectstore
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.model.tables import Column, StoredTable
from frostline.tiers import files, filesums, shards
from frostline.tiers.pieces import LakePiece, Part
from frostline.tiers.point import TablePoint
from frostline.tiers.shards import Sent, Shard
from frostline.tiers.target import Reader

_LAKE = "select {columns} from {rows} as f where {conditions}"
_BATCH_ROWS = 65_536
_MEMORY = "512MB"


@dataclass(frozen=True)
class Reading:
    """What the tasks that read one table have in common."""

    reader: Reader
    access: Access | None
    at: TablePoint
    part: Part
    columns: Mapping[str, Column]
    """By their names in the batches."""
    checks: Checks | None = None
    """How files are compared; None is what fits their store."""
    sent: Sent = shards.plain


def batches(reading: Reading, piece: Shard | LakePiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. Those of a shard count only when the last batch was taken: then it is checked once more."""
    compared = piece.files if isinstance(piece, LakePiece) else ()
    with (
        filesums.blamed(compared),
        objectstore.used(reading.access),
        filemode.applied(filemode.OWNER_ONLY),
        duck.borrowed(_MEMORY) as connection,
    ):
        # Batches then come while rows are read.
        connection.execute("set preserve_insertion_order = false")
        if isinstance(piece, Shard):
            shards.attach(connection, reading.reader, piece.target)
            query = shards.in_duck(reading.at.table.tier, piece, reading.columns.items(), reading.sent)
        else:
            filesums.compare_here(piece.files, reading.checks)
            query = _lake_query(connection, reading, piece)
        yield from connection.execute(query).to_arrow_reader(_BATCH_ROWS)
        if isinstance(piece, Shard):
            shards.check_again(connection, reading.reader, piece.target)


def _lake_query(connection: duckdb.DuckDBPyConnection, reading: Reading, piece: LakePiece) -> str:
    table = reading.at.table
    shown = files.shown_names(table)
    keys = {name: column for name, column in shown.items() if column.name in table.key}
    tier = {name: column for name, column in shown.items() if table.tier and column.name == table.tier.name}
    paths = [ducksql.literal(file.path) for file in piece.files]
    conditions = [condition for name in tier for condition in _within(table, name, piece)]
    if piece.marked:
        assert reading.at.overlay is not None
        marks = Shard(reading.at.overlay, piece.range)
        shards.load_marks(connection, table.tier, reading.reader, marks, keys.items())
        conditions.append(f"not {shards.is_marked(keys)}")
    else:
        connection.execute("begin")
    columns = {**reading.columns, **keys, **tier}
    deletes = sorted({location for file in piece.files for location in file.deletes})
    return _LAKE.format(
        columns=", ".join(f"f.{ducksql.identifier(name)}" for name in reading.columns),
        rows=lake_rows.relation(columns, [file.path for file in piece.files], deletes)
        if deletes
        else duckfiles.read_parquet(paths, columns.items()),
        conditions=" and ".join(conditions) or "true",
    )


def _within(table: StoredTable, name: str, piece: LakePiece) -> Iterator[str]:
    """That the tier key of this name lies in the range, where a file reaches beyond it."""
    assert table.tier is not None
    kind = table.tier.kind
    low, high = shards.ends(kind, piece.range)
    ranges = [shards.ends(kind, files.tier_range(table, file)) for file in piece.files]
    if any(lower < low for lower, _ in ranges):
        yield f"f.{ducksql.identifier(name)} >= {ducktext.tier_literal(kind, low)}"
    if any(upper > high for _, upper in ranges):
        yield f"f.{ducksql.identifier(name)} <= {ducktext.tier_literal(kind, high)}"
