"""`frostline table convert`: make an unpartitioned table a partitioned one, while it is used."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from frostline.catalog import tables
from frostline.catalog.connect import Connection
from frostline.cli.invocation import Invocation
from frostline.cli.names import ROLE, TABLE
from frostline.errors import UsageError
from frostline.model.conversion import Conversion
from frostline.model.names import Name
from frostline.model.policy import Mode

if TYPE_CHECKING:
    from frostline.partitions.convert.conversion import Converted, Report
    from frostline.partitions.convert.conversion import Progress as Stage
    from frostline.relation.registration import Request


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--partition-by", type=ROLE, metavar="COLUMN", help="The tier key: a time or an integer column.")
@click.option(
    "--every",
    "partition_interval",
    help="Width of a partition: month, day, '3 months'; for integer tier keys a number.",
)
@click.option("--keep-old", is_flag=True, help="Keep the old table, in a schema of its own.")
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.option("--abandon", is_flag=True, help="Remove what an unfinished conversion has made.")
@click.pass_obj
def convert(invocation: Invocation, name: Name, dry_run: bool, abandon: bool, **requested: Any) -> None:  # noqa: FBT001
    """Partition a table while it is read and written. Run it again to go on after an interruption.

    The tier key becomes part of the primary key.
    """
    if abandon:
        _abandon(invocation, name)
    else:
        _convert(invocation, request(name, **requested), dry_run=dry_run)


def request(
    name: Name, partition_by: str | None, partition_interval: str | None, *, keep_old: bool = False
) -> Conversion:
    """What the options ask for; both of them are needed."""
    if partition_by is None or partition_interval is None:
        hint = f"for example: frostline table convert {name} --partition-by ts --every month"
        raise UsageError("--partition-by and --every say how to cut the table", hint=hint)
    return Conversion(name, partition_by, partition_interval, keep_old)


def _convert(invocation: Invocation, wanted: Conversion, *, dry_run: bool) -> None:
    from frostline.partitions.convert import conversion  # noqa: PLC0415

    with invocation.catalog() as connection, converting() as report:
        if dry_run:
            for statement in conversion.plan(connection, wanted):
                invocation.output.line(statement)
        else:
            invocation.output.record(_described(conversion.convert(connection, wanted, report)))


def convert_first(
    invocation: Invocation, connection: Connection, wanted: "Request", mode: Mode, column: str, *, dry_run: bool
) -> bool:
    """Convert a table that is about to be managed; a policy that cannot be is refused before. True after a dry run."""
    from frostline.partitions.convert import conversion  # noqa: PLC0415
    from frostline.relation import policy  # noqa: PLC0415

    if tables.find(connection, wanted.name):
        return False
    cut = request(wanted.name, column, wanted.policy.partition_interval)
    policy.check(connection, conversion.tier_kind(connection, cut), mode, wanted.policy)
    if dry_run:
        for statement in conversion.plan(connection, cut):
            invocation.output.line(statement)
        return True
    with converting() as report:
        conversion.convert(connection, cut, report)
    return False


def _abandon(invocation: Invocation, name: Name) -> None:
    from frostline.partitions.convert import conversion  # noqa: PLC0415

    with invocation.catalog() as connection:
        there_was = conversion.abandon(connection, name)
    invocation.output.say(f"{name} is as it was" if there_was else f"{name} is not being converted")


def _described(result: "Converted") -> dict[str, Any]:
    return {
        "table": str(result.name),
        "changed": result.changed,
        "copied_rows": result.rows,
        "old_table": None if result.old is None else str(result.old),
    }


@contextmanager
def converting() -> Generator["Report"]:
    """Show rows and the time left while the block runs, when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _stage: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} rows"))
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=None)

        def report(stage: "Stage") -> None:
            bar.update(task, description=str(stage.name), completed=stage.rows, total=stage.rows_estimate)

        yield report
