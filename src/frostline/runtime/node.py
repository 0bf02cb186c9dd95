"""Nodes: another Postgres reads and writes the lake tables of a catalog, with a lake server of its own.

A node has no state but the foreign tables: docs/design/many-nodes.md. Attaching again brings it up to date.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from frostline.catalog import migrations
from frostline.catalog.connect import Connection, connect
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.relation import foreign_server, node_tables
from frostline.relation.node_tables import Attached
from frostline.runtime import node_catalogs
from frostline.runtime.install import lake_password, write_home
from frostline.runtime.node_catalogs import Described, NodeCatalog
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


def attach(settings: Settings, home: Path | None, names: Sequence[Name], schema: str | None) -> list[Change]:
    """Make or bring up to date the foreign tables of these lake tables, or of all, in one transaction.

    New ones are in `schema`, or in the one that the catalog has them in. With a home, `frostline serve --home` is then
    the node's lake server.
    """
    with connect(settings.dsn, purpose="lake attach") as node, node_catalogs.opened(settings) as catalog:
        migrations.refuse_unfit(node)
        _refuse_catalog(node)
        settings = settings.model_copy(update={"warehouse": catalog.warehouse})
        tables, left_out = catalog.described(names)
        with node.transaction():
            node_tables.lock(node)
            node_tables.require_catalog(node, catalog.identity)
            password = lake_password(settings, node)
            _let_in(node, settings, password)
            node_tables.set_catalog(node, catalog.identity)
            _refuse_other_types(node, catalog, tables)
            done = _bring(node, tables, schema) + _gone(node, catalog)
    done += [
        Change(Name(schema or name.schema, name.table), name, f"left out: {why}") for name, why in left_out.items()
    ]
    if home:
        write_home(home, settings.model_copy(update={"lake_password": SecretStr(password)}))
    return done


def _refuse_catalog(node: Connection) -> None:
    if migrations.version(node) is not None:
        raise UsageError(
            f"database {node.info.dbname} has a catalog of its own, so it is no node",
            hint="attach in another database; lake tables of its own catalog are there already",
        )


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


def _refuse_other_types(node: Connection, catalog: NodeCatalog, tables: Sequence[Described]) -> None:
    columns = [column for table in tables for column in table.columns]
    wrong = node_tables.missing_types(node_tables.types(node, columns), catalog.types(columns))
    for name, problem in wrong.items():
        users = [str(each.pointer.name) for each in tables if name in {col.pg_type.formatted for col in each.columns}]
        raise UsageError(
            f"type {name}, which {', '.join(users)} needs, {problem}",
            hint="make it the same here, or name the other tables: --tables",
        )


def _bring(node: Connection, tables: Sequence[Described], schema: str | None) -> list[Change]:
    known, done = node_tables.attached(node), list[Change]()
    for table in tables:
        here = [each for each in known if each.lake_table_id == table.pointer.id]
        if not here:
            name = Name(schema or table.pointer.namespace, table.pointer.table)
            node_tables.create(node, name, table.pointer.id, table.columns, table.schema_id)
            done.append(Change(name, table.pointer.name, "attached"))
        done += [_followed(node, each, table) for each in here]
    return done


def _followed(node: Connection, here: Attached, table: Described) -> Change:
    changed = node_tables.follow(node, here, table.names, table.columns, table.schema_id)
    return Change(here.name, table.pointer.name, "altered" if changed else "unchanged", tuple(changed))


def _gone(node: Connection, catalog: NodeCatalog) -> list[Change]:
    """Foreign tables whose lake table was dropped go. One that may just not be shown to us stays."""
    there = catalog.ids()
    gone = [each for each in node_tables.attached(node) if each.lake_table_id not in there]
    if not catalog.shows_all:
        return [Change(each.name, None, "not in the catalog") for each in gone]
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
