"""`frostline pin`: which states of the lakes readers outside Postgres hold."""

import click

from frostline.catalog import pins
from frostline.cli.invocation import Invocation


@click.group()
def pin() -> None:
    """Readers outside Postgres that keep a state of a lake from being expired."""


@pin.command("list")
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List the pins, with who holds them and until when."""
    with invocation.catalog() as connection:
        listed = pins.list_all(connection)
    invocation.output.records(
        [
            {
                "id": held.id,
                "table": str(held.table),
                "snapshot_id": held.snapshot_id,
                "holder": held.holder,
                "made": f"{held.made_at:%Y-%m-%d %H:%M:%S%z}",
                "expires": f"{held.expires_at:%Y-%m-%d %H:%M:%S%z}",
                "alive": held.is_alive,
            }
            for held in listed
        ]
    )


@pin.command()
@click.argument("pin_id", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def release(invocation: Invocation, pin_id: int) -> None:
    """Take a pin away. Its reader may lose the files that it reads."""
    with invocation.catalog() as connection:
        pins.release(connection, pin_id)
