"""Nodes: another Postgres reads and writes the lake tables of a catalog, with a lake server of its own.

A node has no state but the foreign tables: docs/design/many-nodes.md. Attaching again brings it up to date.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from frostline.catalog import lake_tables, migrations, warehouses
from frostline.catalog.connect import Connection, connect
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.catalog.warehouses import Warehouse
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tables import Column
from frostline.relation import foreign_server, node_tables
from frostline.relation.node_tables import Attached
from frostline.runtime.install import lake_password, write_home
from frostline.settings import Settings


@dataclass(frozen=True)
class Change:
    """What became of one foreign table."""

    table: Name
    lake_table: Name | None
    """None for one that is gone from the catalog."""
    done: str
    columns: tuple[str, ...] = ()
    """Those that were added (+), dropped (-) or altered (~)."""


@dataclass(frozen=True)
class _LakeTable:
    pointer: LakePointer
    columns: tuple[Column, ...]
    schema_id: int
    names: Mapping[str, Mapping[str, int]]
    """The names that columns have or had and their ids, by the schema that a foreign table names."""


def attach(settings: Settings, home: Path | None, names: Sequence[Name], schema: str | None) -> list[Change]:
    """Make or bring up to date the foreign tables of these lake tables, or of all, in one transaction.

    New ones are in `schema`, or in the one that the catalog has them in. With a home, `frostline serve --home` is then
    the node's lake server.
    """
    if settings.catalog_dsn is None:
        raise UsageError("no catalog is named", hint="--catalog DSN: of the database that frostline init prepared")
    with (
        connect(settings.dsn, purpose="lake attach") as node,
        connect(settings.catalog_dsn, purpose="lake attach") as catalog,
    ):
        migrations.require(catalog)
        migrations.refuse_unfit(node)
        _refuse_catalog(node)
        warehouse = claimed(catalog)
        settings = settings.model_copy(update={"warehouse": warehouse.location})
        tables = _described(_chosen(catalog, names), settings, catalog)
        with node.transaction():
            node_tables.lock(node)
            node_tables.require_catalog(node, warehouse.identity)
            password = lake_password(settings, node)
            _let_in(node, settings, password)
            node_tables.set_catalog(node, warehouse.identity)
            _refuse_other_types(node, catalog, tables)
            done = _bring(node, tables, schema) + _drop_gone(node, catalog)
    if home:
        write_home(home, settings.model_copy(update={"lake_password": SecretStr(password)}))
    return done


def claimed(catalog: Connection) -> Warehouse:
    """The catalog's warehouse; its identity is the catalog's, too."""
    known = warehouses.find(catalog)
    if known is None:
        raise UsageError("the catalog has no warehouse yet", hint="frostline init --warehouse URI, with its database")
    return known


def _refuse_catalog(node: Connection) -> None:
    if migrations.version(node) is not None:
        raise UsageError(
            f"database {node.info.dbname} has a catalog of its own, so it is no node",
            hint="attach in another database; lake tables of its own catalog are there already",
        )


def _chosen(catalog: Connection, names: Sequence[Name]) -> list[LakePointer]:
    if not names:
        return lake_tables.listed(catalog)
    return [lake_tables.load(catalog, Pointer(name.schema, name.table)) for name in names]


def _described(tables: Sequence[LakePointer], settings: Settings, catalog: Connection) -> list[_LakeTable]:
    """What their metadata says. Reads the warehouse, which the node's lake server will have to reach too."""
    from frostline.lake import lake_columns, pg_types, snapshots, warehouse  # noqa: PLC0415  (Iceberg is slow to load)

    warehouse.require(catalog, settings.warehouse)
    read = [(table, snapshots.read_metadata(table.metadata_location)) for table in tables]
    return [
        _LakeTable(table, pg_types.columns(metadata), metadata.current_schema_id, lake_columns.names(metadata))
        for table, metadata in read
    ]


def _let_in(node: Connection, settings: Settings, password: str) -> None:
    foreign_server.ensure(
        node,
        host=settings.lake_host,
        port=settings.lake_port,
        user=settings.lake_user,
        password=password,
        passfile=settings.lake_passfile,
    )
    foreign_server.open_to_all(node)


def _refuse_other_types(node: Connection, catalog: Connection, tables: Sequence[_LakeTable]) -> None:
    columns = [column for table in tables for column in table.columns]
    wrong = node_tables.missing_types(node_tables.types(node, columns), node_tables.types(catalog, columns))
    for name, problem in wrong.items():
        users = [str(each.pointer.name) for each in tables if name in {col.pg_type.formatted for col in each.columns}]
        raise UsageError(
            f"type {name}, which {', '.join(users)} needs, {problem}",
            hint="make it the same here, or name the other tables: --tables",
        )


def _bring(node: Connection, tables: Sequence[_LakeTable], schema: str | None) -> list[Change]:
    known, done = node_tables.attached(node), list[Change]()
    for table in tables:
        here = [each for each in known if each.lake_table_id == table.pointer.id]
        if not here:
            name = Name(schema or table.pointer.namespace, table.pointer.table)
            node_tables.create(node, name, table.pointer.id, table.columns, table.schema_id)
            done.append(Change(name, table.pointer.name, "attached"))
        done += [_followed(node, each, table) for each in here]
    return done


def _followed(node: Connection, here: Attached, table: _LakeTable) -> Change:
    changed = node_tables.follow(node, here, table.names, table.columns, table.schema_id)
    return Change(here.name, table.pointer.name, "altered" if changed else "unchanged", tuple(changed))


def _drop_gone(node: Connection, catalog: Connection) -> list[Change]:
    """Foreign tables whose lake table was dropped."""
    there = {table.id for table in lake_tables.listed(catalog)}
    gone = [each for each in node_tables.attached(node) if each.lake_table_id not in there]
    for each in gone:
        node_tables.drop(node, each)
    return [Change(each.name, None, "dropped") for each in gone]


def detach(settings: Settings) -> list[Change]:
    """Take away what `attach` has made, in one transaction. The extension postgres_fdw stays."""
    with connect(settings.dsn, purpose="lake detach") as node:
        _refuse_catalog(node)
        with node.transaction():
            node_tables.lock(node)
            return [Change(name, None, "detached") for name in node_tables.drop_all(node)]
