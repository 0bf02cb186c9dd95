"""`frostline clean`: empty archived heap partitions whose grace period is over."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import TABLE, chosen
from frostline.model.names import Name


@click.command()
@click.argument("names", type=TABLE, nargs=-1, metavar="[[SCHEMA.]TABLE]...")
@click.pass_obj
def clean(invocation: Invocation, names: tuple[Name, ...]) -> None:
    """Empty and drop archived heap partitions that nobody can still need, and say why others wait."""
    from frostline.pipeline import clean as job  # noqa: PLC0415

    with invocation.catalog() as connection:
        results = [(table, job.run(connection, table)) for table in chosen(connection, names)]
    records = [{"table": str(table.name), "partition": name, "state": "cleaned"} for table, one in results for name in one.emptied]
    records += [
        {"table": str(table.name), "partition": waiting.partition, "state": f"waits: {waiting.reason}"}
        for table, one in results
        for waiting in one.waiting
    ]
    invocation.output.records(records)
