"""`frostline compact`: merge small lake files, and write many manifests anew."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name
from frostline.model.tables import Table

if TYPE_CHECKING:
    from frostline.pipeline.compact import Plan, Result


@click.command()
@tables_argument
@master_option
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.pass_obj
def compact(invocation: Invocation, names: tuple[Name, ...], master: str | None, dry_run: bool) -> int:  # noqa: FBT001
    """Merge small lake files to about the table's target file size, and make few manifests of many."""
    from frostline.pipeline import compact as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        tables = chosen(jobs.connection, names)
        if dry_run:
            invocation.output.records([_planned(table, job.plan(jobs.connection, table)) for table in tables])
            return 0
        results = job.run(jobs, tables)
    return errors.report_results(invocation, results, _described)


def _planned(table: Table, plan: "Plan") -> dict[str, Any]:
    return {
        "table": str(table.name),
        "merged_files": plan.files,
        "written_files": len(plan.bins),
        "read_bytes": plan.size_bytes,
        "manifests": plan.manifests,
        "manifests_rewritten": plan.packs,
    }


def _described(result: "Result") -> dict[str, Any]:
    return {
        "merged_files": result.merged_files,
        "written_files": result.written_files,
        "replaced_manifests": result.replaced_manifests,
        "written_manifests": result.written_manifests,
    }
