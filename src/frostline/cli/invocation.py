"""What every command shares: where the settings are, how to print, and the options that say so."""

import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from frostline import filemode, logs, settings
from frostline.catalog import migrations
from frostline.catalog.connect import Connection, connect
from frostline.cli.output import JsonOutput, Output, TextOutput
from frostline.errors import UsageError
from frostline.lake import objectstore
from frostline.settings import ENV_PREFIX

if TYPE_CHECKING:
    from frostline.pipeline.job import JobContext

OUTPUTS: dict[str, type[Output]] = {"text": TextOutput, "json": JsonOutput}
_OUTPUT = re.compile("--output(=|$)")
_Setter = Callable[[click.Context, click.Parameter, Any], None]


@dataclass
class Invocation:
    """One call of the program. The shared options fill it before the command runs."""

    home: Path | None = None
    output: Output = field(default_factory=TextOutput)
    debug: bool = False
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings that the command's own options have set."""

    def settings(self, given: Mapping[str, Any] | None = None) -> settings.Settings:
        """Read the settings, and start the log, the way to an object store and the umask as they say.

        `given` are values of the command's own options; they hold for the rest of the call.
        """
        self.given |= given or {}
        loaded = settings.load(self.home, self.given)
        logs.configure("debug" if self.debug else loaded.log_level)
        objectstore.use(objectstore.Access.of(loaded))
        filemode.use(loaded.file_mask)
        return loaded

    @contextmanager
    def catalog(self) -> Generator[Connection]:
        """A connection to a database that has Frostline's catalog."""
        said = self.settings()
        said.refuse_node()
        with connect(said.dsn, purpose="command") as connection:
            migrations.require(connection)
            yield connection

    @contextmanager
    def jobs(self, master: str | None) -> Generator["JobContext"]:
        """What jobs with Spark tasks need: the catalog, Spark from the first task on, and a progress bar."""
        from frostline.cli.progress import exporting  # noqa: PLC0415
        from frostline.pipeline import spark  # noqa: PLC0415

        said = self.settings({"spark_master": master} if master else {})
        with self.catalog() as connection, exporting() as report, spark.for_jobs(connection, said, report) as jobs:
            yield jobs

    def needed_home(self) -> Path:
        """The home directory of a command that cannot do without."""
        if self.home is None:
            raise UsageError("no home directory is named", hint="say --home DIR, or set FROSTLINE_HOME")
        return self.home


class SharedOption(click.Option):
    """An option that every command takes before or after its name. The nearest one wins; the environment comes last."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The variable's value, if the option was not given further left."""
        return None if self._was_given(ctx.parent) else super().resolve_envvar_value(ctx)

    def _was_given(self, context: click.Context | None) -> bool:
        while context is not None:
            if context.get_parameter_source(self.name or "") is ParameterSource.COMMANDLINE:
                return True
            context = context.parent
        return False


master_option = click.option(
    "--master", help="The Spark master.  [default: spark_master of the settings, else local[*]]"
)
"""For `Invocation.jobs`."""


def shared_options(*, environment: bool = True) -> list[click.Parameter]:
    """`--home`, `--output` and `--debug`, which every command takes before or after its name.

    Only a command reads the environment: a group does not know yet what will be said after its name.
    """

    def shared(name: str, set_it: _Setter, **kind: Any) -> SharedOption:
        variable = ENV_PREFIX + name.upper() if environment else None
        return SharedOption([f"--{name}"], envvar=variable, expose_value=False, callback=set_it, **kind)

    directory = click.Path(file_okay=False, path_type=Path)
    return [
        shared("home", _set_home, type=directory, help="Directory with frostline.toml."),
        shared("output", _set_output, type=click.Choice(list(OUTPUTS)), help="How to print results.  [default: text]"),
        shared("debug", _set_debug, is_flag=True, help="Log everything, and show where an error came from."),
    ]


def wanted_output(arguments: Sequence[str], invocation: Invocation) -> Output:
    """How to print an error that came before the options were read: as the words themselves say."""
    said = [words.partition("=")[2] or after for words, after in pairwise([*arguments, ""]) if _OUTPUT.match(words)]
    for word in (*reversed(said), os.environ.get(f"{ENV_PREFIX}OUTPUT", "")):
        if word in OUTPUTS:
            return OUTPUTS[word]()
    return invocation.output


def _set_home(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).home = value.expanduser().absolute()


def _set_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).output = OUTPUTS[value]()


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  (click calls it)
    if value:
        context.ensure_object(Invocation).debug = True
