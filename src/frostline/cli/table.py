"""`frostline table`: which tables are managed, and how; `frostline grant`: who may use them."""

from typing import Any

import click

from frostline.catalog import seams, tables
from frostline.catalog.connect import Connection
from frostline.cli import policy
from frostline.cli.convert import convert, convert_first
from frostline.cli.invocation import Invocation
from frostline.cli.names import ROLE, TABLE, chosen, tables_argument
from frostline.cli.progress import exporting
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.policy import ForeignKeys, Mode, Policy
from frostline.model.tables import Column, Table
from frostline.model.tiers import to_text

_MODES = click.Choice([mode.value for mode in Mode])
_FOREIGN_KEYS = click.Choice([mode.value for mode in ForeignKeys])


@click.group()
def table() -> None:
    """Manage tables: add, list, show, set, sync, alter, remove, adopt, convert, row-security, export, import."""


for _command in (convert, policy.export, policy.import_):
    table.add_command(_command)


@table.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--lake-partition", help="Lake partitions: year, month, day, hour or truncate[N].  [default: month]")
@click.option("--mode", type=_MODES, default=Mode.TIERED.value, help="partition: no lake.  [default: tiered]")
@click.option("--relation", type=ROLE, metavar="NAME", help="Leave the table as it is; both tiers are under this name.")
@click.option("--partition-by", type=ROLE, metavar="COLUMN", help="Partition the table first, --every so wide, online.")
@click.option("--foreign-keys", type=_FOREIGN_KEYS, help="ignore: not for rows in the lake.  [default: hold]")
@policy.options
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.pass_obj
def add(
    invocation: Invocation,
    name: Name,
    lake_partition: str | None,
    mode: str,
    relation: str | None,
    partition_by: str | None,
    foreign_keys: str | None,
    dry_run: bool,  # noqa: FBT001
    **said: Any,
) -> None:
    """Make a RANGE-partitioned table a tiered one, or manage its partitions only. Running it again changes nothing."""
    from frostline.partitions import partition_mode  # noqa: PLC0415
    from frostline.relation import registration  # noqa: PLC0415

    relation = None if relation == name.table else relation
    mode_of_keys = ForeignKeys(foreign_keys) if foreign_keys else None
    request = registration.Request(
        name, Policy(**policy.given(said)), lake_partition, relation, foreign_keys=mode_of_keys
    )
    with invocation.catalog() as connection:
        if partition_by and convert_first(invocation, connection, request, Mode(mode), partition_by, dry_run=dry_run):
            return
        by_mode = registration.add if Mode(mode).has_lake else partition_mode.add
        added = by_mode(connection, request, dry_run=dry_run)
    for statement in added.statements if dry_run else ():
        invocation.output.line(statement)
    if not dry_run:
        invocation.output.record(_described(added.table) | {"changed": added.changed})
    for line in added.foreign_keys:
        invocation.output.say(f"foreign key {line}")


@table.command(name="list")
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the managed tables."""
    with invocation.catalog() as connection:
        invocation.output.records([_described(managed) for managed in tables.list_all(connection)])


@table.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.pass_obj
def show(invocation: Invocation, name: Name) -> None:
    """Show how each column of a table travels to the lake; in partition mode, show its partitions."""
    from frostline.relation import heap  # noqa: PLC0415

    with invocation.catalog() as connection:
        managed = tables.get(connection, name)
        parts = heap.partitions(connection, managed) if not managed.has_lake else []
    columns = [_described_column(managed, column) for column in managed.columns]
    invocation.output.records(columns or [_described_partition(managed, partition) for partition in parts])


@table.command(name="set")
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@policy.options
@click.option("--release", is_flag=True, help="Archive again what undo or thaw made hot.")
@click.option("--relation", type=ROLE, metavar="NAME", help="Where both tiers are: beside the table, or its own name.")
@click.option("--foreign-keys", type=_FOREIGN_KEYS, help="Whether they hold for rows in the lake.")
@click.pass_obj
def set_(
    invocation: Invocation,
    name: Name,
    release: bool,  # noqa: FBT001
    relation: str | None,
    foreign_keys: str | None,
    **said: Any,
) -> None:
    """Change a table's policy, or where its relation is. What is archived already stays archived."""
    from frostline.relation import form, holding  # noqa: PLC0415
    from frostline.relation.foreign_keys import told  # noqa: PLC0415
    from frostline.relation.policy import change  # noqa: PLC0415

    given = policy.given(said)
    with invocation.catalog() as connection:
        before = after = tables.get(connection, name)
        if relation is not None:
            after = form.change(connection, before, relation)
        if foreign_keys is not None:
            after = holding.switch(connection, after, ForeignKeys(foreign_keys))
        if given or release or (relation is None and foreign_keys is None):
            after = change(connection, after, release=release, **given)
        lines = told(connection, after) if foreign_keys is not None else []
    invocation.output.record(_described(after) | {"changed": before != after})
    for line in lines:
        invocation.output.say(f"foreign key {line}")


@table.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.pass_obj
def sync(invocation: Invocation, name: Name) -> None:
    """Give the relation the columns that were added to its heap, which the worker does by itself.

    Then look for rows in the lake that break constraints which were added to it.
    """
    from frostline.relation import constraints, following  # noqa: PLC0415

    with invocation.catalog() as connection:
        added = following.follow(connection, tables.with_lake(connection, name))
        held = constraints.look(connection, tables.with_lake(connection, name))
    changed = bool(added or held)
    invocation.output.record({"table": str(name), "added": list(added), "held": list(held), "changed": changed})


