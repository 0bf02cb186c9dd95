"""`frostline serve`: only the lake server, in the foreground."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.signals import stop_requested


@click.command()
@click.pass_obj
def serve(invocation: Invocation) -> None:
    """Run the lake server for a database that `frostline init` prepared, until SIGTERM."""
    from frostline.runtime.lake_server import serve_until  # noqa: PLC0415

    serve_until(invocation.settings(), announce=invocation.output.line, stop=stop_requested())
