"""`frostline fold`: carry changed cold rows into the lake."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE, chosen
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.fold import Result


@click.command()
@click.argument("names", type=TABLE, nargs=-1, metavar="[[SCHEMA.]TABLE]...")
@click.option("--master", help="The Spark master.  [default: spark_master of the settings, else local[*]]")
@click.pass_obj
def fold(invocation: Invocation, names: tuple[Name, ...], master: str | None) -> int:
    """Write rows that were changed below the frost line into the lake, and take their marks away."""
    from frostline.pipeline import fold as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        results = job.run(jobs, chosen(jobs.connection, names))
    invocation.output.records([_described(result) for result in results])
    return errors.report_all(
        [result.error for result in results if result.error], invocation.output, debug=invocation.debug
    )


def _described(result: "Result") -> dict[str, Any]:
    return {
        "table": str(result.table.name),
        "folded_rows": result.marks,
        "still_marked": result.marks - result.taken,
        "replaced_files": result.replaced_files,
        "written_files": result.written_files,
        "error": str(result.error) if result.error else None,
    }
