"""`frostline demo`: a million events in two tiers, in one command."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frostline.cli.invocation import Invocation
from frostline.cli.output import Output
from frostline.cli.progress import exporting
from frostline.cli.up import PORT

if TYPE_CHECKING:
    from frostline.pipeline.tasks import Report


@click.command()
@click.option("--pg-port", type=PORT, help="Port of the embedded Postgres.  [default: the last one, else a free one]")
@click.option("--lake-port", type=PORT, help="Port of the lake server.  [default: the last one, else a free one]")
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
        job.run(home, settings, TerminalStory(invocation.output), rows=rows)
    for line in _what_next(directory):
        invocation.output.line(line)


class TerminalStory:
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
