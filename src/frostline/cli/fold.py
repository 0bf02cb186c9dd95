"""`frostline fold`: carry changed cold rows into the lake."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.fold import Result


@click.command()
@tables_argument
@master_option
@click.pass_obj
def fold(invocation: Invocation, names: tuple[Name, ...], master: str | None) -> int:
    """Write rows that were changed below the frost line into the lake, and take their marks away."""
    from frostline.pipeline import fold as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        results = job.run(jobs, chosen(jobs.connection, names))
    return errors.report_results(invocation, results, _described)


def _described(result: "Result") -> dict[str, Any]:
    return {
        "folded_rows": result.marks,
        "still_marked": result.marks - result.taken,
        "replaced_files": result.replaced_files,
        "written_files": result.written_files,
    }
