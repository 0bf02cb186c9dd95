"""`frostline lake`: tables that live in the lake alone."""

from typing import Any

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE
from frostline.model.names import Name, quoted


@click.group()
def lake() -> None:
    """Tables that live in the lake alone, read and written from Postgres."""


@lake.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option(
    "--column",
    "columns",
    multiple=True,
    required=True,
    metavar="DEFINITION",
    help="A column as CREATE TABLE has it: NAME TYPE [NOT NULL] [DEFAULT ...]; the option again for the next.",
)
@click.option("--partition", multiple=True, metavar="TRANSFORM", help="day(ts), bucket(16, id), or just a column.")
@click.option("--sort", multiple=True, metavar="COLUMN", help="What the rows of a file are sorted by: ts, or ts desc.")
@click.pass_obj
def create(
    invocation: Invocation, name: Name, columns: tuple[str, ...], partition: tuple[str, ...], sort: tuple[str, ...]
) -> None:
    """Make a lake table, and the foreign table in Postgres through which it is read and written."""
    from frostline.lake.lake_table import Layout  # noqa: PLC0415  (Iceberg is slow to load)
    from frostline.pipeline import lake_tables  # noqa: PLC0415

    with invocation.catalog() as connection:
        made = lake_tables.create(connection, invocation.settings(), name, columns, Layout(partition, sort))
    invocation.output.record({"table": str(name), "lake_table": made.id, "location": made.location})


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
        "columns": ", ".join(f"{quoted(column.name)} {column.pg_type.formatted}" for column in shown.columns),
        "partition": ", ".join(shown.partition),
        "sort": ", ".join(shown.sort),
        "rows": shown.rows,
        "files": shown.files,
        "delete_files": shown.delete_files,
        "size_bytes": shown.size_bytes,
        "snapshot": shown.snapshot_id,
        "snapshots": shown.snapshots,
        "metadata": shown.pointer.metadata_location,
    }
    invocation.output.record(record)


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
