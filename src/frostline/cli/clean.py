"""`frostline clean`: empty archived heap partitions whose grace period is over."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import chosen, tables_argument
from frostline.model.names import Name
from frostline.model.tables import Table

if TYPE_CHECKING:
    from frostline.pipeline.clean import Result


@click.command()
@tables_argument
@click.pass_obj
def clean(invocation: Invocation, names: tuple[Name, ...]) -> None:
    """Empty and drop archived heap partitions that nobody can still need, and say why others wait."""
    from frostline.pipeline import clean as job  # noqa: PLC0415

    settings = invocation.settings()
    with invocation.catalog() as connection:
        results = [(table, job.run(connection, settings, table)) for table in chosen(connection, names)]
    invocation.output.records([record for table, result in results for record in _described(table, result)])


def _described(table: Table, result: "Result") -> Iterator[dict[str, str]]:
    for partition in result.emptied:
        yield {"table": str(table.name), "partition": partition, "state": "cleaned"}
    for waiting in result.waiting:
        yield {"table": str(table.name), "partition": waiting.partition, "state": f"waits: {waiting.reason}"}
