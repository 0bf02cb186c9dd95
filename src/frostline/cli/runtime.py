"""The commands of the room `runtime`: up, init, serve, run, psql, demo."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frostline.cli.invocation import Invocation, master_option
from frostline.cli.output import Output
from frostline.cli.progress import exporting
from frostline.cli.signals import stop_requested, stop_with_parent, stopped_in_time

if TYPE_CHECKING:
    from frostline.pipeline.tasks import Report

_PORT = click.IntRange(1, 65535)


@click.command()
@click.option("--pg-port", type=_PORT, help="Port of the embedded Postgres.  [default: the last one, else a free one]")
@click.option("--lake-port", type=_PORT, help="Port of the lake server.  [default: the last one, else a free one]")
@click.option(
    "--rest-port", type=_PORT, help="Port of the Iceberg REST catalog.  [default: the last one, else it is off]"
)
@click.option("--warehouse", help="Where the lake's files go: a directory or a URI.  [default: in the home directory]")
@click.option("--no-worker", is_flag=True, help="Leave all jobs to commands: archive, fold, ...")
@click.pass_obj
def up(
    invocation: Invocation,
    pg_port: int | None,
    lake_port: int | None,
    rest_port: int | None,
    warehouse: str | None,
    no_worker: bool,  # noqa: FBT001
) -> None:
    """Start the embedded Postgres, the lake server and the worker, and run until SIGTERM.

    All state is kept in the home directory. Prints `ready dsn=...` when it can be used; the password is not in it, but
    in the file that it names.
    """
    from frostline.runtime import up as servers  # noqa: PLC0415
    from frostline.runtime.home import prepare  # noqa: PLC0415

    ports = {"pg_port": pg_port, "lake_port": lake_port, "rest_port": rest_port}
    with prepare(invocation.needed_home(), **ports, warehouse=warehouse) as home:
        settings = invocation.settings(home.given)
        stop = stop_requested()
        announce = invocation.output.line
        servers.run(home, settings, worker=not no_worker, announce=announce, stop=stop, at_once=stop.again)


@click.command()
@click.option("--dsn", help="The database, as a connection string.  [default: FROSTLINE_DSN]")
@click.option("--warehouse", help="Where the lake's files go: a directory or a URI.  [default: FROSTLINE_WAREHOUSE]")
@click.option("--new-warehouse", is_flag=True, help="Use another warehouse than before. Refused while rows are in it.")
@click.pass_obj
def init(invocation: Invocation, dsn: str | None, warehouse: str | None, new_warehouse: bool) -> None:  # noqa: FBT001
    """Install the catalog and the foreign server into an existing database. Running it again changes nothing.

    With --home, also write frostline.toml there, so that the other commands need no more than --home. The warehouse
    gets a marker, without which nothing is ever written to it or deleted from it.
    """
    from frostline.runtime.install import install_with_home, with_home_if_made  # noqa: PLC0415

    invocation.home, target = with_home_if_made(invocation.home), invocation.home
    settings = invocation.settings({key: value for key, value in (("dsn", dsn), ("warehouse", warehouse)) if value})
    invocation.output.record(install_with_home(settings, target, new_warehouse=new_warehouse))


@click.command()
@click.option("--rest-port", type=_PORT, help="Port of the Iceberg REST catalog.  [default: rest_port of the settings]")
@click.pass_obj
def serve(invocation: Invocation, rest_port: int | None) -> None:
    """Run the lake server for a database that `frostline init` prepared, until SIGTERM.

    With a port for it, also the Iceberg REST catalog, for engines that have a token: frostline token create.
    """
    from frostline.runtime.lake_server import serve_until  # noqa: PLC0415

    settings = invocation.settings({"rest_port": rest_port} if rest_port else {})
    serve_until(settings, announce=invocation.output.line, stop=stop_requested())


@click.command()
@master_option
@click.option("--with-parent", is_flag=True, hidden=True)
@click.pass_obj
def run(invocation: Invocation, master: str | None, with_parent: bool) -> None:  # noqa: FBT001
    """Do what is due on every table, until SIGTERM: make partitions, archive, fold, clean, and keep the lake tidy.

    Several workers may run; one of them acts. SIGTERM lets the current step finish for 20 s, a second one does not.
    """
    from frostline.observe.metrics import worker as metrics  # noqa: PLC0415
    from frostline.runtime import worker  # noqa: PLC0415

    settings = invocation.settings({"spark_master": master} if master else {})
    with stopped_in_time() as stop, metrics.served(settings):
        if with_parent:
            stop_with_parent()
        worker.run(settings, stop, announce=invocation.output.line, without_lake=with_parent)


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def psql(invocation: Invocation, arguments: tuple[str, ...]) -> None:
    """Open psql on the database; ARGUMENTS are psql's own."""
    from frostline.runtime.programs import become_psql  # noqa: PLC0415

    become_psql(invocation.settings().dsn, arguments)


@click.command()
@click.option("--pg-port", type=_PORT, help="Port of the embedded Postgres.  [default: the last one, else a free one]")
@click.option("--lake-port", type=_PORT, help="Port of the lake server.  [default: the last one, else a free one]")
@click.option(
    "--rows", type=click.IntRange(1000), default=1_000_000, show_default=True, help="How many events to load."
)
@click.pass_obj
def demo(invocation: Invocation, pg_port: int | None, lake_port: int | None, rows: int) -> None:
    """Load a million events, archive them, and show the same table before and after.

    Everything happens in the home directory, ./demo unless --home names another. What an earlier demo left there is
    thrown away first. Both servers are stopped at the end; the data stays to be looked at.
    """
    from frostline.runtime import demo as job  # noqa: PLC0415

    directory = invocation.home or Path("demo").absolute()
    with job.fresh_home(directory, pg_port=pg_port, lake_port=lake_port) as home:
        settings = invocation.settings({"log_level": "warning", **job.given(home)})
        job.run(home, settings, _TerminalStory(invocation.output), rows=rows)
    for line in _what_next(directory):
        invocation.output.line(line)


class _TerminalStory:
    """Tells the story on stdout, chapter by chapter."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._chapters = 0

    def chapter(self, title: str) -> None:
        """Begin a new part."""
        self._chapters += 1
        self._output.line(f"\n{_bold(f'{self._chapters}. {title}')}")

    def say(self, text: str) -> None:
        """Say one line."""
        self._output.line(text)

    def show(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Show a table."""
        self._output.records(records)

    def exporting(self) -> "AbstractContextManager[Report]":
        """Show the progress bar of an archive."""
        return exporting()


def _bold(text: str) -> str:
    return click.style(text, bold=True) if sys.stdout.isatty() else text


def _what_next(directory: Path) -> list[str]:
    home = os.path.relpath(directory)
    program = "frostline" if shutil.which("frostline") == sys.argv[0] else sys.argv[0]
    return [
        "\nTo look at it yourself, start it again and open another terminal:",
        f"    {program} up --home {home}",
        f"    {program} psql --home {home}",
        "and there, for instance:",
        "    explain select * from events where id = 4711;",
        "    update events set kind = 'refund' where id = 4711 returning *;",
        "docs/tutorial/first-table.md does the same with a table of your own.",
    ]
