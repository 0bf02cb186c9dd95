"""`frostline jobs`: what was done to the tables, newest first."""

from typing import Any

import click

from frostline.catalog import jobs as catalog
from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE
from frostline.model.names import Name


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
            tables.get(connection, name)
        past = catalog.history(connection, name, limit=limit, failed=failed)
    invocation.output.records([_described(job) for job in past])


def _described(job: catalog.PastJob) -> dict[str, Any]:
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
