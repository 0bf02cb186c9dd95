"""Where the copies of a snapshot are published: the catalog in Postgres, or a REST catalog outside of it."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import psycopg
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata

from frostline.catalog import snapshot_versions
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import Move
from frostline.catalog.snapshot_versions import Copied, Known, Place, Run, Taken
from frostline.errors import ConflictError, UnavailableError, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import commit, paths, publish, rest, schema, snapshots, transaction
from frostline.lake.commit import Staging
from frostline.lake.datafiles import WrittenFile
from frostline.lake.recording import Recording, TableChange, shows
from frostline.lake.transaction import Outcome
from frostline.model import snapshot
from frostline.model.names import Name
from frostline.model.snapshot import Relation
from frostline.model.tables import NO_ROWS, TableCopy
from frostline.settings import Settings

BUILT_IN = Place()


@dataclass(frozen=True)
class Staged:
    """A table whose new version is written, and which nothing points to yet."""

    copied: Copied
    previous: str | None = None
    """Where the built-in catalog must point now."""


class Destination(Protocol):
    """What a run needs of a catalog."""

    def base(self, relation: Relation, known: Known | None) -> Copied | None:
        """The copy that a new one goes on from."""
        ...

    def location(self, table: TableCopy, base: Copied | None) -> str:
        """The folder of the copy."""
        ...

    def stage(self, table: TableCopy, base: Copied | None, location: str, files: Sequence[WrittenFile]) -> IcebergTable:
        """Write a new version of the copy; nothing points to it yet."""
        ...

    def publish(self, taken: Taken, staged: Sequence[Staged], known: Mapping[Name, Known]) -> bool:
        """Make all of it visible; says whether that was at one moment."""
        ...


@dataclass(frozen=True)
class _Common:
    connection: Connection
    settings: Settings
    name: str
    run: Run

    def identifier(self, name: Name) -> tuple[str, str, str]:
        """Of a copy."""
        return self.name, name.schema, name.table

    @property
    def summary(self) -> dict[str, str]:
        """What the Iceberg snapshots of the run say of it."""
        version = str(self.run.version)
        return {commit.SNAPSHOT: self.name, commit.VERSION: version, commit.DATABASE: self.run.server}


@dataclass(frozen=True)
class BuiltIn(_Common):
    """The Iceberg catalog in Postgres: one transaction over all pointers and our own rows."""

    def base(self, relation: Relation, known: Known | None) -> Copied | None:
        """A copy of the same table, made by this very lineage, in this warehouse."""
        if known is None or not known.is_ours or known.copied.source_oid != relation.number:
            return None
        root = paths.snapshot_root(self.settings.warehouse, self.name)
        return known.copied if known.copied.metadata_location.startswith(f"{root}/") else None

    def location(self, table: TableCopy, base: Copied | None) -> str:
        """The folder of the base, or a new one with the token of this run."""
        if base:
            return base.metadata_location.rpartition("/metadata/")[0]
        return paths.copy_location(self.settings.warehouse, self.name, table.name, self.run.token)

    def stage(self, table: TableCopy, base: Copied | None, location: str, files: Sequence[WrittenFile]) -> IcebergTable:
        """Write manifests and a metadata file."""
        old = base.metadata_location if base else None
        before = (old, snapshots.read_metadata(old)) if old else location
        staging = Staging(paths.commit_uuid(self.run.id))
        return commit.stage_copy(table, self.identifier(table.name), before, files, self.summary, staging)

    def publish(self, taken: Taken, staged: Sequence[Staged], known: Mapping[Name, Known]) -> bool:
        """One transaction, and no lock that anybody waits for."""
        self.connection.execute("select 1")  # the lock of the name goes with this session: without it, nothing is sent
        hint = f"frostline snapshot list {self.name} shows whether version {self.run.version} is there"
        with publish.transaction(self.connection, f"publishing {self.name!r}", hint=hint):
            moves = [Move(table.copied.pointer, table.previous, table.copied.metadata_location) for table in staged]
            now = {table.copied.name for table in staged}
            gone = [table.copied.pointer for name, table in known.items() if table.is_current and name not in now]
            publish.copies(self.connection, self.name, moves, gone)
            snapshot_versions.publish(self.connection, self.run, taken, [table.copied for table in staged])
            reached(Failpoint.SNAPSHOT_BEFORE_COMMIT)
        return True


@dataclass(frozen=True)
class OnRest(_Common):
    """A REST catalog: one transaction there where it takes them, then our own rows."""

    catalog: rest.Catalog
    owners: frozenset[str]
    """The lineages whose tables this database goes on with."""
    require_atomic: bool = False
    tables: dict[Name, IcebergTable] = field(default_factory=dict[Name, IcebergTable])
    changes: list[TableChange] = field(default_factory=list[TableChange])

    def base(self, relation: Relation, known: Known | None) -> Copied | None:
        """What the catalog has. ConflictError when somebody else has put something there."""
        rest.ensure_namespaces(self.catalog, [self.identifier(relation.name)])
        present = rest.load(self.catalog, self.identifier(relation.name))
        if present is None:
            return None
        self.tables[relation.name] = present
        _refuse_others(self.identifier(relation.name), present, self.owners)
        current = present.current_snapshot()
        if current is None or not known or known.copied.lake_snapshot_id != current.snapshot_id:
            return self._unlike(relation, present)
        is_same = known.is_ours and known.copied.source_oid == relation.number
        return known.copied if is_same else self._unlike(relation, present)

    def _unlike(self, relation: Relation, present: IcebergTable) -> Copied:
        """Go on from the table, but with new ids for all columns: it was the copy of another table."""
        return Copied(
            name=relation.name,
            namespace=snapshot.namespace(self.name, relation.name),
            lake_table=relation.name.table,
            metadata_location=present.metadata_location,
            lake_snapshot_id=None,
            size_bytes=0,
            fingerprint=NO_ROWS,
            source_oid=relation.number,
            columns=(),
            last_field_id=present.metadata.last_column_id,
        )

    def location(self, table: TableCopy, base: Copied | None) -> str:  # noqa: ARG002
        """Where the catalog wants it: many take files nowhere else."""
        present = self.tables.get(table.name)
        if present:
            return present.location()
        return rest.location_for(self.catalog, self.identifier(table.name), schema.iceberg_schema(table))

    def stage(self, table: TableCopy, base: Copied | None, location: str, files: Sequence[WrittenFile]) -> IcebergTable:
        """Write manifests, and remember what the catalog is to be asked for."""
        present = self.tables.get(table.name) if base else None
        staging = Recording(paths.commit_uuid(self.run.id))
        before: tuple[str, TableMetadata] | str = (present.metadata_location, present.metadata) if present else location
        staged = commit.stage_copy(table, self.identifier(table.name), before, files, self.summary, staging)
        change = staging.change(staged, present.metadata if present else None)
        assert change is not None
        self.changes.append(change)
        return staged

    def publish(self, taken: Taken, staged: Sequence[Staged], known: Mapping[Name, Known]) -> bool:  # noqa: ARG002
        """The catalog first, then our rows. In between the outcome counts as unknown, and no file of it goes.

        A table that is not in this version stays in the catalog for as long as an older version has it: there are
        catalogs that delete the files of what is dropped.
        """
        copied = [replace(table.copied, location=_folder(self.tables, table.copied)) for table in staged]
        snapshot_versions.prepare(self.connection, self.run, taken, copied)
        reached(Failpoint.SNAPSHOT_BEFORE_COMMIT)
        outcome = self._commit()
        reached(Failpoint.REST_COMMITTED)
        atomic = outcome.atomic and not outcome.created_first
        locations = {Name(*identifier[1:]): location for identifier, location in outcome.locations.items()}
        snapshot_versions.settle(self.connection, self.run.id, locations, atomic=atomic)
        return atomic

    def _commit(self) -> Outcome:
        """Tell the catalog. Only an error that says that nothing has changed lets the run count as failed."""
        try:
            return transaction.commit_all(self.catalog, self.changes, require_atomic=self.require_atomic)
        except (UsageError, ConflictError, UnavailableError) as error:
            with suppress(psycopg.OperationalError):  # then the next run finds out
                snapshot_versions.refused(self.connection, self.run.id)
            if isinstance(error, ConflictError):
                self._refuse_rivals()
            raise

    def _refuse_rivals(self) -> None:
        """After a conflict: if the next run would be refused because of it, say at once what helps."""
        for change in self.changes:
            with suppress(UnavailableError, UsageError):
                present = rest.load(self.catalog, change.identifier)
                if present is not None:
                    _refuse_others(change.identifier, present, self.owners)


def _folder(tables: Mapping[Name, IcebergTable], copied: Copied) -> str | None:
    present = tables.get(copied.name)
    return present.location() if present else copied.location


def _refuse_others(identifier: tuple[str, ...], present: IcebergTable, owners: frozenset[str]) -> None:
    """A table without rows, or one whose last version is of this snapshot and this database, is one to go on from."""
    made_by = maker(identifier[0], present)
    if present.current_snapshot() is None or made_by in owners:
        return
    if made_by is None:
        raise ConflictError(
            f"{'.'.join(identifier)} in the catalog was committed to by somebody else",
            hint="choose another name for the snapshot, or drop that table from the catalog",
        )
    raise ConflictError(
        f"{'.'.join(identifier)} in the catalog is of another database's snapshot {identifier[0]!r}",
        hint="choose another name for the snapshot, or drop that table from the catalog\n"
        "if this database was restored or promoted from that one, which is gone: frostline sweep --take-over",
    )


def maker(name: str, table: IcebergTable) -> str | None:
    """The lineage of the database whose snapshot of this name the table's last version is of, if it is of one."""
    current = table.current_snapshot()
    summary = current.summary if current else None
    return summary.get(commit.DATABASE) if summary and summary.get(commit.SNAPSHOT) == name else None


