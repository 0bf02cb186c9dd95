"""The plan of a named snapshot: which tables, as they are under one Postgres snapshot that is held."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from frostline.catalog import facts, lake_files, lake_tables, seams, tables, trust
from frostline.catalog.connect import Connection
from frostline.catalog.facts import Member
from frostline.catalog.pointers import LakePointer
from frostline.catalog.snapshot_versions import Copied, Known, Taken
from frostline.errors import UnavailableError, UsageError
from frostline.lake import pg_types, snapshots
from frostline.model import fields, snapshot
from frostline.model.archive import BLOCK_BYTES, block_ranges
from frostline.model.names import Name
from frostline.model.snapshot import BadRequest, Pattern, Relation
from frostline.model.tables import Column, RecordedFile, Table, TableCopy
from frostline.model.types import encoding
from frostline.relation import heap
from frostline.tiers import files, pieces, point, target
from frostline.tiers.files import ColdFile
from frostline.tiers.moment import Holder, Moment
from frostline.tiers.target import Target

if TYPE_CHECKING:  # tasks import this module, and have no use for what talks to REST catalogs
    from frostline.pipeline.snapshot_destinations import Destination

_PATIENCE_S = 60.0
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Request:
    """What a snapshot is to be made of."""

    name: str
    tables: tuple[Pattern, ...]
    exclude: tuple[Pattern, ...] = ()
    incremental: bool = False
    require_atomic: bool = False


@dataclass(frozen=True)
class Cold:
    """The cold half of a managed table, as of the snapshot."""

    table: Table
    line: int
    """The frost line: colder rows are in the lake or in the overlay."""
    overlay: Target
    files: tuple[RecordedFile, ...]
    marks: int


@dataclass(frozen=True)
class InLake:
    """A lake table, as of the snapshot."""

    table: TableCopy
    """With the field ids that its own files have."""
    metadata_location: str
    files: tuple[ColdFile, ...]


@dataclass(frozen=True)
class Source:
    """A table that is copied, and where its rows are."""

    table: TableCopy
    """Under its own name, with the field ids of its copy."""
    number: int
    """Its oid; of a lake table the number that the catalog has for it."""
    heaps: tuple[Target, ...]
    """The relations that hold its rows."""
    location: str
    base: Copied | None
    """The copy that this one goes on from."""
    previous: str | None
    """Where the catalog points now."""
    last_field_id: int
    cold: Cold | None = None
    in_lake: InLake | None = None
    """Of a lake table: all of it."""

    @property
    def read_from(self) -> str | None:
        """The metadata file of a lake table, which never changes."""
        return self.in_lake.metadata_location if self.in_lake else None


@dataclass(frozen=True)
class Plan:
    """All tables of a snapshot at one moment."""

    moment: Moment
    taken: Taken
    sources: tuple[Source, ...]


def chosen(connection: Connection, request: Request) -> list[Relation]:
    """The tables that are meant, as the connection sees them; UsageError when a pattern means none."""
    try:
        return snapshot.choose(request.tables, request.exclude, facts.relations(connection))
    except BadRequest as error:
        raise UsageError(str(error), hint=error.hint) from None


@dataclass(frozen=True)
class _Selection:
    """The tables, and all relations that hold their rows. Equal when nothing has changed that matters to a plan."""

    relations: tuple[Relation, ...]
    members: Mapping[int, tuple[Member, ...]]
    """By oid. A lake table has none: what it consists of is read as rows of the catalog, under the snapshot."""
    overlays: tuple[Name, ...]

    @property
    def locked(self) -> list[Name]:
        member_names = {member.name for those in self.members.values() for member in those}
        return sorted(member_names | set(self.overlays))

    @property
    def read(self) -> list[Name]:
        """Those of them that have rows of their own."""
        leaves = {member.name for those in self.members.values() for member in those if member.kind == "r"}
        return sorted(leaves | set(self.overlays))


def _find(connection: Connection, request: Request) -> _Selection:
    relations = tuple(chosen(connection, request))
    found = facts.members(connection, [relation.oid for relation in relations])
    for relation in relations:
        _refuse_foreign(relation, found.get(relation.oid, ()))
    members = {relation.oid: found[relation.oid] for relation in relations if not relation.is_lake_table}
    # Nothing of a role with fewer rights runs with those of the one that copies: docs/design/deputies.md.
    trust.require_readable(connection, {member.oid: member.name for those in members.values() for member in those})
    managed = [tables.get(connection, relation.name) for relation in relations if relation.is_managed]
    overlays = tuple(Name("frostline_overlay", table.internal) for table in managed)
    return _Selection(relations, members, overlays)


def take(holder: Holder, connection: Connection, request: Request) -> _Selection:
    """Lock the tables and take the snapshot: what is found under it is what is locked.

    Tried again when a table was dropped, altered or made in between; UnavailableError after a minute.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        selection = _find(connection, request)
        trouble = holder.begin(selection.locked)
        if trouble is None and _find(holder.connection, request) == selection:
            return selection
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the tables of snapshot {request.name!r} cannot be locked: {trouble or 'they keep changing'}",
                hint="end the transactions that alter or lock them, then run the command again",
            )
        time.sleep(_PAUSE_S)


