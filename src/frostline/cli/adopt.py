"""`frostline table adopt`: make again what a table has lost, down to a lake of which only the files are left."""

from typing import Any

import click

from frostline.cli import policy
from frostline.cli.invocation import Invocation
from frostline.cli.names import ROLE, TABLE
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tiers import to_text


@click.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--accept-lost-changes", is_flag=True, help="Go on although rows or changes are lost with what is gone.")
@click.option("--from-lake", metavar="LOCATION", help="The catalog is lost: the lake's folder, or its newest metadata.")
@click.option("--heap-is-newer", is_flag=True, help="With --from-lake: old rows of the table count, not the lake's.")
@click.option("--take-over", is_flag=True, help="With --from-lake: the database that the lake belonged to is gone.")
@click.option("--relation", type=ROLE, metavar="NAME", help="With --from-lake: leave the table as it is.")
@policy.options
@click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
@click.pass_obj
def adopt(invocation: Invocation, name: Name, from_lake: str | None, **said: Any) -> None:
    """Make the objects of a managed table again that somebody dropped. Running it again changes nothing.

    With --from-lake, a table of which only the lake's files are left is managed again, by the policy that is given.
    """
    if from_lake is not None:
        _adopt_lake(invocation, name, from_lake, **said)
        return
    more = {key: value for key, value in said.items() if value and key not in ("accept_lost_changes", "dry_run")}
    if more:
        option = f"--{next(iter(more)).replace('_', '-')}"
        hint = f"a managed table has its own: frostline table set {name}"
        raise UsageError(f"{option} and the like are for --from-lake", hint=hint)
    _adopt_objects(invocation, name, said["accept_lost_changes"], said["dry_run"])


def _adopt_objects(invocation: Invocation, name: Name, accept_lost_changes: bool, dry_run: bool) -> None:  # noqa: FBT001
    from frostline.relation import adoption  # noqa: PLC0415

    with invocation.catalog() as connection:
        done = adoption.adopt(connection, name, accept_lost_changes=accept_lost_changes, dry_run=dry_run)
    for statement in done.statements if dry_run else ():
        invocation.output.line(statement)
    if not dry_run:
        made = ", ".join(f"{one.what} {one.name}" for one in done.lost)
        invocation.output.record({"table": str(done.table.name), "made": made or None, "changed": bool(made)})


def _adopt_lake(
    invocation: Invocation,
    name: Name,
    location: str,
    *,
    accept_lost_changes: bool,
    heap_is_newer: bool,
    take_over: bool,
    relation: str | None,
    dry_run: bool,
    **said: Any,
) -> None:
    from frostline.pipeline import adopt as job  # noqa: PLC0415
    from frostline.relation import registration  # noqa: PLC0415

    beside = None if relation == name.table else relation
    table = registration.Request(name, Policy(**policy.given(said)), None, beside)
    request = job.Request(table, location, heap_is_newer, take_over, accept_lost_changes)
    with invocation.catalog() as connection:
        done = job.run(connection, invocation.settings(), request, dry_run=dry_run)
    kind = done.table.tier_kind
    invocation.output.record(
        {
            "table": str(name),
            "metadata": done.location,
            "lake_rows": done.rows,
            "lake_files": done.files,
            "heap_rows": done.heap_rows,
            "frost_line": None if done.line == kind.lowest else to_text(kind, done.line),
            "unknown": list(done.unknown),
            "changed": not dry_run,
        }
    )
