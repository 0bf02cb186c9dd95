"""`frostline grant`: what an application's role needs, and nothing more."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import ROLE, chosen, tables_argument
from frostline.model.names import Name


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