def place(settings: Settings) -> Place:
    """The catalog that the settings name."""
    return Place(settings.catalog_uri, settings.catalog_warehouse) if settings.catalog_uri else BUILT_IN


@contextmanager
def opened(
    connection: Connection, settings: Settings, name: str, run: Run, *, require_atomic: bool = False
) -> Generator[Destination]:
    """The catalog that the settings name."""
    if place(settings) == BUILT_IN:
        yield BuiltIn(connection, settings, name, run)
        return
    with rest.opened(settings) as catalog:
        if require_atomic:
            transaction.refuse_unless_atomic(catalog)
        owners = snapshot_versions.owners(connection)
        yield OnRest(connection, settings, name, run, catalog, owners, require_atomic)


def settle(connection: Connection, settings: Settings, name: str) -> None:
    """Look in the REST catalog what became of runs whose outcome was unknown.

    All their tables there: published. None: failed, if it was an hour ago. Some: it stays unknown, and the next version
    goes on from it.
    """
    versions = snapshot_versions.versions(connection, name, include_unpublished=True)
    unknown = [version for version in versions if version.state == "unknown" and version.place == place(settings)]
    if not unknown:
        return
    with rest.opened(settings) as catalog:
        for version in unknown:
            tables = [table for table in snapshot_versions.tables(connection, version) if not table.reused]
            there = {table.name: location for table in tables for location in _committed(catalog, name, table)}
            if len(there) == len(tables):
                snapshot_versions.settle(connection, version.id, there, atomic=False)
            elif not there:
                snapshot_versions.give_up(connection, version.id)


def _committed(catalog: rest.Catalog, name: str, shown: snapshot_versions.Shown) -> Iterator[str]:
    """Where the catalog has the metadata, if the table has the snapshot."""
    present = rest.load(catalog, (name, shown.name.schema, shown.name.table))
    if present and shows(present.metadata, shown.lake_snapshot_id):
        yield present.metadata_location
