"""The commands that look for faults, and mend them: doctor, verify, repair."""

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE, tables_argument, with_lake_tables
from frostline.cli.output import Record
from frostline.errors import FrostlineError, UsageError
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.lake_verify import Report as LakeReport
    from frostline.pipeline.repair import Findings
    from frostline.pipeline.verify import Report

_FAULTY = 1
_SHOWN_FILES = 10


@click.command()
@click.option("--spark", is_flag=True, help="Also start Spark and run a task on it, which takes a while.")
@click.pass_obj
def doctor(invocation: Invocation, spark: bool) -> int:  # noqa: FBT001
    """Check the whole set-up: versions, privileges, the lake server, clocks, the warehouse, Java, Spark.

    Prints one line a check, and under what is wrong a command that helps. Changes nothing. Exit code 1 when there is
    a fault; a warning is none.
    """
    from frostline.observe.doctor import examination  # noqa: PLC0415
    from frostline.observe.doctor.patient import Patient, State  # noqa: PLC0415

    checks = (*examination.CHECKS, examination.SPARK_RUNS) if spark else examination.CHECKS
    findings = examination.examine(Patient(invocation.settings, invocation.home), checks)
    shown = invocation.output.each((asdict(finding) for finding in findings), _finding_lines)
    return FrostlineError.exit_code if any(finding["state"] == State.FAULT for finding in shown) else 0


def _finding_lines(finding: Record) -> str:
    """One line, and below it what to do."""
    line = f"{finding['state']:<8} {finding['name']:<27} {finding['detail']}"
    return f"{line}\n{'':<8} hint: {finding['hint']}" if finding["hint"] else line


@click.command()
@tables_argument
@click.option("--history", is_flag=True, help="Of lake tables also read the files of every earlier state that is kept.")
@click.pass_obj
def verify(invocation: Invocation, names: tuple[Name, ...], history: bool) -> int:  # noqa: FBT001
    """Compare every value of the lake with its recorded fingerprint, and with the heap where that still has it.

    Of lake tables, of whose values nothing is recorded, read every file, and compare it with what the metadata says.

    Exit code 1 when anything differs; each fault names its file or partition.
    """
    from frostline.lake import warehouse  # noqa: PLC0415
    from frostline.pipeline import lake_verify  # noqa: PLC0415
    from frostline.pipeline import verify as job  # noqa: PLC0415

    settings = invocation.settings()
    with ExitStack() as stack:
        connection = stack.enter_context(invocation.catalog())
        tables, lakes = with_lake_tables(connection, names)
        if tables or lakes:
            stack.enter_context(warehouse.guarded(connection, settings.warehouse))
        tiered = [job.run(connection, table) for table in tables]
        reports = [_verified(report, report.partitions) for report in tiered]
        reports += [_verified(lake_verify.run(connection, lake, history=history), 0) for lake in lakes]
        is_missing = any(fault.endswith(f" {job.MISSING}") for report in reports for fault in report["faults"])
        why = warehouse.deleted(connection) if is_missing else None
    invocation.output.records(reports)
    if why:
        invocation.output.say(f"missing files: {why}")
    return _FAULTY if any(report["faults"] for report in reports) else 0


def _verified(report: "Report | LakeReport", heap_partitions: int) -> Record:
    return {
        "table": str(report.table.name),
        "files": report.files,
        "rows": report.rows,
        "heap_partitions": heap_partitions,
        "faults": [f"{fault.where} {fault.what}" for fault in report.faults],
    }


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--restore", is_flag=True, help="Let the Iceberg catalog point to Frostline's own state again.")
@click.option("--adopt", is_flag=True, help="Take the rows of an append into the table, then do the same.")
@click.pass_obj
def repair(invocation: Invocation, name: Name, restore: bool, adopt: bool) -> None:  # noqa: FBT001
    """Show what another engine has done to the table's lake. Changes nothing unless it is told to.

    Until then every job on the table is refused, and readers see the rows as they were.
    """
    from frostline.pipeline import repair as job  # noqa: PLC0415

    if restore and adopt:
        raise UsageError("--restore and --adopt are two ways out", hint="say one of them; --adopt also points back")
    with invocation.catalog() as connection:
        table, settings = tables.with_lake(connection, name), invocation.settings()
        if restore:
            difference = job.restore(connection, settings, table)
        elif adopt:
            difference = job.adopt(connection, settings, table)
        else:
            difference = job.look(connection, table)
    invocation.output.screen(_described(difference), [[_brief(difference)]], _lines(difference))


def _described(difference: "Findings") -> dict[str, Any]:
    standing, files, theirs = difference.standing, difference.files, difference.theirs
    return {
        "table": str(difference.table.name),
        "is_foreign": difference.is_foreign,
        "snapshot_id": standing.snapshot_id,
        "metadata_location": standing.location,
        "rows": files.ours.rows,
        "foreign_snapshot_id": theirs.snapshot_id if theirs else None,
        "foreign_metadata_location": standing.pointer if standing.is_foreign else None,
        "foreign_rows": theirs.rows if theirs else None,
        "operations": list(difference.operations),
        "added_files": sorted(files.added),
        "removed_files": sorted(files.removed),
        "delete_files": list(files.theirs.delete_files),
        "missing_files": list(difference.missing),
        "other_names": [str(name) for name in difference.other_names],
        "not_adoptable": difference.no_append,
        "done": difference.done,
        "adopted_rows": difference.rows,
    }


def _brief(difference: "Findings") -> dict[str, Any]:
    files, theirs = difference.files, difference.theirs
    return {
        "table": str(difference.table.name),
        "snapshot_id": difference.standing.snapshot_id,
        "rows": files.ours.rows,
        "foreign_snapshot_id": theirs.snapshot_id if theirs else None,
        "foreign_rows": theirs.rows if theirs else None,
        "files_added": len(files.added),
        "files_removed": len(files.removed),
        "done": difference.done,
    }


def _lines(difference: "Findings") -> list[str]:
    """What a person needs to decide."""
    if not difference.is_foreign:
        return ["nobody else has committed to it"]
    if difference.done:
        return (
            [f"{difference.done}; what the other had is still at {difference.standing.pointer}"]
            if difference.standing.pointer
            else []
        )
    name = difference.table.name
    lines = [difference.standing.described] if difference.standing.is_foreign else []
    lines += [f"the catalog also calls it {other}" for other in difference.other_names]
    lines += [f"snapshots since ours: {', '.join(difference.operations)}"] if difference.operations else []
    lines += _some("+", sorted(difference.files.added)) + _some("-", sorted(difference.files.removed))
    lines += _some("missing:", difference.missing) + _some("delete file:", difference.files.theirs.delete_files)
    lines.append(f"frostline repair {name} --restore   lets the catalog point to our state again")
    lines.append(
        f"cannot be adopted: {difference.no_append}"
        if difference.no_append
        else f"frostline repair {name} --adopt     takes the new rows into the table, if it can have them"
    )
    return lines


def _some(label: str, paths: "tuple[str, ...] | list[str]") -> list[str]:
    more = [f"{label} and {len(paths) - _SHOWN_FILES} more"] if len(paths) > _SHOWN_FILES else []
    return [*(f"{label} {path}" for path in paths[:_SHOWN_FILES]), *more]
