"""`frostline token ...`: who may use the Iceberg REST catalog."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.names import ROLE


@click.group()
def token() -> None:
    """Tokens for engines that use the Iceberg REST catalog: create, list, drop."""


@token.command()
@click.argument("role", type=ROLE, metavar="ROLE")
@click.option("--write", is_flag=True, help="It may also create lake tables and namespaces, and commit to lake tables.")
@click.option("--days", type=click.IntRange(1, 36500), help="How long it is valid.  [default: until it is dropped]")
@click.pass_obj
def create(invocation: Invocation, role: str, write: bool, days: int | None) -> None:  # noqa: FBT001
    """Make a token for a role of Postgres and print it, once: only its hash is kept.

    With it an engine reads what the role may read: tables that it has SELECT on and that hide no row from it, and lake
    tables.
    """
    from frostline.catalog import tokens  # noqa: PLC0415

    with invocation.catalog() as connection:
        made, text = tokens.create(connection, role, may_write=write, days=days)
    invocation.output.record(
        {"token": text, "id": made.token_id, "role": made.role, "write": made.may_write, "expires_at": made.expires_at}
    )


@token.command(name="list")
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """Show which tokens there are, without the tokens themselves."""
    from frostline.catalog import tokens  # noqa: PLC0415

    with invocation.catalog() as connection:
        known = tokens.list_all(connection)
    invocation.output.records(
        [
            {
                "id": each.token_id,
                "role": each.role,
                "write": each.may_write,
                "created_at": each.created_at,
                "expires_at": each.expires_at,
                "valid": each.is_valid,
            }
            for each in known
        ]
    )


@token.command()
@click.argument("token_id", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def drop(invocation: Invocation, token_id: int) -> None:
    """Take a token away. From the next request on, it is refused."""
    from frostline.catalog import tokens  # noqa: PLC0415
    from frostline.errors import UsageError  # noqa: PLC0415

    with invocation.catalog() as connection:
        if not tokens.drop(connection, token_id):
            raise UsageError(f"there is no token {token_id}", hint="frostline token list")
    invocation.output.record({"id": token_id, "changed": True})
