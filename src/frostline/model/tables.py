"""One managed table, its seam, and the files of its lake snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from frostline.model.columns import difference
from frostline.model.names import MAX_BYTES, Name, cut, internal
from frostline.model.policy import ForeignKeys, Mode, Policy
from frostline.model.range import Range
from frostline.model.tiers import TierKind
from frostline.model.types import Collation, LakeEncoding, PgType


@dataclass(frozen=True)
class Column:
    """A column of the heap, and how it travels."""

    name: str
    attnum: int
    """`pg_attribute.attnum` on the heap: survives renames."""
    field_id: int
    """The Iceberg field id: survives renames."""
    pg_type: PgType
    encoding: LakeEncoding
    collation: Collation
    not_null: bool
    collation_name: str | None = None
    """Quoted and qualified, when it is not the database's default."""
    generated: bool = False
    """GENERATED ALWAYS AS (...) STORED: the heap computes it, so writes leave it out."""
    is_later: bool = False
    """It was added to the heap after the table was added to Frostline. The inner view has it after its own columns."""
    missing: str | None = None
    """What rows of files that lack the field have in it, as canonical text; None is NULL. It never changes: Postgres
    gave it to the rows that were there when the column was added."""
    remote_name: str | None = None
    """What the lake server is asked for: the name that the column had first. None: its name."""


@dataclass(frozen=True)
class TierKey:
    """The column that decides a row's tier."""

    name: str
    kind: TierKind


