"""`frostline lake`: tables that live in the lake alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import COLUMNS, ROLE, TABLE
from frostline.cli.policy import SIZE
from frostline.errors import UsageError
from frostline.model.lake_upkeep import POLICY
from frostline.model.names import Name, quoted
from frostline.settings import Settings

if TYPE_CHECKING:
    from frostline.runtime.node import Change

_OF_THE_CATALOG = "of the catalog"
"""Stands for a warehouse that nobody has named."""
_SNAPSHOTS = click.IntRange(1, 1_000_000)


@click.group()
def lake() -> None:
    """Tables that live in the lake alone, read and written from Postgres."""


@lake.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="DEFINITION",
    help="A column as CREATE TABLE has it: NAME TYPE [NOT NULL] [DEFAULT ...] [CHECK (...)]; repeat it for the next.",
)
@click.option(
    "--like",
    type=TABLE,
    metavar="[SCHEMA.]TABLE",
    help="Begin with the columns of this table, their NOT NULL, defaults, CHECKs and comments.",
)
@click.option(
    "--as",
    "query",
    metavar="QUERY",
    help="Make it with the columns and the rows of this query, whose tables are named with their schemas.",
)
@click.option(
    "--from",
    "source",
    type=TABLE,
    metavar="[SCHEMA.]TABLE",
    help="As --like, and with all rows of the table, of a managed one those of both tiers, and its rights.",
)
@click.option("--partition", multiple=True, metavar="TRANSFORM", help="day(ts), bucket(16, id), or just a column.")
@click.option("--sort", multiple=True, metavar="COLUMN", help="What the rows of a file are sorted by: ts, or ts desc.")
@click.option(
    "--key",
    default=(),
    type=COLUMNS,
    metavar="COLUMNS",
    help="What tells one row from another: id,ts. The columns are NOT NULL; whether it is unique is not looked at.",
)
@master_option
@click.pass_obj
def create(
    invocation: Invocation,
    name: Name,
    columns: tuple[str, ...],
    like: Name | None,
    query: str | None,
    source: Name | None,
    partition: tuple[str, ...],
    sort: tuple[str, ...],
    key: tuple[str, ...],
    master: str | None,
) -> None:
    """Make a lake table, and the foreign table in Postgres through which it is read and written."""
    from frostline.lake.lake_table import Layout  # noqa: PLC0415  (Iceberg is slow to load)
    from frostline.pipeline import lake_create_as, lake_tables  # noqa: PLC0415
    from frostline.relation import lake_foreign  # noqa: PLC0415

    layout = Layout(partition, sort, key)
    _refuse_two({"--as": query is not None, "--from": source, "--like": like, "--column": columns})
    taken, more = lake_foreign.NOTHING, dict[str, Any]()
    if query is not None:
        with invocation.jobs(master) as jobs:
            made, more["rows"] = lake_create_as.create(jobs, name, query, layout)
    elif source is not None:
        with invocation.jobs(master) as jobs:
            made, more["rows"], taken = lake_create_as.create_from(jobs, name, source, layout)
    else:
        with invocation.catalog() as connection:
            taken = lake_foreign.like(connection, like) if like else taken
            made = lake_tables.create(connection, invocation.settings(), name, columns, layout, taken)
    if source or like:
        more["not_taken_over"] = "; ".join(taken.left_behind) or "nothing"
    invocation.output.record({"table": str(name), "lake_table": made.id, "location": made.location, **more})


def _refuse_two(given: Mapping[str, Any]) -> None:
    """`--as` and `--from` say which columns there are, and nothing else does then."""
    for option in ("--as", "--from"):
        for other in given:
            if other != option and given[option] and given[other]:
                raise UsageError(f"{option} says which columns there are, and {other} too", hint=f"leave {other} out")


@lake.command()
@click.argument("name", type=TABLE, metavar="NAMESPACE.TABLE")
@click.option("--metadata", metavar="LOCATION", help="Its metadata file, where the Iceberg catalog has no such table.")
@click.option("--foreign-table", type=TABLE, metavar="[SCHEMA.]TABLE", help="What it is called here, if not the same.")
@click.pass_obj
def register(invocation: Invocation, name: Name, metadata: str | None, foreign_table: Name | None) -> None:
    """Give a table of the Iceberg catalog, or of the warehouse, a foreign table."""
    from frostline.catalog.pointers import Pointer  # noqa: PLC0415
    from frostline.pipeline import lake_register  # noqa: PLC0415

    pointer, here = Pointer(name.schema, name.table), foreign_table or name
    with invocation.catalog() as connection:
        made = lake_register.register(connection, invocation.settings(), pointer, here, metadata)
    invocation.output.record({"table": str(here), "lake_table": made.id, "location": made.location})


@lake.command(name="list")
@click.pass_obj
def list_tables(invocation: Invocation) -> None:
    """List the lake tables."""
    from frostline.catalog import lake_tables  # noqa: PLC0415

    with invocation.catalog() as connection:
        listed = lake_tables.listed(connection)
    invocation.output.records(
        [
            {"table": str(Name(table.namespace, table.table)), "owner": table.owner, "location": table.location}
            for table in listed
        ]
    )


@lake.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.pass_obj
def show(invocation: Invocation, name: Name) -> None:
    """Show what a lake table consists of."""
    from frostline.catalog import lake_tables as catalog  # noqa: PLC0415
    from frostline.catalog.pointers import Pointer  # noqa: PLC0415
    from frostline.pipeline import lake_tables  # noqa: PLC0415

    with invocation.catalog() as connection:
        shown = lake_tables.show(connection, catalog.load(connection, Pointer(name.schema, name.table)))
    record: dict[str, Any] = {
        "table": str(name),
        "foreign_tables": ", ".join(map(str, shown.foreign_tables)),
        "out_of_line": ", ".join(map(str, shown.out_of_line)),
        "columns": ", ".join(f"{quoted(column.name)} {column.pg_type.formatted}" for column in shown.columns),
        "partition": ", ".join(shown.partition),
        "sort": ", ".join(shown.sort),
        "key": ", ".join(shown.key),
        "checks": ", ".join(shown.checks),
        "rows": shown.rows,
        "files": shown.files,
        "delete_files": shown.delete_files,
        "size_bytes": shown.size_bytes,
        "snapshot": shown.snapshot_id,
        "snapshots": shown.snapshots,
        "snapshot_retention": str(shown.keeping.age).removesuffix(", 0:00:00"),
        "min_snapshots": shown.keeping.snapshots,
        "target_file_size_bytes": shown.target_file_size,
        "metadata": shown.pointer.metadata_location,
    }
    invocation.output.record(record)


@lake.command(name="set")
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option(
    "--snapshot-retention",
    metavar="INTERVAL",
    help="How long a state can be read after it was replaced, at least '10 minutes'.",
)
@click.option("--min-snapshots", type=_SNAPSHOTS, help="So many of each branch stay, however old they are.")
@click.option("--target-file-size", type=SIZE, help="What compact aims at: 256MB, 1GB.")
@click.option("--former-metadata", type=_SNAPSHOTS, help="So many former metadata files are named in the metadata.")
@click.option("--unset", type=click.Choice(POLICY), multiple=True, help="As if nobody had set it; repeat it.")
@click.pass_obj
def set_policy(
    invocation: Invocation,
    name: Name,
    snapshot_retention: str | None,
    min_snapshots: int | None,
    target_file_size: int | None,
    former_metadata: int | None,
    unset: tuple[str, ...],
) -> None:
    """Change the policy of a lake table's upkeep, in its own metadata.

    Without a policy, states stay for five days; of more than a thousand, for an hour.
    """
    from frostline.catalog import lake_tables as catalog  # noqa: PLC0415
    from frostline.catalog.pointers import Pointer  # noqa: PLC0415
    from frostline.pipeline import lake_properties  # noqa: PLC0415

    wanted = lake_properties.Wanted(snapshot_retention, min_snapshots, target_file_size, former_metadata, unset)
    with invocation.catalog() as connection:
        table = catalog.load(connection, Pointer(name.schema, name.table))
        done = lake_properties.set_policy(connection, invocation.settings(), table, wanted)
    invocation.output.record({"table": str(name), "metadata": done.location})


@lake.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.pass_obj
def sync(invocation: Invocation, name: Name, dry_run: bool) -> None:  # noqa: FBT001
    """Bring the foreign tables in Postgres in line with a lake table whose columns another engine has changed."""
    from frostline.catalog import lake_tables as catalog  # noqa: PLC0415
    from frostline.catalog.pointers import Pointer  # noqa: PLC0415
    from frostline.pipeline import lake_tables  # noqa: PLC0415

    with invocation.catalog() as connection:
        pointer = catalog.load(connection, Pointer(name.schema, name.table))
        done = lake_tables.sync(connection, pointer, dry_run=dry_run)
    invocation.output.records([{"foreign_table": str(table), "statement": statement} for table, statement in done])


@lake.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option(
    "--purge", is_flag=True, help="Delete the files too. Without it they stay, and other engines may use them."
)
@click.pass_obj
def drop(invocation: Invocation, name: Name, purge: bool) -> None:  # noqa: FBT001
    """Drop a lake table and its foreign tables in this database."""
    from frostline.pipeline import lake_tables  # noqa: PLC0415

    with invocation.catalog() as connection:
        deleted = lake_tables.drop(connection, invocation.settings(), name, purge=purge)
    invocation.output.record({"table": str(name), "deleted_files": deleted})


@lake.command()
@click.option(
    "--catalog",
    metavar="DSN-OR-URI",
    help="The database with the catalog, as a connection string, or the address of an Iceberg REST catalog.  "
    "[default: FROSTLINE_CATALOG_DSN]",
)
@click.option(
    "--token-file", help="Of a REST catalog: a file with the token. It is read again when the token is too old."
)
@click.option(
    "--warehouse",
    metavar="URI",
    help="Of a REST catalog: the folder or the bucket in which its tables are. What is elsewhere is not served.",
)
@click.option("--dsn", help="The Postgres that is to be a node, as a connection string.  [default: FROSTLINE_DSN]")
@click.option(
    "--tables",
    type=TABLE,
    multiple=True,
    metavar="[SCHEMA.]TABLE",
    help="This lake table; the option again for the next.  [default: all]",
)
@click.option(
    "--schema",
    type=ROLE,
    metavar="SCHEMA",
    help="Where new foreign tables go.  [default: the schema that the catalog has them in]",
)
@click.option(
    "--lake-port",
    type=click.IntRange(1, 65535),
    help="Port of the node's lake server.  [default: lake_port of the settings, 5433]",
)
@click.pass_obj
def attach(
    invocation: Invocation,
    catalog: str | None,
    token_file: str | None,
    warehouse: str | None,
    dsn: str | None,
    tables: tuple[Name, ...],
    schema: str | None,
    lake_port: int | None,
) -> None:
    """Make another Postgres a node: it reads and writes the lake tables of the catalog, with a lake server of its own.

    With --home, also write frostline.toml there: then `frostline serve --home DIR` is that lake server. Run it again
    when there are new lake tables, or some have other columns; nothing else changes.
    """
    from frostline.runtime import node  # noqa: PLC0415
    from frostline.runtime.install import with_home_if_made  # noqa: PLC0415

    invocation.home, target = with_home_if_made(invocation.home), invocation.home
    token = str(Path(token_file).absolute()) if token_file else None
    said = {"catalog_dsn": catalog, "catalog_token_file": token, "dsn": dsn, "lake_port": lake_port}
    given = {key: value for key, value in said.items() if value is not None}
    settings = _settings(invocation, given | ({"warehouse": warehouse} if warehouse else {}))
    is_rest = settings.of_rest_catalog() is not None
    if warehouse and not is_rest:
        raise UsageError("--warehouse is for a REST catalog: another one says where its is", hint="leave it out")
    if is_rest and settings.warehouse == _OF_THE_CATALOG:
        raise UsageError(
            "a REST catalog does not say where its warehouse is",
            hint="name the folder or the bucket that has its tables: --warehouse URI",
        )
    invocation.output.records(_changes(node.attach(settings, target, tables, schema)))


@lake.command()
@click.option("--dsn", help="The Postgres that is a node, as a connection string.  [default: FROSTLINE_DSN]")
@click.pass_obj
def detach(invocation: Invocation, dsn: str | None) -> None:
    """Take away all that `lake attach` has made in a node. The lake tables and the extension postgres_fdw stay."""
    from frostline.runtime import node  # noqa: PLC0415

    settings = _settings(invocation, {"dsn": dsn} if dsn else {})
    invocation.output.records(_changes(node.detach(settings)))


def _settings(invocation: Invocation, given: Mapping[str, Any]) -> Settings:
    """Those of a node, which need not say where the warehouse is."""
    try:
        return invocation.settings(given)
    except UsageError:  # if it is about anything else, it comes again
        return invocation.settings({"warehouse": _OF_THE_CATALOG, **given})


def _changes(changes: "Sequence[Change]") -> list[dict[str, Any]]:
    return [
        {
            "table": str(change.table),
            "lake_table": str(change.lake_table) if change.lake_table else None,
            "change": change.done,
            "columns": ", ".join(change.columns) or None,
        }
        for change in changes
    ]
