"""`frostline sweep`: delete files of the lake that belong to nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation
from frostline.cli.names import chosen, tables_argument
from frostline.cli.output import Output
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.sweep import Result


@click.command()
@tables_argument
@click.option(
    "--older-than", default="3 days", show_default=True, metavar="INTERVAL", help="Leave younger files alone."
)
@click.option("--dry-run", is_flag=True, help="List the files, and delete none.")
@click.option("--take-over", is_flag=True, help="The database that this one was restored or promoted from is gone.")
@click.pass_obj
def sweep(invocation: Invocation, names: tuple[Name, ...], older_than: str, dry_run: bool, take_over: bool) -> int:  # noqa: FBT001
    """Delete files in the tables' folders that no state of the lake needs: what dead jobs and expiries left there."""
    from frostline.pipeline import snapshot_tidy  # noqa: PLC0415
    from frostline.pipeline import sweep as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        request = job.Request(older_than, dry_run, take_over)
        results = job.run(connection, invocation.settings(), chosen(connection, names), request)
        # After the tables, so that --take-over holds for snapshots too.
        left = None if names or dry_run else snapshot_tidy.tidy_all(connection, invocation.settings())
    (_list if dry_run else _count)(invocation.output, results)
    _say(invocation.output, results)
    if left and left.files:
        invocation.output.say(f"{left.files} files of dead runs and dropped versions of snapshots were deleted")
    failed = [*(result.error for result in results if result.error), *(left.errors if left else ())]
    return errors.report_all(failed, invocation.output, debug=invocation.debug)


def _list(output: Output, results: Sequence["Result"]) -> None:
    output.records(
        [
            {"path": orphan.location, "size_bytes": orphan.size_bytes, "age_s": int(orphan.age.total_seconds())}
            for result in results
            for orphan in result.orphans
        ]
    )


def _count(output: Output, results: Sequence["Result"]) -> None:
    output.records(
        [
            {
                "table": str(result.table.name),
                "files": len(result.orphans),
                "size_bytes": result.size_bytes,
                "left_files": result.left,
                "unknown_files": len(result.unknown),
                "error": str(result.error) if result.error else None,
            }
            for result in results
        ]
    )


def _say(output: Output, results: Sequence["Result"]) -> None:
    for result in results:
        if result.left:
            output.say(f"{result.table.name}: {result.left} files of another lineage were left; see --take-over")
        for location in result.unknown:
            output.say(f"{result.table.name}: {location} is not Frostline's, and was left")
