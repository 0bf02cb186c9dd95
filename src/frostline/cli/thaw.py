"""`frostline thaw`: bring rows back from the lake into the heap."""

from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import TABLE
from frostline.model.names import Name
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.pipeline.thaw import Result


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--from", "first", required=True, metavar="VALUE", help="Rounded down to where its partition begins.")
@click.option("--to", "last", metavar="VALUE", help="Can only be the frost line, which is the default.")
@master_option
@click.pass_obj
def thaw(invocation: Invocation, name: Name, first: str, last: str | None, master: str | None) -> None:
    """Bring all rows from a tier value up to the frost line back into heap partitions, verified.

    Archive does not take them again until `frostline table set TABLE --release`.
    """
    from frostline.pipeline import thaw as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        result = job.run(jobs, tables.with_lake(jobs.connection, name), (first, last))
    invocation.output.record(described(result))


def described(result: "Result") -> dict[str, Any]:
    """What a thaw did, as a record."""
    kind = result.table.tier_kind
    return {
        "table": str(result.table.name),
        "old_frost_line": to_text(kind, result.from_line),
        "frost_line": None if result.to_line == kind.lowest else to_text(kind, result.to_line),
        "refilled": list(result.refilled),
        "rows": result.rows,
    }
