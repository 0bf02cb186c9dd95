"""`frostline status`: where every table stands."""

from typing import TYPE_CHECKING, Any

import click

from frostline.cli.invocation import Invocation

if TYPE_CHECKING:
    from frostline.pipeline.status import TableStatus


@click.command()
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show every managed table: frost line, hot and cold rows, overlay, last job. Works while the lake is down."""
    from frostline.pipeline.status import every  # noqa: PLC0415

    with invocation.catalog() as connection:
        invocation.output.records([_described(one) for one in every(connection)])


def _described(one: "TableStatus") -> dict[str, Any]:
    job = one.last_job
    return {
        "table": str(one.table.name),
        "frost_line": one.frost_line,
        "held_from": one.held_from,
        "snapshot_id": one.snapshot_id,
        "hot_rows_estimate": one.hot_rows_estimate,
        "hot_bytes": one.hot_bytes,
        "cold_rows": one.cold_rows,
        "cold_bytes": one.cold_bytes,
        "cold_files": one.cold_files,
        "overlay_rows": one.overlay_rows,
        "overlay_age_s": one.overlay_age_s,
        "fold_due": one.fold_due,
        "uncleaned_partitions": one.uncleaned_partitions,
        "uncleaned_bytes": one.uncleaned_bytes,
        "last_job": f"{job.kind} {job.job_id} {job.state.value} {job.changed_at:%Y-%m-%d %H:%M:%S}" if job else None,
        "error": job.error if job else None,
    }
