"""The commands for the rows of both tiers: plan, archive, fold, clean, undo, thaw, truncate."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import TABLE, chosen, tables_argument
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.pipeline.archive import Result as Archived
    from frostline.pipeline.clean import Result as Cleaned
    from frostline.pipeline.fold import Result as Folded
    from frostline.pipeline.plan import TablePlan
    from frostline.pipeline.thaw import Result as Thawed
    from frostline.pipeline.truncate import Result as Truncated


@click.command()
@tables_argument
@click.pass_obj
def plan(invocation: Invocation, names: tuple[Name, ...]) -> None:
    """Say which partitions would move to the lake, why, and how much that is."""
    from frostline.pipeline.plan import of_table  # noqa: PLC0415

    with invocation.catalog() as connection:
        plans = [of_table(connection, table) for table in chosen(connection, names)]
    invocation.output.records([_planned(planned) for planned in plans])


def _planned(planned: "TablePlan") -> dict[str, Any]:
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
    if table.held_from is not None:
        released = f"frostline table set {table.name} --release"
        reason = f"{reason}; held from {to_text(kind, table.held_from)} until: {released}"
    return reason if planned.stays is None else f"{reason}; ends before {planned.stays}"


def _line(lowest: int, value: int, text: str) -> str | None:
    return None if value == lowest else text


@click.command()
@tables_argument
@master_option
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.pass_context
def archive(context: click.Context, names: tuple[Name, ...], master: str | None, dry_run: bool) -> int:  # noqa: FBT001
    """Move every partition that is older than its table's hot period to the lake, and clean what may be cleaned.

    Without a name: all managed tables, in one Spark application. One table's failure does not stop the others.
    """
    from frostline.pipeline import archive as job  # noqa: PLC0415

    if dry_run:
        context.invoke(plan, names=names)
        return 0
    invocation: Invocation = context.obj
    with invocation.jobs(master) as jobs:
        results = job.run(jobs, chosen(jobs.connection, names))
    return errors.report_results(invocation, results, _archived)


def _archived(result: "Archived") -> dict[str, Any]:
    return {
        "archived_partitions": result.partitions,
        "rows": result.rows,
        "lake_bytes": result.size_bytes,
        "cleaned_partitions": len(result.cleaned.emptied),
        "waiting_partitions": len(result.cleaned.waiting),
    }


@click.command()
@tables_argument
@master_option
@click.pass_obj
def fold(invocation: Invocation, names: tuple[Name, ...], master: str | None) -> int:
    """Write rows that were changed below the frost line into the lake, and take their marks away."""
    from frostline.pipeline import fold as job  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        results = job.run(jobs, chosen(jobs.connection, names))
    return errors.report_results(invocation, results, _folded)


def _folded(result: "Folded") -> dict[str, Any]:
    return {
        "folded_rows": result.marks,
        "still_marked": result.marks - result.taken,
        "replaced_files": result.replaced_files,
        "written_files": result.written_files,
    }


@click.command()
@tables_argument
@click.pass_obj
def clean(invocation: Invocation, names: tuple[Name, ...]) -> None:
    """Empty and drop archived heap partitions that nobody can still need, and say why others wait."""
    from frostline.pipeline import clean as job  # noqa: PLC0415

    settings = invocation.settings()
    with invocation.catalog() as connection:
        results = [(table, job.run(connection, settings, table)) for table in chosen(connection, names)]
    invocation.output.records([record for table, result in results for record in _cleaned(table, result)])


def _cleaned(table: Table, result: "Cleaned") -> Iterator[dict[str, str]]:
    for partition in result.emptied:
        yield {"table": str(table.name), "partition": partition, "state": "cleaned"}
    for waiting in result.waiting:
        yield {"table": str(table.name), "partition": waiting.partition, "state": f"waits: {waiting.reason}"}


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
    invocation.output.record(_thawed(result))


def _thawed(result: "Thawed") -> dict[str, Any]:
    """What a thaw did, as a record."""
    kind = result.table.tier_kind
    return {
        "table": str(result.table.name),
        "old_frost_line": to_text(kind, result.from_line),
        "frost_line": None if result.to_line == kind.lowest else to_text(kind, result.to_line),
        "refilled": list(result.refilled),
        "rows": result.rows,
    }


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--restart-identity", is_flag=True, help="Let sequences of its columns begin again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.pass_obj
def truncate(invocation: Invocation, name: Name, restart_identity: bool, yes: bool, dry_run: bool) -> None:  # noqa: FBT001
    """Remove all rows of a table, of both tiers, for good and in one transaction: what TRUNCATE is for a plain table.

    All rows are hot afterwards, as when the table was new. The files of the lake stay until nobody can read them.
    """
    from frostline.pipeline import truncate as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        table = tables.with_lake(connection, name)
        done = job.planned(connection, table)
        if not dry_run:
            if not yes:
                _ask(done)
            done = job.run(connection, invocation.settings(), table, restart_identity=restart_identity)
    invocation.output.record(_truncated(done) | {"changed": not dry_run})


def _ask(planned: "Truncated") -> None:
    name = planned.table.name
    if not sys.stdin.isatty():
        raise UsageError(
            f"all rows of {name} would be gone for good, and there is nobody to ask",
            hint=f"frostline truncate {name} --yes; or --dry-run to see what would go",
        )
    question = f"Remove all rows of {name} for good: {planned.lake_rows} in the lake, and all in Postgres?"
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None
    if not is_sure:
        raise UsageError("nothing was changed", hint=f"to see what would go: frostline truncate {name} --dry-run")


def _truncated(result: "Truncated") -> dict[str, Any]:
    kind = result.table.tier_kind
    lines = [None if line == kind.lowest else to_text(kind, line) for line in (result.from_line, result.to_line)]
    return {
        "table": str(result.table.name),
        "lake_rows": result.lake_rows,
        "lake_files": result.lake_files,
        "overlay_rows": result.marks,
        "partitions": result.partitions,
        "old_frost_line": lines[0],
        "frost_line": lines[1],
    }
