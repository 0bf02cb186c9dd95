"""The commands that keep partitions and lakes in order: premake, retain, compact, expire, sweep, pin."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import pins
from frostline.catalog.connect import Connection
from frostline.cli import errors
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.names import managed, tables_argument, with_lake_tables
from frostline.cli.output import Output
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text

if TYPE_CHECKING:
    from frostline.partitions.default_partition import Stray
    from frostline.partitions.premake import Plan as PremakePlan
    from frostline.pipeline.compact import Plan as CompactionPlan
    from frostline.pipeline.compact import Result as Compacted
    from frostline.pipeline.expire import Result as Expired
    from frostline.pipeline.lake_compact import Plan as LakeCompactionPlan
    from frostline.pipeline.premake import Result as Premade
    from frostline.pipeline.retain import Result as Retained
    from frostline.pipeline.sweep import Result as Swept

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
        tables = managed(connection, names)
        if dry_run:
            records = [_premake_planned(table, plan(connection, table), stray(connection, table)) for table in tables]
            invocation.output.records(records)
            return 0
        results = job.each(connection, invocation.settings(), tables, move_rows)
    return errors.report_results(invocation, results, _premade)


def _premake_planned(table: Table, wanted: "PremakePlan", left: "Stray") -> dict[str, Any]:
    cells = [f"{to_text(table.tier_kind, lower)} to {to_text(table.tier_kind, upper)}" for lower, upper in wanted.cells]
    return {"table": str(table.name), "would_make": cells, "problem": wanted.problem, **_stray(left)}


def _premade(result: "Premade") -> dict[str, Any]:
    return {
        "made": [str(partition.name) for partition in result.created],
        "moved_rows": sum(partition.moved for partition in result.created),
        **_stray(result.stray),
        "problem": result.problem,
    }


def _stray(left: "Stray") -> dict[str, Any]:
    between: Sequence[str] = [text for text in (left.lowest, left.highest) if text is not None]
    return {"stray_rows": left.rows, "stray_from_to": " to ".join(between) or None}


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
    return errors.report_results(invocation, results, _retained)


def _retained(result: "Retained") -> dict[str, Any]:
    return {
        "retained_from": result.line,
        "removed_files": result.removed_files,
        "trimmed_files": result.trimmed_files,
        "lake_rows": result.rows,
        "overlay_rows": result.marks,
        "partitions": list(result.partitions),
        "waits": list(result.waiting),
    }


@click.command()
@tables_argument
@master_option
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.pass_obj
def compact(invocation: Invocation, names: tuple[Name, ...], master: str | None, dry_run: bool) -> int:  # noqa: FBT001
    """Merge small lake files to about the table's target file size, and make few manifests of many.

    Of lake tables, too: rows that were deleted or replaced there are left out of the new files.
    """
    from frostline.pipeline import compact as job  # noqa: PLC0415
    from frostline.pipeline import lake_compact  # noqa: PLC0415

    with invocation.jobs(master) as jobs:
        tables, lakes = with_lake_tables(jobs.connection, names)
        if dry_run:
            records = [_compact_planned(table.name, job.plan(jobs.connection, table)) for table in tables]
            records += [_compact_planned(table.name, lake_compact.plan(table)) for table in lakes]
            invocation.output.records(records)
            return 0
        results = [*job.run(jobs, tables), *lake_compact.run(jobs, lakes)]
    return errors.report_results(invocation, results, _compacted)


def _compact_planned(name: Name, plan: "CompactionPlan | LakeCompactionPlan") -> dict[str, Any]:
    return {
        "table": str(name),
        "merged_files": sum(map(len, plan.bins)),
        "written_files": len(plan.bins),
        "read_bytes": sum(file.size_bytes for files in plan.bins for file in files),
        "manifests": plan.manifests,
        "manifests_rewritten": plan.packs,
    }


def _compacted(result: "Compacted") -> dict[str, Any]:
    return {
        "merged_files": result.merged_files,
        "written_files": result.written_files,
        "replaced_manifests": result.replaced_manifests,
        "written_manifests": result.written_manifests,
    }


@click.command()
@tables_argument
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.pass_obj
def expire(invocation: Invocation, names: tuple[Name, ...], dry_run: bool) -> int:  # noqa: FBT001
    """Remove lake snapshots older than the table's snapshot retention that nobody can still read, and their files.

    Of lake tables, too: those that were replaced longer ago than the table's policy says (frostline lake set).
    """
    from frostline.pipeline import expire as job  # noqa: PLC0415
    from frostline.pipeline import lake_expire  # noqa: PLC0415

    with invocation.catalog() as connection:
        tables, lakes = with_lake_tables(connection, names)
        results = job.run(connection, invocation.settings(), tables, dry_run=dry_run)
        results += lake_expire.run(connection, invocation.settings(), lakes, dry_run=dry_run)
    return errors.report_results(invocation, results, _expired)


def _expired(result: "Expired") -> dict[str, Any]:
    return {
        "snapshots": result.snapshots,
        "files": result.files,
        "size_bytes": result.size_bytes,
        "left_files": result.left,
        "waits": list(result.waiting),
    }


@click.command()
@tables_argument
@click.option(
    "--older-than", default="3 days", show_default=True, metavar="INTERVAL", help="Leave younger files alone."
)
@click.option("--dry-run", is_flag=True, help="List the files, and delete none.")
@click.option("--take-over", is_flag=True, help="The database that this one was restored or promoted from is gone.")
@click.pass_obj
def sweep(invocation: Invocation, names: tuple[Name, ...], older_than: str, dry_run: bool, take_over: bool) -> int:  # noqa: FBT001
    """Delete files in the tables' folders that no state of the lake needs: what dead jobs and expiries left there."""
    from frostline.pipeline import lake_sweep, snapshot_drop  # noqa: PLC0415
    from frostline.pipeline import sweep as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        request = job.Request(older_than, dry_run, take_over)
        tables, lakes = with_lake_tables(connection, names)
        results = job.run(connection, invocation.settings(), tables, request)
        results += lake_sweep.run(connection, invocation.settings(), lakes, request)
        # After the tables, so that --take-over holds for snapshots too.
        left = None if names or dry_run else snapshot_drop.tidy_all(connection, invocation.settings())
        if not names and not dry_run:
            delete_left(invocation, connection)
    (_list_orphans if dry_run else _count_orphans)(invocation.output, results)
    _say_left(invocation.output, results)
    if left and left.files:
        invocation.output.say(f"{left.files} files of dead runs and dropped versions of snapshots were deleted")
    failed = [*(result.error for result in results if result.error), *(left.errors if left else ())]
    return errors.report_all(failed, invocation.output, debug=invocation.debug)


