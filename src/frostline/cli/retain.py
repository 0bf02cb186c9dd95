"""`frostline retain`: remove rows that are older than their table's retention period."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import managed, tables_argument
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.retain import Result


@click.command()
@tables_argument
@master_option
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.pass_obj
def retain(invocation: Invocation, names: tuple[Name, ...], master: str | None, dry_run: bool) -> int:  # noqa: FBT001
    """Remove rows that are older than the table's retention period, for good. From then on none so old can be inserted.

    Of a table without a lake, whole partitions are dropped or detached. A table without a retention period keeps its
    rows for ever.
    """
    from frostline.pipeline import retain as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        tables = managed(jobs.connection, names)
        results = [job.planned(jobs.connection, table) for table in tables] if dry_run else job.run(jobs, tables)
    return errors.report_results(invocation, results, _described)


def _described(result: "Result") -> dict[str, Any]:
    return {
        "retained_from": result.line,
        "removed_files": result.removed_files,
        "trimmed_files": result.trimmed_files,
        "lake_rows": result.rows,
        "overlay_rows": result.marks,
        "partitions": list(result.partitions),
        "waits": list(result.waiting),
    }
