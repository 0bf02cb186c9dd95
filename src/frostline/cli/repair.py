"""`frostline repair`: what somebody else committed to a lake, and the ways back."""

from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE
from frostline.errors import UsageError
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.repair import Findings

_SHOWN = 10


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
    invocation.output.screen(_described(difference), [_brief(difference)], _lines(difference))


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
    more = [f"{label} and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
    return [*(f"{label} {path}" for path in paths[:_SHOWN]), *more]
