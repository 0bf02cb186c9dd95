"""The catalog that a node is attached to: the database of another Frostline, or an Iceberg REST catalog.

docs/design/many-nodes.md, docs/design/rest-nodes.md
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from frostline.catalog import lake_tables, migrations, warehouses
from frostline.catalog.connect import Connection, connect
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.catalog.warehouses import Warehouse
from frostline.errors import FrostlineError, UsageError
from frostline.model.names import Name
from frostline.model.tables import Column
from frostline.relation import node_tables
from frostline.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from frostline.lake.rest import Catalog
    from frostline.lake.rest_tables import Loaded, Place


@dataclass(frozen=True)
class Described:
    """A lake table of the catalog, as its metadata has it."""

    pointer: LakePointer
    columns: tuple[Column, ...]
    schema_id: int
    names: Mapping[str, Mapping[str, int]]
    """The names that columns have or had and their ids, by the schema that a foreign table names."""


class NodeCatalog(Protocol):
    """A catalog, while a node is attached to it."""

    @property
    def identity(self) -> str:
        """What it is known by later."""
        ...

    @property
    def warehouse(self) -> str:
        """Where its lake tables are."""
        ...

    @property
    def shows_all(self) -> bool:
        """Whether a table that it does not have was dropped; else it may just not be shown to us."""
        ...

    def described(self, names: Sequence[Name]) -> tuple[list[Described], Mapping[Name, str]]:
        """The tables of these names, or all that can be attached, and why the others cannot. Reads the warehouse."""
        ...

    def ids(self) -> Collection[int]:
        """Of all its lake tables."""
        ...

    def types(self, columns: Sequence[Column]) -> Mapping[str, str | None]:
        """What types of the columns that are not Postgres' own consist of."""
        ...


@contextmanager
def opened(settings: Settings) -> Generator[NodeCatalog]:
    """The catalog of the settings."""
    rest_catalog = settings.of_rest_catalog()
    if rest_catalog is not None:
        with _rest_opened(rest_catalog) as catalog:
            yield catalog
        return
    if settings.catalog_dsn is None:
        raise UsageError("no catalog is named", hint="--catalog DSN: of the database that frostline init prepared")
    with connect(settings.catalog_dsn, purpose="lake attach") as connection:
        migrations.require(connection)
        yield _InPostgres(connection, claimed(connection))


def claimed(catalog: Connection) -> Warehouse:
    """The catalog's warehouse; its identity is the catalog's, too."""
    known = warehouses.find(catalog)
    if known is None:
        raise UsageError("the catalog has no warehouse yet", hint="frostline init --warehouse URI, with its database")
    return known


class _InPostgres:
    """Implements `NodeCatalog` for our own."""

    shows_all = True

    def __init__(self, connection: Connection, known: Warehouse) -> None:
        self._connection = connection
        self.identity, self.warehouse = known.identity, known.location

    def described(self, names: Sequence[Name]) -> tuple[list[Described], Mapping[Name, str]]:
        """Each of them can be attached."""
        from frostline.lake import snapshots, warehouse  # noqa: PLC0415  (Iceberg is slow to load)

        tables = [lake_tables.load(self._connection, Pointer(name.schema, name.table)) for name in names]
        warehouse.require(self._connection, self.warehouse)
        return [
            _described(table, snapshots.read_metadata(table.metadata_location))
            for table in tables or lake_tables.listed(self._connection)
        ], {}

    def ids(self) -> Collection[int]:
        """As of now."""
        return {table.id for table in lake_tables.listed(self._connection)}

    def types(self, columns: Sequence[Column]) -> Mapping[str, str | None]:
        """As they are in its database."""
        return node_tables.types(self._connection, columns)


def _described(pointer: LakePointer, metadata: "TableMetadata") -> Described:
    from frostline.lake import lake_columns, pg_types  # noqa: PLC0415  (as above)

    return Described(pointer, pg_types.columns(metadata), metadata.current_schema_id, lake_columns.names(metadata))


def rest_identity(settings: Settings) -> str:
    """What a REST catalog is known by: its address, and the name of the warehouse there."""
    return " ".join(filter(None, (settings.catalog_uri, settings.catalog_warehouse)))


@contextmanager
def _rest_opened(settings: Settings) -> Generator["_OverRest"]:
    from frostline.lake import paths, rest, rest_publish  # noqa: PLC0415  (as above)

    with rest.opened(settings) as catalog:
        rest_publish.require_transactions(catalog)
        yield _OverRest(catalog, rest_identity(settings), paths.warehouse_location(settings.warehouse))


class _OverRest:
    """Implements `NodeCatalog` for an Iceberg REST catalog."""

    shows_all = False

    def __init__(self, catalog: "Catalog", identity: str, warehouse: str) -> None:
        self._catalog, self.identity, self.warehouse = catalog, identity, warehouse

    @cached_property
    def _loaded(self) -> "Loaded":
        from frostline.lake import rest_tables  # noqa: PLC0415  (as above)

        return rest_tables.load_all(self._catalog, rest_tables.names(self._catalog))

    def described(self, names: Sequence[Name]) -> tuple[list[Described], Mapping[Name, str]]:
        """Those that a node can serve; one that is named and that it cannot is an error."""
        from frostline.lake import rest_tables  # noqa: PLC0415  (as above)

        wanted = {(*name.schema.split("."), name.table) for name in names}
        places = [place for place in self._loaded.places if not wanted or place.identifier in wanted]
        refused = {name: why for name, why in self._loaded.refused.items() if not wanted or name in wanted}
        missing = wanted - {place.identifier for place in places} - refused.keys()
        if missing:
            raise UsageError(f"the catalog has no table {'.'.join(min(missing))}", hint="correct --tables")
        if refused and (wanted or not places):
            raise refused[min(refused)]
        left_out = {Name(".".join(name[:-1]), name[-1]): why.message for name, why in refused.items()}
        alone, found = rest_tables.by_id(self._loaded.places), list[Described]()
        for place in places:
            try:
                found.append(self._fit(place, is_alone=place.id in alone))
            except FrostlineError as error:
                if isinstance(error.__cause__, OSError):  # the store is not there
                    raise
                if names:
                    raise UsageError(error.message, hint=error.hint) from error
                left_out[place.pointer().name] = error.message
        return found, left_out

    def _fit(self, place: "Place", *, is_alone: bool) -> Described:
        from frostline.lake import rest_rules, snapshots  # noqa: PLC0415  (as above)

        if not is_alone:
            raise UsageError(f"{place.pointer().name} has two names", hint="take one of them out of the catalog")
        rest_rules.require_inside(place, self.warehouse)
        metadata = snapshots.read_metadata(place.metadata_location)
        rest_rules.require_attachable(metadata)
        described = _described(place.pointer(), metadata)
        node_tables.require_names(described.pointer.name, described.columns)
        return described

    def ids(self) -> Collection[int]:
        """Of all that are shown to us."""
        return {place.id for place in self._loaded.places}

    def types(self, columns: Sequence[Column]) -> Mapping[str, str | None]:  # noqa: ARG002
        """All are Postgres' own."""
        return {}
