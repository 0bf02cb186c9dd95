"""`frostline status` and `frostline jobs`: where every table stands, what comes next, what is wrong, what was done."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from frostline.catalog import jobs as catalog
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE, with_lake_tables
from frostline.cli.output import duration, size
from frostline.model.health import Problem
from frostline.model.names import Name

if TYPE_CHECKING:
    from frostline.observe.status import LakeTableStatus, Next, TableStatus


@click.command()
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show every managed table and lake table, what comes next, and what is wrong. Works while the lake is down.

    Of a lake table: what it had when a worker or a command has looked at it last, and the commits since.
    """
    from frostline.observe.status import problems, read  # noqa: PLC0415
    from frostline.runtime.watchdog import answers  # noqa: PLC0415

    settings = invocation.settings()
    with invocation.catalog() as connection:
        current = read(connection)
    wrong = list(problems(current))
    if (current.tables or current.lake_tables) and not answers((settings.lake_host, settings.lake_port), 1.0):
        where = f"{settings.lake_host}:{settings.lake_port}"
        wrong.append(Problem(f"the lake server does not answer on {where}", "frostline serve"))
    complete = {
        "tables": [_described(table) for table in current.tables],
        "lake_tables": [_lake_described(table) for table in current.lake_tables],
        "worker": current.leader,
        "problems": [_problem(problem) for problem in wrong],
    }
    lines = [f"worker: {current.leader or 'none'}", *(f"! {problem.what}\n    {problem.command}" for problem in wrong)]
    briefs = [[_brief(table) for table in current.tables], [_lake_brief(table) for table in current.lake_tables]]
    invocation.output.screen(complete, briefs, lines)


def _problem(problem: Problem) -> dict[str, str]:
    return {"problem": problem.what, "command": problem.command}


def _described(shown: "TableStatus") -> dict[str, Any]:
    job, lake, following = shown.last_job, shown.lake, shown.next_action
    return {
        "table": str(shown.table.name),
        "relation": str(shown.table.relation) if shown.table.has_lake else None,
        "mode": shown.table.mode.value,
        "frost_line": lake.frost_line,
        "held_from": lake.held_from,
        "retained_from": lake.retained_from,
        "lag": lake.lag,
        "lag_s": shown.lag_s,
        "snapshot_id": lake.snapshot_id,
        "partitions": shown.partitions,
        "hot_rows_estimate": shown.hot_rows_estimate,
        "hot_bytes": shown.hot_bytes,
        "cold_rows": lake.rows,
        "cold_bytes": lake.size_bytes,
        "cold_files": lake.files,
        "snapshots": lake.snapshots,
        "overlay_rows": lake.overlay_rows,
        "overlay_age_s": lake.overlay_age_s,
        "fold_due": shown.fold_due,
        "uncleaned_partitions": lake.uncleaned_partitions,
        "uncleaned_bytes": lake.uncleaned_bytes,
        "running": shown.state.leased_by,
        **_described_work(job, following),
        "problems": [_problem(it) for it in shown.problems],
    }


def _described_work(job: catalog.Job | None, following: "Next | None") -> dict[str, Any]:
    return {
        "last_job": f"{job.kind} {job.job_id} {job.state.value} {job.changed_at:%Y-%m-%d %H:%M:%S}" if job else None,
        "error": job.error if job else None,
        "next_action": following.kind.value if following else None,
        "next_at": following.at if following else None,
        "next_why": following.why if following else None,
    }


def _lake_described(shown: "LakeTableStatus") -> dict[str, Any]:
    standing, look = shown.standing, shown.standing.look
    return {
        "table": str(standing.name),
        "metadata": standing.metadata_location,
        "looked_at": standing.looked_at,
        "commits_since": shown.state.commits,
        "rows": look.rows if look else None,
        "files": look.files if look else None,
        "delete_files": look.delete_files if look else None,
        "size_bytes": look.size_bytes if look else None,
        "snapshots": look.snapshots if look else None,
        "running": standing.leased_by,
        **_described_work(standing.last_job, shown.next_action),
        "problems": [_problem(it) for it in shown.problems],
    }


