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
        found = pins.list_all(connection)
    invocation.output.records(
        [
            {
                "id": one.id,
                "table": str(one.table),
                "snapshot_id": one.snapshot_id,
                "holder": one.holder,
                "made": f"{one.made_at:%Y-%m-%d %H:%M:%S%z}",
                "expires": f"{one.expires_at:%Y-%m-%d %H:%M:%S%z}",
                "alive": one.is_alive,
            }
            for one in found
        ]
    )


@pin.command()
@click.argument("pin_id", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def release(invocation: Invocation, pin_id: int) -> None:
    """Take a pin away. Its reader may lose the files that it reads."""
    with invocation.catalog() as connection:
        pins.release(connection, pin_id)
