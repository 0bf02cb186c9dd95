"""`frostline up`: the embedded Postgres, the lake server and the worker, in the foreground."""

import click

from frostline.cli.invocation import Invocation
from frostline.cli.signals import stop_requested

PORT = click.IntRange(1, 65535)


@click.command()
@click.option("--pg-port", type=PORT, help="Port of the embedded Postgres.  [default: the last one, else a free one]")
@click.option("--lake-port", type=PORT, help="Port of the lake server.  [default: the last one, else a free one]")
@click.option("--warehouse", help="Where the lake's files go: a directory or a URI.  [default: in the home directory]")
@click.option("--no-worker", is_flag=True, help="Leave all jobs to commands: archive, fold, ...")
@click.pass_obj
def up(
    invocation: Invocation,
    pg_port: int | None,
    lake_port: int | None,
    warehouse: str | None,
    no_worker: bool,  # noqa: FBT001
) -> None:
    """Start the embedded Postgres, the lake server and the worker, and run until SIGTERM.

    All state is kept in the home directory. Prints `ready dsn=...` when it can be used; the password is not in it, but
    in the file that it names.
    """
    from frostline.runtime.home import prepare  # noqa: PLC0415
    from frostline.runtime.up import run  # noqa: PLC0415

    with prepare(invocation.needed_home(), pg_port=pg_port, lake_port=lake_port, warehouse=warehouse) as home:
        settings = invocation.settings(home.given)
        stop = stop_requested()
        run(home, settings, worker=not no_worker, announce=invocation.output.line, stop=stop, at_once=stop.again)