class StoredTable(Protocol):
    """A table as far as its files in the lake are concerned: a managed `Table`, or a `TableCopy`."""

    @property
    def name(self) -> Name: ...  # noqa: D102
    @property
    def columns(self) -> tuple[Column, ...]: ...  # noqa: D102
    @property
    def key(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def tier(self) -> TierKey | None:
        """None for a table whose rows have no tier."""
        ...

    @property
    def lake_partition(self) -> str | None:
        """The Iceberg transform of the tier key that its files are cut by; None for one that is not partitioned."""
        ...

    def column(self, name: str) -> Column: ...  # noqa: D102


@dataclass(frozen=True)
class TableCopy:
    """A table's copy in a snapshot of many tables. It has columns, and neither heap, line nor policy of its own."""

    name: Name
    columns: tuple[Column, ...]
    tier: TierKey | None = None
    """Of a managed table, while its rows are read: which of them are hot is told by it."""

    @property
    def key(self) -> tuple[str, ...]:
        """None: no row of it is ever looked for."""
        return ()

    @property
    def lake_partition(self) -> None:
        """It is not partitioned."""
        return

    def column(self, name: str) -> Column:
        """The column of that name; KeyError when there is none."""
        return column_named(self.columns, name)


@dataclass(frozen=True)
class Table:
    """A managed table as the catalog describes it."""

    id: int
    name: Name
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Primary key column names, in key order; the tier key is one of them."""
    tier_key: str
    tier_kind: TierKind
    lake_partition: str | None
    """The Iceberg transform of the tier key, as Iceberg writes it: `month`, `day`, `truncate[1000]`, ...; None without
    a lake."""
    policy: Policy
    token: str
    """Random, so that no other table of any database has the same folder in the lake."""
    mode: Mode = Mode.TIERED
    held_from: int | None = None
    """Archive does not go past this tier value, on the axis: an undo or a thaw brought the rows above it back."""
    relation_name: str | None = None
    """Where the relation stands beside the table: what it is called. The table keeps its name then, and is the heap."""
    foreign_keys: ForeignKeys = ForeignKeys.IGNORE
    """What its foreign keys mean for rows in the lake."""
    first_name: Name | None = None
    """What it was called when it was added, if it was renamed since: see `lake_name`."""

    def difference(self, known: "Table") -> str | None:
        """How its columns, by names, fields and types, and its key are others than known; None when they are not."""
        then, now = ({column.name: column.pg_type.formatted for column in table.columns} for table in (known, self))
        fields = {column.name: column.field_id for column in known.columns}
        anew = [column.name for column in self.columns if column.field_id != fields.get(column.name)]
        is_other_key = f"its primary key is {', '.join(self.key)} now" if self.key != known.key else None
        return difference(then, now, anew) or is_other_key

    def as_remote(self) -> "Table":
        """The table as the lake server is asked for it: a renamed column has the name that it had first.

        Of a long name, which says what older rows have in the column, only what a parser leaves of it.
        """
        names = {column.name: cut(column.remote_name or column.name, MAX_BYTES) for column in self.columns}
        return replace(
            self,
            columns=tuple(replace(column, name=names[column.name]) for column in self.columns),
            key=tuple(names[name] for name in self.key),
            tier_key=names.get(self.tier_key, self.tier_key),
        )

    @property
    def has_lake(self) -> bool:
        """Whether rows of it can be in the lake."""
        return self.mode.has_lake

    @property
    def has_line(self) -> bool:
        """Whether it has a frost line."""
        return self.mode.has_line

    @property
    def relation(self) -> Name:
        """The view of both tiers: in the place of the user's table, under its name, or beside it."""
        return self.name if self.relation_name is None else Name(self.name.schema, self.relation_name)

    @property
    def heap(self) -> Name:
        """The user's own table. Where the relation has taken its place, it has `_` before its name."""
        return self.name.heap if self.has_lake and self.relation_name is None else self.name

    @property
    def tier(self) -> TierKey:
        """The column that decides a row's tier."""
        return TierKey(self.tier_key, self.tier_kind)

    @property
    def bounded(self) -> tuple[str, ...]:
        """The columns by whose bounds files are passed over."""
        return self.key

    @property
    def lake_grid(self) -> tuple[str, TierKind]:
        """By what its lake is cut, for the functions of `model/lake_grid.py`. Only of a table that has a lake."""
        assert self.lake_partition is not None
        return self.lake_partition, self.tier_kind

    @property
    def internal(self) -> str:
        """The name its objects have in Frostline's own schemas."""
        return internal(self.lake_name.table, self.id)

    @property
    def lake_name(self) -> Name:
        """What its lake is called, in the Iceberg catalog and the warehouse: it stays when the table is renamed."""
        return self.first_name or self.name

    def column(self, name: str) -> Column:
        """The column of that name; KeyError when there is none."""
        return column_named(self.columns, name)


def column_named(columns: Sequence[Column], name: str) -> Column:
    """The one of that name; KeyError when there is none."""
    for column in columns:
        if column.name == name:
            return column
    raise KeyError(name)


@dataclass(frozen=True)
class Seam:
    """Where the tiers of a table meet: frost line, lake snapshot and metadata location change together."""

    table_id: int
    frost_line: int
    snapshot_id: int | None
    metadata_location: str | None


@dataclass(frozen=True)
class Standing:
    """The lake of a table as its seam has it, and as the Iceberg catalog has it. They differ only if others commit."""

    snapshot_id: int | None
    location: str | None
    """The seam's."""
    pointer: str | None
    """The catalog's; None when it has no such table."""

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else has moved, dropped or made the pointer."""
        return self.pointer != self.location

    @property
    def described(self) -> str:
        """What somebody else has done, as far as Postgres knows."""
        if self.pointer is None:
            return "its lake was dropped or renamed in the Iceberg catalog by somebody else"
        if self.location is None:
            return f"somebody else has made a table of its name in the Iceberg catalog: {self.pointer}"
        return f"its lake was committed to by somebody else: the Iceberg catalog points to {self.pointer}"


@dataclass(frozen=True)
class Fingerprint:
    """Count and order-independent 64-bit-hash sum of rows. Two sets of rows with the same one are the same rows."""

    rows: int
    hash_sum: int

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, self.hash_sum + other.hash_sum)

    def __sub__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows - other.rows, self.hash_sum - other.hash_sum)


NO_ROWS = Fingerprint(0, 0)


@dataclass(frozen=True)
class Checksum:
    """What a file must be, byte by byte."""

    size_bytes: int
    sha256: bytes


@dataclass(frozen=True)
class KeyField:
    """A column of the primary key whose bounds in each file are worth knowing."""

    field_id: int
    is_number: bool
    """On the axis, as a tier value is; else it is text, compared by its bytes."""


@dataclass(frozen=True)
class KeyBounds:
    """No value of this column in a file is below the one or above the other."""

    field_id: int
    lower: int | bytes
    upper: int | bytes


@dataclass(frozen=True)
class LakeFile:
    """One Parquet file of a lake snapshot."""

    path: str
    rows: int
    size_bytes: int
    lower: int
    """Smallest tier value in the file, on the axis."""
    upper: int
    """Largest tier value in the file, on the axis (inclusive)."""
    keys: tuple[KeyBounds, ...] = ()
    """Of the other columns of the primary key, as far as they are known."""

    @property
    def range(self) -> Range:
        """The tier values from its smallest to its largest."""
        return Range.closed(self.lower, self.upper)

    def bounds(self, field_id: int) -> KeyBounds | None:
        """Those of a column of the primary key that is not the tier key; None when they are not known."""
        for bounds in self.keys:
            if bounds.field_id == field_id:
                return bounds
        return None


@dataclass(frozen=True)
class RecordedFile:
    """A file of the lake as the catalog remembers it: what it must still be."""

    path: str
    size_bytes: int
    lower: int
    upper: int
    """Inclusive."""
    fingerprint: Fingerprint
    sha256: bytes | None = None
    """Of the whole file; None for a file from before checksums were kept."""
    fields: tuple[int, ...] | None = None
    """The columns, by field id, that the fingerprint is of; None for those that the table has now."""
    types: tuple[str, ...] | None = None
    """The lake types that these had; None for those that the table's columns have now."""

    @property
    def range(self) -> Range:
        """The tier values from its smallest to its largest."""
        return Range.closed(self.lower, self.upper)
