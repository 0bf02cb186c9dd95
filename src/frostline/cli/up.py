"""`frostline up`: the embedded Postgres and the lake server, in the foreground."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.signals import stop_requested

PORT = click.IntRange(1, 65535)


@click.command()
@click.option("--pg-port", type=PORT, help="Port of the embedded Postgres.  [default: the last one, else a free one]")
@click.option("--lake-port", type=PORT, help="Port of the lake server.  [default: the last one, else a free one]")
@click.pass_obj
def up(invocation: Invocation, pg_port: int | None, lake_port: int | None) -> None:
    """Start the embedded Postgres and the lake server, and run until SIGTERM.

    All state is kept in the home directory. Prints `ready dsn=...` when it can be used.
    """
    from frostline.embedded.home import prepare  # noqa: PLC0415
    from frostline.embedded.up import run  # noqa: PLC0415

    with prepare(invocation.needed_home(), pg_port=pg_port, lake_port=lake_port) as home:
        settings = invocation.settings(home.given)
        run(home, settings, announce=invocation.output.line, stop=stop_requested())