@table.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.argument("change")
@click.pass_obj
def alter(invocation: Invocation, name: Name, change: str) -> None:
    """Run ALTER TABLE with this CHANGE on the heap, as 'drop column note'. For databases without event triggers.

    A column that needs a value of its own in each row is added in steps; killed, the same command goes on.
    """
    from frostline.pipeline import fill_columns, spark  # noqa: PLC0415

    with (
        invocation.catalog() as connection,
        exporting() as report,
        spark.for_jobs(connection, invocation.settings(), report) as jobs,
    ):
        rows = fill_columns.alter(jobs, tables.with_lake(connection, name), change)
    invocation.output.say(f"{name} is altered" + (f"; {rows} rows were given a value" if rows is not None else ""))


@table.command(name="row-security")
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.argument("state", type=click.Choice(["on", "off"]))
@click.pass_obj
def row_security(invocation: Invocation, name: Name, state: str) -> None:
    """Switch row security of a table on or off, for both tiers. Its policies go on the heap and are followed."""
    from frostline.relation import rowsecurity  # noqa: PLC0415

    with invocation.catalog() as connection:
        changed = rowsecurity.switch(connection, tables.with_lake(connection, name), on=state == "on")
    invocation.output.record({"table": str(name), "row_security": state, "changed": changed})


@table.command()
@click.argument("name", type=TABLE, metavar="[SCHEMA.]TABLE")
@click.option("--keep-lake", is_flag=True, help="Leave rows that are only in the lake behind there.")
@click.option("--thaw", is_flag=True, help="Bring all rows back from the lake first.")
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.pass_obj
def remove(invocation: Invocation, name: Name, keep_lake: bool, thaw: bool, dry_run: bool) -> None:  # noqa: FBT001
    """Give a table back as the plain table it was."""
    from frostline.cli.upkeep import delete_left  # noqa: PLC0415
    from frostline.relation import removal  # noqa: PLC0415

    if keep_lake and thaw:
        raise UsageError("--keep-lake and --thaw contradict each other", hint="say one of them")
    with invocation.catalog() as connection:
        if thaw and not dry_run:
            _thaw_everything(invocation, connection, name)
        statements = removal.remove(connection, name, keep_lake=keep_lake or (thaw and dry_run), dry_run=dry_run)
        if not dry_run:
            invocation.output.say(f"{name} is a plain table again")
            delete_left(invocation, connection)
    for statement in statements if dry_run else ():
        invocation.output.line(statement)


def _thaw_everything(invocation: Invocation, connection: Connection, name: Name) -> None:
    from frostline.pipeline import spark, thaw  # noqa: PLC0415

    managed = tables.with_lake(connection, name)
    if seams.get(connection, managed).frost_line == managed.tier_kind.lowest:
        return
    with exporting() as report, spark.for_jobs(connection, invocation.settings(), report) as jobs:
        result = thaw.run(jobs, managed, (None, None))
    invocation.output.say(f"{name} is hot; {result.rows} rows came back from the lake")


def _described(managed: Table) -> dict[str, Any]:
    return {
        "table": str(managed.name),
        "tier_key": f"{managed.tier_key} {managed.tier_kind.value}",
        "relation": str(managed.relation) if managed.has_lake else None,
        "heap": str(managed.heap),
        "mode": managed.mode.value,
        "foreign_keys": managed.foreign_keys.value if managed.has_lake else None,
        **policy.described(managed.policy),
        "lake_partition": managed.lake_partition,
        "held_from": None if managed.held_from is None else to_text(managed.tier_kind, managed.held_from),
        "id": managed.id,
    }


def _described_partition(managed: Table, partition: Partition) -> dict[str, Any]:
    lower, upper = (
        None if edge is None else to_text(managed.tier_kind, edge) for edge in (partition.lower, partition.upper)
    )
    return {
        "partition": str(partition.name),
        "from": "DEFAULT" if partition.is_default else lower or "MINVALUE",
        "to": "DEFAULT" if partition.is_default else upper or "MAXVALUE",
        "rows_estimate": max(partition.rows_estimate, 0),
        "size_bytes": partition.size_bytes,
    }


def _described_column(managed: Table, column: Column) -> dict[str, Any]:
    return {
        "column": column.name,
        "type": column.pg_type.formatted,
        "lake_type": column.encoding.lake_type,
        "travels_as": "text" if column.encoding.as_text else "itself",
        "conditions_run_in": "the lake" if column.encoding.pushable else "Postgres",
        "key": column.name in managed.key,
        "field_id": column.field_id,
    }


@table.command()
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
        made = ", ".join(f"{lost.what} {lost.name}" for lost in done.lost)
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
    asked = registration.Request(name, Policy(**policy.given(said)), None, beside)
    request = job.Request(asked, location, heap_is_newer, take_over, accept_lost_changes)
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


@click.command()
@click.argument("role", type=ROLE, metavar="ROLE")
@tables_argument
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.pass_obj
def grant(invocation: Invocation, role: str, names: tuple[Name, ...], dry_run: bool) -> None:  # noqa: FBT001
    """Let a role select, insert, update and delete rows of managed tables, in both tiers.

    Without a table: all managed tables. The role gets rights on the relations and on the sequences of their defaults,
    none on the heap or on anything of Frostline's. Running it again changes nothing.
    """
    from frostline.relation import grants  # noqa: PLC0415

    with invocation.catalog() as connection:
        results = grants.grant(connection, role, chosen(connection, names), dry_run=dry_run)
    if dry_run:
        for statement in [statement for result in results for statement in result.statements]:
            invocation.output.line(statement)
        return
    invocation.output.records(
        [
            {
                "table": str(result.table.name),
                "role": role,
                "changed": bool(result.statements),
                "rights_on_heap": list(result.rights_on_heap),
            }
            for result in results
        ]
    )