def delete_left(invocation: Invocation, connection: Connection) -> None:
    """Delete what tables that were given back have left in the warehouse, and say what has to stay there for now."""
    from frostline.pipeline import leaving  # noqa: PLC0415

    for left in leaving.delete_left(connection, invocation.settings()):
        reason = left.error.message if left.error else left.waits_for
        if reason:
            invocation.output.say(
                f"{left.location} stays until the worker, or frostline sweep, can delete it: {reason}"
            )
        elif left.left:
            invocation.output.say(f"{left.left} files in {left.location} are not of this database, and stay")


def _list_orphans(output: Output, results: Sequence["Swept"]) -> None:
    output.records(
        [
            {"path": orphan.location, "size_bytes": orphan.size_bytes, "age_s": int(orphan.age.total_seconds())}
            for result in results
            for orphan in result.orphans
        ]
    )


def _count_orphans(output: Output, results: Sequence["Swept"]) -> None:
    output.records(
        [
            {
                "table": str(result.table.name),
                "files": len(result.orphans),
                "size_bytes": result.size_bytes,
                "left_files": result.left,
                "unknown_files": len(result.unknown),
                "error": str(result.error) if result.error else None,
            }
            for result in results
        ]
    )


def _say_left(output: Output, results: Sequence["Swept"]) -> None:
    for result in results:
        if result.left:
            output.say(f"{result.table.name}: {result.left} files of another lineage were left; see --take-over")
        for reason in result.waiting:
            output.say(f"{result.table.name}: {reason}")
        for location in result.unknown:
            output.say(f"{result.table.name}: {location} is not Frostline's, and was left")


@click.group()
def pin() -> None:
    """Readers outside Postgres that keep a state of a lake from being expired."""


@pin.command("list")
@click.pass_obj
def list_pins(invocation: Invocation) -> None:
    """List the pins, with who holds them and until when."""
    with invocation.catalog() as connection:
        listed = pins.list_all(connection)
    invocation.output.records(
        [
            {
                "id": held.id,
                "table": str(held.table),
                "snapshot_id": held.snapshot_id,
                "holder": held.holder,
                "made": f"{held.made_at:%Y-%m-%d %H:%M:%S%z}",
                "expires": f"{held.expires_at:%Y-%m-%d %H:%M:%S%z}",
                "alive": held.is_alive,
            }
            for held in listed
        ]
    )


@pin.command("release")
@click.argument("pin_id", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def release_pin(invocation: Invocation, pin_id: int) -> None:
    """Take a pin away. Its reader may lose the files that it reads."""
    with invocation.catalog() as connection:
        pins.release(connection, pin_id)
