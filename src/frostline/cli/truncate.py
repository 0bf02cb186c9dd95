"""`frostline truncate`: empty both tiers of a table at once."""

import sys
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.pipeline.truncate import Result


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--restart-identity", is_flag=True, help="Let sequences of its columns begin again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.pass_obj
def truncate(invocation: Invocation, name: Name, restart_identity: bool, yes: bool, dry_run: bool) -> None:  # noqa: FBT001
    """Remove all rows of a table, of both tiers, for good and in one transaction: what TRUNCATE is for a plain table.

    All rows are hot afterwards, as when the table was new. The files of the lake stay until nobody can read them.
    """
    from frostline.pipeline import truncate as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        table = tables.with_lake(connection, name)
        done = job.planned(connection, table)
        if not dry_run:
            if not yes:
                _ask(done)
            done = job.run(connection, invocation.settings(), table, restart_identity=restart_identity)
    invocation.output.record(_described(done) | {"changed": not dry_run})


def _ask(planned: "Result") -> None:
    name = planned.table.name
    if not sys.stdin.isatty():
        raise UsageError(
            f"all rows of {name} would be gone for good, and there is nobody to ask",
            hint=f"frostline truncate {name} --yes; or --dry-run to see what would go",
        )
    question = f"Remove all rows of {name} for good: {planned.lake_rows} in the lake, and all in Postgres?"
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None
    if not is_sure:
        raise UsageError("nothing was changed", hint=f"to see what would go: frostline truncate {name} --dry-run")


def _described(result: "Result") -> dict[str, Any]:
    kind = result.table.tier_kind
    lines = [None if line == kind.lowest else to_text(kind, line) for line in (result.from_line, result.to_line)]
    return {
        "table": str(result.table.name),
        "lake_rows": result.lake_rows,
        "lake_files": result.lake_files,
        "overlay_rows": result.marks,
        "partitions": result.partitions,
        "old_frost_line": lines[0],
        "frost_line": lines[1],
    }
