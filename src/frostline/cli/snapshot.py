"""`frostline snapshot`: copy many tables to Iceberg as of one moment, all visible at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import snapshot_versions
from frostline.cli.invocation import Invocation, master_option
from frostline.cli.progress import copying
from frostline.errors import UsageError
from frostline.model import snapshot as rules
from frostline.model.snapshot import BadRequest, Pattern

if TYPE_CHECKING:
    from frostline.catalog.snapshot_versions import Shown, Version
    from frostline.model.snapshot import Relation
    from frostline.pipeline.snapshot import Result


class Patterns(click.ParamType[tuple[Pattern, ...]]):
    """`schema.table` with `*` for anything, several with commas between."""

    name = "pattern"

    def convert(
        self, value: str | tuple[Pattern, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Pattern, ...]:
        """Read them."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(rules.parse_patterns([value]))
        except BadRequest as error:
            self.fail(f"{error}; {error.hint}", param, ctx)


class SnapshotName(click.ParamType[str]):
    """A name that can be a namespace and a folder."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        try:
            rules.check_name(value)
        except BadRequest as error:
            self.fail(f"{error}; {error.hint}", param, ctx)
        return value


PATTERNS = Patterns()
NAME = SnapshotName()


@click.group()
def snapshot() -> None:
    """Copies of many tables as of one moment, in Iceberg."""


@snapshot.command()
@click.argument("name", type=NAME)
@click.option(
    "--tables",
    "wanted",
    type=PATTERNS,
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="SCHEMA.TABLE, where * stands for anything; more with commas, or the option again.",
)
@click.option("--exclude", type=PATTERNS, multiple=True, metavar="PATTERN", help="Tables to leave out.")
@click.option("--incremental", is_flag=True, help="Use the last version's files of tables that have the same rows.")
@click.option("--require-atomic", is_flag=True, help="Refuse a REST catalog that cannot commit many tables at once.")
@master_option
@click.option("--dry-run", is_flag=True, help="List the tables, and copy none.")
@click.pass_obj
def create(invocation: Invocation, name: str, master: str | None, dry_run: bool, **request: Any) -> None:  # noqa: FBT001
    """Make a new version of a snapshot: all tables as of one moment, all visible at once.

    DROP, TRUNCATE and ALTER of a table wait until it is done, and sessions that come after one that waits, wait behind
    it. The run gives up when somebody has waited for 30 seconds.
    """
    from frostline.pipeline import snapshot as job  # noqa: PLC0415
    from frostline.pipeline import snapshot_plan, spark  # noqa: PLC0415

    tables, exclude = (tuple(pattern for those in request[key] for pattern in those) for key in ("wanted", "exclude"))
    asked = snapshot_plan.Request(name, tables, exclude, request["incremental"], request["require_atomic"])
    settings = invocation.settings({"spark_master": master} if master else {})
    with invocation.catalog() as connection:
        if dry_run:
            invocation.output.records([_planned(relation) for relation in snapshot_plan.chosen(connection, asked)])
            return
        with copying(name) as report, spark.while_busy(settings) as busy:
            result = job.create(connection, busy.session, settings, asked, report)
    invocation.output.record(_made(result))
    if not result.atomic:
        invocation.output.say("not atomic: the catalog took the tables one after the other, or new ones empty at first")


def _planned(relation: "Relation") -> dict[str, Any]:
    return {"table": str(relation.name), "managed": relation.is_managed, "lake_table": relation.is_lake_table}


def _made(result: "Result") -> dict[str, Any]:
    return {
        "snapshot": result.name,
        "version": result.version,
        "lsn": result.lsn,
        "tables": len(result.tables),
        "reused": sum(table.reused for table in result.tables),
        "rows": sum(table.fingerprint.rows for table in result.tables),
        "lake_bytes": sum(table.size_bytes for table in result.tables),
        "atomic": result.atomic,
    }


@snapshot.command("list")
@click.argument("name", type=NAME, required=False)
@click.option(
    "--all", "include_unpublished", is_flag=True, help="Also versions that failed, were dropped, or are being made."
)
@click.pass_obj
def list_(invocation: Invocation, name: str | None, include_unpublished: bool) -> None:  # noqa: FBT001
    """List the versions of one snapshot, or of all."""
    with invocation.catalog() as connection:
        versions = snapshot_versions.versions(connection, name, include_unpublished=include_unpublished)
    invocation.output.records(
        [_listed(version) | (_ended(version) if include_unpublished else {}) for version in versions]
    )


def _ended(version: "Version") -> dict[str, Any]:
    return {"state": version.state, "error": version.error}


def _listed(version: "Version") -> dict[str, Any]:
    return {
        "snapshot": version.name,
        "version": version.version,
        "taken": f"{version.taken_at:%Y-%m-%d %H:%M:%S%z}" if version.taken_at else None,
        "lsn": version.lsn,
        "tables": version.tables,
        "rows": version.rows,
        "lake_bytes": version.size_bytes,
        "atomic": version.atomic,
    }


@snapshot.command()
@click.argument("name", type=NAME)
@click.option("--version", type=click.IntRange(1), metavar="N", help="[default: the newest]")
@click.pass_obj
def show(invocation: Invocation, name: str, version: int | None) -> None:
    """Show the tables of a version, and the one query that gives a reader all of them as of one moment."""
    from frostline.pipeline import snapshot_drop  # noqa: PLC0415

    with invocation.catalog() as connection:
        chosen = snapshot_drop.find(connection, name, version)
        tables = snapshot_versions.tables(connection, chosen)
    query = rules.copies_query(name, version)
    complete = _listed(chosen) | {"cut": query, "copies": [_copied(table) for table in tables]}
    invocation.output.screen(complete, [[_brief(table) for table in tables]], ["", query])


def _copied(shown: "Shown") -> dict[str, Any]:
    return {
        "table": str(shown.name),
        "namespace": shown.namespace,
        "lake_table": shown.lake_table,
        "metadata_location": shown.metadata_location,
        "lake_snapshot_id": shown.lake_snapshot_id,
        "rows": shown.rows,
        "lake_bytes": shown.size_bytes,
        "hash_sum": shown.hash_sum,
        "reused": shown.reused,
    }


def _brief(copy: "Shown") -> dict[str, Any]:
    shown = _copied(copy)
    del shown["hash_sum"], shown["table"]
    return shown


@snapshot.command()
@click.argument("name", type=NAME)
@click.option("--version", type=click.IntRange(1), metavar="N", help="Only this one.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="All but the newest N.")
@click.pass_obj
def drop(invocation: Invocation, name: str, version: int | None, keep: int | None) -> None:
    """Drop versions of a snapshot, all of them unless told otherwise, with the files that no other version has."""
    from frostline.pipeline import snapshot_drop  # noqa: PLC0415

    if version is not None and keep is not None:
        raise UsageError("--version and --keep exclude each other", hint="say one of them")
    with invocation.catalog() as connection:
        result = snapshot_drop.drop(connection, invocation.settings(), name, version=version, keep=keep)
    invocation.output.record({"snapshot": name, "dropped": _numbers(result.versions), "deleted_files": result.files})


def _numbers(versions: Sequence[int]) -> list[int]:
    return list(versions)
