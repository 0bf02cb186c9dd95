"""`frostline premake`: make partitions ahead of time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from frostline.cli import errors
from frostline.cli.invocation import Invocation
from frostline.cli.names import managed, tables_argument
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.partitions.premake import Plan
    from frostline.partitions.strays import Stray
    from frostline.pipeline.premake import Result

_ROWS = click.IntRange(0, 10**9)


@click.command()
@tables_argument
@click.option(
    "--move-rows", type=_ROWS, default=10_000, show_default=True, metavar="N", help="Out of DEFAULT, at most."
)
@click.option("--dry-run", is_flag=True, help="Say what would be made, and change nothing.")
@click.pass_obj
def premake(invocation: Invocation, names: tuple[Name, ...], move_rows: int, dry_run: bool) -> int:  # noqa: FBT001
    """Make the partitions that a table's policy wants ahead of now, aligned to those that it has.

    Without a name: all managed tables. Rows that had no partition and lie in DEFAULT are moved to their own, and those
    that are left there are counted. More than N of one partition are left: others wait meanwhile.
    """
    from frostline.partitions.premake import plan, stray  # noqa: PLC0415
    from frostline.pipeline import premake as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        chosen = managed(connection, names)
        if dry_run:
            records = [_planned(table, plan(connection, table), stray(connection, table)) for table in chosen]
            invocation.output.records(records)
            return 0
        results = job.each(connection, invocation.settings(), chosen, move_rows)
    return errors.report_results(invocation, results, _described)


def _planned(table: Table, wanted: "Plan", left: "Stray") -> dict[str, Any]:
    cells = [f"{to_text(table.tier_kind, lower)} to {to_text(table.tier_kind, upper)}" for lower, upper in wanted.cells]
    return {"table": str(table.name), "would_make": cells, "problem": wanted.problem, **_stray(left)}


def _described(result: "Result") -> dict[str, Any]:
    return {
        "made": [str(partition.name) for partition in result.created],
        "moved_rows": sum(partition.moved for partition in result.created),
        **_stray(result.stray),
        "problem": result.problem,
    }


def _stray(left: "Stray") -> dict[str, Any]:
    between: Sequence[str] = [text for text in (left.lowest, left.highest) if text is not None]
    return {"stray_rows": left.rows, "stray_from_to": " to ".join(between) or None}
