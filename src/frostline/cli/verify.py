"""`frostline verify`: compare every archived value with what was written."""

from contextlib import ExitStack

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name

FAULTY = 1


@click.command()
@tables_argument
@click.pass_obj
def verify(invocation: Invocation, names: tuple[Name, ...]) -> int:
    """Compare every value of the lake with its recorded fingerprint, and with the heap where that still has it.

    Exit code 1 when anything differs; each fault names its file or partition.
    """
    from frostline.lake import warehouse  # noqa: PLC0415
    from frostline.pipeline import verify as job  # noqa: PLC0415

    settings = invocation.settings()
    with ExitStack() as stack:
        connection = stack.enter_context(invocation.catalog())
        tables = chosen(connection, names)
        if tables:
            stack.enter_context(warehouse.guarded(connection, settings.warehouse))
        reports = [job.run(connection, table) for table in tables]
        is_missing = any(fault.what == job.MISSING for report in reports for fault in report.faults)
        why = warehouse.deleted(connection) if is_missing else None
    invocation.output.records(
        [
            {
                "table": str(report.table.name),
                "files": report.files,
                "rows": report.rows,
                "heap_partitions": report.partitions,
                "faults": [f"{fault.where} {fault.what}" for fault in report.faults],
            }
            for report in reports
        ]
    )
    if why:
        invocation.output.say(f"missing files: {why}")
    return FAULTY if any(report.faults for report in reports) else 0
