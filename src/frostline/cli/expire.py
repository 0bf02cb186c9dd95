"""`frostline expire`: take old snapshots of the lake away."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.expire import Result


@click.command()
@tables_argument
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.pass_obj
def expire(invocation: Invocation, names: tuple[Name, ...], dry_run: bool) -> int:  # noqa: FBT001
    """Remove lake snapshots older than the table's snapshot retention that nobody can still read, and their files."""
    from frostline.pipeline import expire as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        results = job.run(connection, invocation.settings(), chosen(connection, names), dry_run=dry_run)
    return errors.report_results(invocation, results, _described)


def _described(result: "Result") -> dict[str, Any]:
    return {
        "snapshots": result.snapshots,
        "files": result.files,
        "size_bytes": result.size_bytes,
        "left_files": result.left,
        "waits": list(result.waiting),
    }
