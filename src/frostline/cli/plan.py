"""`frostline plan`: what an archive would do now."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.pipeline.plan import TablePlan


@click.command()
@tables_argument
@click.pass_obj
def plan(invocation: Invocation, names: tuple[Name, ...]) -> None:
    """Say which partitions would move to the lake, why, and how much that is."""
    from frostline.pipeline.plan import of_table  # noqa: PLC0415

    with invocation.catalog() as connection:
        plans = [of_table(connection, table) for table in chosen(connection, names)]
    invocation.output.records([described(planned) for planned in plans])


def described(planned: "TablePlan") -> dict[str, Any]:
    """One table's plan as a record."""
    kind = planned.table.tier_kind
    moving = [str(partition.name) for partition in planned.plan.partitions]
    return {
        "table": str(planned.table.name),
        "partitions": len(moving),
        "first_partition": moving[0] if moving else None,
        "last_partition": moving[-1] if moving else None,
        "frost_line": _line(kind.lowest, planned.plan.from_line, to_text(kind, planned.plan.from_line)),
        "new_frost_line": _line(kind.lowest, planned.plan.to_line, to_text(kind, planned.plan.to_line)),
        "because": _because(planned),
        "rows_estimate": planned.rows_estimate,
        "heap_bytes": planned.size_bytes,
        "lake_estimate_bytes": planned.lake_bytes_estimate,
    }


def _because(planned: "TablePlan") -> str:
    table, kind = planned.table, planned.table.tier_kind
    reason = f"{table.tier_key} before {to_text(kind, planned.cutoff)} is older than {table.policy.hot_period}"
    if table.held_from is None:
        return reason
    return f"{reason}; held from {to_text(kind, table.held_from)} until: frostline table set {table.name} --release"


def _line(lowest: int, value: int, text: str) -> str | None:
    return None if value == lowest else text