def _lake_brief(shown: "LakeTableStatus") -> dict[str, Any]:
    """What a person takes in at a glance: what it had when somebody looked."""
    standing, look = shown.standing, shown.standing.look
    return {
        "lake_table": str(standing.name),
        "had": f"{_counted(look.rows, 'row')}, {size(look.size_bytes)}, {_counted(look.files, 'file')}"
        if look
        else None,
        "delete_files": look.delete_files if look else None,
        "snapshots": look.snapshots if look else None,
        "commits_since": shown.state.commits,
        "last": _last(standing.last_job),
        "next": f"running: {standing.leased_by}" if standing.leased_by else _next(shown.next_action),
    }


def _brief(shown: "TableStatus") -> dict[str, Any]:
    """What a person takes in at a glance."""
    lake = shown.lake
    age = "" if lake.overlay_age_s is None else f", {duration(lake.overlay_age_s)} old"
    lag = duration(shown.lag_s) if shown.lag_s is not None else f"{lake.lag:,}"
    return {
        "table": str(shown.table.name),
        "frost_line": _short(lake.frost_line),
        "lag": lag if lake.lag else None,
        "hot": f"{_counted(shown.hot_rows_estimate, 'row')}, {size(shown.hot_bytes)}",
        "cold": f"{_counted(lake.rows, 'row')}, {size(lake.size_bytes)}, {_counted(lake.files, 'file')}"
        if lake.files
        else None,
        "overlay": f"{_counted(lake.overlay_rows, 'row')}{age}" if lake.overlay_rows else None,
        "last": _last(shown.last_job),
        "next": f"running: {shown.state.leased_by}" if shown.state.leased_by else _next(shown.next_action),
    }


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _short(line: str | None) -> str | None:
    """A frost line at midnight without the midnight."""
    return line and line.removesuffix("+00").removesuffix(" 00:00:00")


def _last(job: catalog.Job | None) -> str | None:
    if job is None:
        return None
    ago = duration((datetime.now(UTC) - job.changed_at).total_seconds())
    ends = {"published": "ok", "cleaned": "ok", "failed": "failed", "interrupted": "interrupted"}
    return f"{job.kind} {ends.get(job.state.value, 'not finished')} {ago} ago"


def _next(following: "Next | None") -> str | None:
    if following is None:
        return None
    if following.at is None:
        return f"{following.kind} now: {following.why}"
    return f"{following.kind} in {duration((following.at - datetime.now(UTC)).total_seconds())}"


@click.command()
@click.argument("name", type=TABLE, required=False, metavar="[[SCHEMA.]TABLE]")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, metavar="N", help="How many.")
@click.option("--failed", is_flag=True, help="Only those that failed.")
@click.pass_obj
def jobs(invocation: Invocation, name: Name | None, limit: int, failed: bool) -> None:  # noqa: FBT001
    """List the jobs of one table, or of all: what they did, how long they took, why they failed. Newest first.

    Those of tables that were removed are among them.
    """
    with invocation.catalog() as connection:
        if name and not catalog.is_remembered(connection, name):
            with_lake_tables(connection, [name])
        past = catalog.history(connection, name, limit=limit, failed=failed)
    invocation.output.records([_job(job) for job in past])


def _job(job: catalog.PastJob) -> dict[str, Any]:
    return {
        "id": job.job_id,
        "table": str(job.table),
        "kind": job.kind,
        "state": job.state.value,
        "rows": job.rows,
        "size_bytes": job.size_bytes,
        "started": f"{job.started_at:%Y-%m-%d %H:%M:%S%z}",
        "duration_s": round(job.duration.total_seconds(), 3),
        "detail": job.detail,
        "error": job.error,
    }
