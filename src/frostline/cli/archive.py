"""`frostline archive`: move old partitions to the lake."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.archive import Result


@click.command()
@tables_argument
@master_option
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.pass_context
def archive(context: click.Context, names: tuple[Name, ...], master: str | None, dry_run: bool) -> int:  # noqa: FBT001
    """Move every partition that is older than its table's hot period to the lake, and clean what may be cleaned.

    Without a name: all managed tables, in one Spark application. One table's failure does not stop the others.
    """
    from frostline.cli.plan import plan  # noqa: PLC0415
    from frostline.pipeline import archive as job  # noqa: PLC0415

    if dry_run:
        context.invoke(plan, names=names)
        return 0
    invocation: Invocation = context.obj
    with invocation.jobs(master) as jobs:
        results = job.run(jobs, chosen(jobs.connection, names))
    return errors.report_results(invocation, results, _described)


def _described(result: "Result") -> dict[str, Any]:
    return {
        "archived_partitions": result.partitions,
        "rows": result.rows,
        "lake_bytes": result.size_bytes,
        "cleaned_partitions": len(result.cleaned.emptied),
        "waiting_partitions": len(result.cleaned.waiting),
    }
