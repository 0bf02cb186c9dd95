"""`frostline repair`: what somebody else committed to a lake, and the ways back."""

from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE
from frostline.errors import UsageError
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.pipeline.repair import Found

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
            found = job.restore(connection, settings, table)
        elif adopt:
            found = job.adopt(connection, settings, table)
        else:
            found = job.look(connection, table)
    invocation.output.screen(_described(found), [_brief(found)], _lines(found))


def _described(found: "Found") -> dict[str, Any]:
    standing, files, theirs = found.standing, found.files, found.theirs
    return {
        "table": str(found.table.name),
        "is_foreign": found.is_foreign,
        "snapshot_id": standing.snapshot_id,
        "metadata_location": standing.location,
        "rows": files.ours.rows,
        "foreign_snapshot_id": theirs.snapshot_id if theirs else None,
        "foreign_metadata_location": standing.pointer if standing.is_foreign else None,
        "foreign_rows": theirs.rows if theirs else None,
        "operations": list(found.operations),
        "added_files": sorted(files.added),
        "removed_files": sorted(files.removed),
        "delete_files": list(files.theirs.delete_files),
        "missing_files": list(found.missing),
        "other_names": [str(name) for name in found.other_names],
        "not_adoptable": found.no_append,
        "done": found.done,
        "adopted_rows": found.rows,
    }


def _brief(found: "Found") -> dict[str, Any]:
    files, theirs = found.files, found.theirs
    return {
        "table": str(found.table.name),
        "snapshot_id": found.standing.snapshot_id,
        "rows": files.ours.rows,
        "foreign_snapshot_id": theirs.snapshot_id if theirs else None,
        "foreign_rows": theirs.rows if theirs else None,
        "files_added": len(files.added),
        "files_removed": len(files.removed),
        "done": found.done,
    }


def _lines(found: "Found") -> list[str]:
    """What a person needs to decide."""
    if not found.is_foreign:
        return ["nobody else has committed to it"]
    if found.done:
        return (
            [f"{found.done}; what the other had is still at {found.standing.pointer}"] if found.standing.pointer else []
        )
    name = found.table.name
    lines = [found.standing.described] if found.standing.is_foreign else []
    lines += [f"the catalog also calls it {one}" for one in found.other_names]
    lines += [f"snapshots since ours: {', '.join(found.operations)}"] if found.operations else []
    lines += _some("+", sorted(found.files.added)) + _some("-", sorted(found.files.removed))
    lines += _some("missing:", found.missing) + _some("delete file:", found.files.theirs.delete_files)
    lines.append(f"frostline repair {name} --restore   lets the catalog point to our state again")
    lines.append(
        f"cannot be adopted: {found.no_append}"
        if found.no_append
        else f"frostline repair {name} --adopt     takes the new rows into the table, if it can have them"
    )
    return lines


def _some(label: str, paths: "tuple[str, ...] | list[str]") -> list[str]:
    more = [f"{label} and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
    return [*(f"{label} {path}" for path in paths[:_SHOWN]), *more]
