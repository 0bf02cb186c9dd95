"""The `frostline` program: finds the command, runs it, and turns any error into a message and an exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from frostline import filemode
from frostline.cli.errors import report
from frostline.cli.invocation import Invocation, shared_options, wanted_output
from frostline.cli.output import Output, TextOutput
from frostline.cli.signals import end_as_interrupted
from frostline.errors import UsageError
from frostline.settings import is_text

COMMANDS = {
    "up": "frostline.cli.runtime:up",
    "init": "frostline.cli.runtime:init",
    "serve": "frostline.cli.runtime:serve",
    "psql": "frostline.cli.runtime:psql",
    "table": "frostline.cli.table:table",
    "run": "frostline.cli.runtime:run",
    "grant": "frostline.cli.table:grant",
    "token": "frostline.cli.token:token",
    "premake": "frostline.cli.upkeep:premake",
    "plan": "frostline.cli.tiering:plan",
    "archive": "frostline.cli.tiering:archive",
    "fold": "frostline.cli.tiering:fold",
    "clean": "frostline.cli.tiering:clean",
    "undo": "frostline.cli.tiering:undo",
    "thaw": "frostline.cli.tiering:thaw",
    "verify": "frostline.cli.checks:verify",
    "retain": "frostline.cli.upkeep:retain",
    "truncate": "frostline.cli.tiering:truncate",
    "compact": "frostline.cli.upkeep:compact",
    "expire": "frostline.cli.upkeep:expire",
    "sweep": "frostline.cli.upkeep:sweep",
    "repair": "frostline.cli.checks:repair",
    "pin": "frostline.cli.upkeep:pin",
    "lake": "frostline.cli.lake:lake",
    "snapshot": "frostline.cli.snapshot:snapshot",
    "status": "frostline.cli.status:status",
    "jobs": "frostline.cli.status:jobs",
    "doctor": "frostline.cli.checks:doctor",
    "demo": "frostline.cli.runtime:demo",
}
"""Where each command is. Loaded when it is used: what one command needs must not slow the others down."""


class Program(click.Group):
    """The group of all commands; imports a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name with the shared options added, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return with_shared_options(getattr(import_module(module), name))


def with_shared_options(command: click.Command) -> click.Command:
    """Add the shared options to a command and to all commands below it, once."""
    if not any(parameter.name == "home" for parameter in command.params):
        command.params.extend(shared_options(environment=not isinstance(command, click.Group)))
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_shared_options(below)
    return command


@click.group(
    cls=Program, params=shared_options(environment=False), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="frostline", message="%(prog)s %(version)s")
def program() -> None:
    """One PostgreSQL table over two tiers: recent rows in the heap, old rows in Apache Iceberg."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    invocation = Invocation()
    try:
        _refuse_other_bytes(arguments)
        result: Any = program.main(list(arguments), prog_name="frostline", standalone_mode=False, obj=invocation)
    except click.exceptions.NoArgsIsHelpError as error:
        return _help(error, wanted_output(arguments, invocation))
    except (click.UsageError, UsageError) as error:
        # The options may not have been read yet, so nobody knows how to print.
        return report(error, wanted_output(arguments, invocation), debug=invocation.debug)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (the last place that can turn it into a message)
        return report(error, invocation.output, debug=invocation.debug)
    return result if isinstance(result, int) else 0


def _help(error: click.UsageError, output: Output) -> int:
    """Show people what there is; a program has made a mistake."""
    if isinstance(output, TextOutput):
        output.say(error.format_message())
        return UsageError.exit_code
    return report(UsageError("no command is given", hint="see: frostline --help"), output, debug=False)


def _refuse_other_bytes(arguments: Sequence[str]) -> None:
    for word in arguments:
        if not is_text(word):
            raise UsageError(f"{word!r} is not UTF-8", hint="write names and values in UTF-8, also in the shell")


def main() -> NoReturn:
    """Run the program for this process's command line."""
    filemode.begin()
    _standard_streams()
    end_as_interrupted()
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on there is nothing to tidy up
    sys.exit(code)


def _standard_streams() -> None:
    """Make sure that the three streams are open whatever the parent has made of them, and can write every character.

    A file that is opened while one of them is closed gets its number, and what is meant for the terminal goes into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
