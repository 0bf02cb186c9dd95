"""What every command shares: where the settings are, how to print, and the options that say so."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from frostline import logs, settings
from frostline.catalog import migrations
from frostline.catalog.connect import Connection, connect
from frostline.cli.output import JsonOutput, Output, TextOutput
from frostline.errors import UsageError
from frostline.lake import objectstore

_OUTPUTS: dict[str, type[Output]] = {"text": TextOutput, "json": JsonOutput}


@dataclass
class Invocation:
    """One call of the program. The shared options fill it before the command runs."""

    home: Path | None = None
    output: Output = field(default_factory=TextOutput)
    debug: bool = False

    def settings(self, given: Mapping[str, Any] | None = None) -> settings.Settings:
        """Read the settings, and start the log and the way to an object store as they say.

        `given` are values of the command's own options.
        """
        loaded = settings.load(self.home, given)
        logs.configure("debug" if self.debug else loaded.log_level)
        objectstore.use(objectstore.Access.of(loaded))
        return loaded

    @contextmanager
    def catalog(self) -> Generator[Connection]:
        """A connection to a database that has Frostline's catalog."""
        with connect(self.settings().dsn, purpose="command") as connection:
            migrations.require(connection)
            yield connection

    def needed_home(self) -> Path:
        """The home directory of a command that cannot do without."""
        if self.home is None:
            raise UsageError("no home directory is named", hint="say --home DIR, or set FROSTLINE_HOME")
        return self.home


def shared_options() -> list[click.Parameter]:
    """`--home`, `--output` and `--debug`, which every command takes before or after its name."""
    return [
        click.Option(
            ["--home"],
            type=click.Path(file_okay=False, path_type=Path),
            envvar="FROSTLINE_HOME",
            help="Directory with frostline.toml.",
            expose_value=False,
            callback=_set_home,
        ),
        click.Option(
            ["--output"],
            type=click.Choice(list(_OUTPUTS)),
            envvar="FROSTLINE_OUTPUT",
            help="How to print results.  [default: text]",
            expose_value=False,
            callback=_set_output,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            envvar="FROSTLINE_DEBUG",
            help="Log everything, and show where an error came from.",
            expose_value=False,
            callback=_set_debug,
        ),
    ]


def _set_home(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).home = value.expanduser().absolute()


def _set_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).output = _OUTPUTS[value]()


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  (click calls it)
    if value:
        context.ensure_object(Invocation).debug = True
