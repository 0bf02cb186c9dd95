"""`frostline undo`: take the last archives back."""

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import TABLE
from frostline.model.names import Name
from frostline.model.tiers import to_text


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--to", metavar="VALUE", help="Where a partition begins.  [default: as far as the heap has all rows]")
@master_option
@click.pass_obj
def undo(invocation: Invocation, name: Name, to: str | None, master: str | None) -> None:
    """Make archived partitions that were not cleaned yet hot again. Moves no rows, so it takes a moment.

    Archive does not take them again until `frostline table set TABLE --release`.
    """
    from frostline.pipeline import undo as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        result = job.run(jobs, tables.with_lake(jobs.connection, name), to)
    kind = result.table.tier_kind
    invocation.output.record(
        {
            "table": str(result.table.name),
            "old_frost_line": to_text(kind, result.from_line),
            "frost_line": None if result.to_line == kind.lowest else to_text(kind, result.to_line),
            "hot_again": list(result.partitions),
            "trimmed_files": result.trimmed_files,
        }
    )
    if result.lake_left:
        invocation.output.say(f"the lake was left as it is, for the next job: {result.lake_left}")
    for partition in result.counted:
        invocation.output.say(f"{partition}: its rows were counted only, the lake's files cannot be read")