def make(
    holder: Holder, connection: Connection, request: Request, destination: "Destination", known: Mapping[Name, Known]
) -> Plan:
    """Everything that the copy needs to know, read under the snapshot that the holder holds from now on."""
    selection = take(holder, connection, request)
    planner = _Planner(holder.connection, destination, known, target.find(holder.connection, selection.read))
    sources: list[Source] = []
    for relation in selection.relations:
        sources.append(planner.source(relation, selection.members.get(relation.oid, ())))
        holder.watch()  # a catalog outside takes its time
    return Plan(holder.export(), Taken(*holder.position()), tuple(sources))


@dataclass(frozen=True)
class _Planner:
    """Reads what is to be known of each table, under the snapshot."""

    connection: Connection
    destination: "Destination"
    known: Mapping[Name, Known]
    targets: Mapping[Name, Target]

    def source(self, relation: Relation, members: Sequence[Member]) -> Source:
        """Where the rows of a table are, and what its copy goes on from."""
        managed = tables.get(self.connection, relation.name) if relation.is_managed else None
        in_lake = self._in_lake(relation) if relation.is_lake_table else None
        plain = managed.columns if managed else _of_lake(in_lake) if in_lake else _columns(self.connection, relation)
        known = self.known.get(relation.name)
        base = self.destination.base(relation, known)
        columns, last = fields.evolve(plain, base.columns if base else (), base.last_field_id if base else 0)
        table = TableCopy(relation.name, columns, managed.tier if managed else None)
        cold = self._cold(managed) if managed else None
        return Source(
            table=table,
            number=relation.number,
            heaps=tuple(self._heaps(members, cold)),
            location=self.destination.location(table, base),
            base=base,
            previous=known.copied.metadata_location if known and known.is_current else None,
            last_field_id=last,
            cold=cold,
            in_lake=in_lake,
        )

    @cached_property
    def _pointers(self) -> Mapping[int, LakePointer]:
        """Where all lake tables are, under the snapshot: one cut."""
        return {pointer.id: pointer for pointer in lake_tables.listed(self.connection)}

    def _in_lake(self, relation: Relation) -> InLake:
        """What a lake table consists of. Its files stay: expiry and purge ask for snapshots that are being made."""
        pointer = self._pointers.get(relation.number)
        if pointer is None:
            raise UsageError(
                f"{relation.name} is the foreign table of a lake table that the catalog does not have",
                hint=f"drop foreign table {relation.name}, or leave it out: --exclude '{relation.name}'",
            )
        point.require_rights(self.connection, relation.name, relation.name)
        try:
            return _read(relation.name, pointer.metadata_location)
        except (UsageError, UnavailableError) as error:
            if error.__cause__ is not None:  # it was the store
                raise
            hint = f"leave it out: --exclude '{relation.name}'"
            raise UsageError(f"{relation.name}: {error.message}", hint=hint) from None

    def _heaps(self, members: Sequence[Member], cold: Cold | None) -> Iterator[Target]:
        """The relations with rows of their own; of a managed table not those that lie below the frost line."""
        below: set[Name] = set()
        if cold:
            parts = heap.partitions(self.connection, cold.table, sizes=False)
            below = {partition.name for partition in parts if not partition.reaches_above(cold.line)}
        for member in members:
            if member.kind == "r" and member.name not in below and self.targets[member.name].blocks:
                yield self.targets[member.name]

    def _cold(self, managed: Table) -> Cold:
        seam = seams.get(self.connection, managed)
        overlay = self.targets[Name("frostline_overlay", managed.internal)]
        marks = heap.marks(self.connection, managed, None, seam.frost_line)
        if marks:
            target.require_same_names(managed, overlay)
        recorded = tuple(lake_files.recorded(self.connection, managed))
        return Cold(managed, seam.frost_line, overlay, recorded, marks)


def _refuse_foreign(relation: Relation, members: Sequence[Member]) -> None:
    for member in members:
        if relation.is_lake_table and member.oid != relation.oid:
            raise UsageError(
                f"{relation.name} is a lake table, and {member.name} inherits from it, which is not copied with it",
                hint=f"leave it out: --exclude '{relation.name}'",
            )
        if member.kind == "f" and not relation.is_lake_table:
            raise UsageError(
                f"{relation.name} has the foreign table {member.name} in it, which no snapshot reaches",
                hint=f"leave it out: --exclude '{relation.name}'",
            )


def _read(name: Name, location: str) -> InLake:
    metadata = snapshots.read_metadata(location)
    table = TableCopy(name, pg_types.columns(metadata))
    listed = files.of_lake_table(table, location, metadata.current_snapshot_id, pieces.EVERY_ROW)
    return InLake(table, location, listed)


def _of_lake(in_lake: InLake) -> tuple[Column, ...]:
    """The columns, known by what never changes and is never given again, which in the lake are not their places."""
    return tuple(replace(column, attnum=column.field_id) for column in in_lake.table.columns)


def _columns(connection: Connection, relation: Relation) -> tuple[Column, ...]:
    columns = facts.read_columns(connection, relation.oid)
    if not columns:
        hint = f"leave it out: --exclude '{relation.name}'"
        raise UsageError(f"{relation.name} has no columns, and Parquet cannot hold its rows", hint=hint)
    return tuple(tables.column(column, 0, encoding(column.pg_type, column.collation)) for column in columns)


def ranges(source: Source, shard_bytes: int) -> Iterator[tuple[Target, int, int | None, int]]:
    """The block ranges of the table's heaps, with how many bytes each has."""
    for read in source.heaps:
        for first, last in block_ranges(read.blocks, shard_bytes // BLOCK_BYTES):
            yield read, first, last, ((read.blocks if last is None else last + 1) - first) * BLOCK_BYTES
