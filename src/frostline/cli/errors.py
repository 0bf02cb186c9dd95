"""How an error ends the program: a line that says what, lines that say what to do, the exit code of its class."""

import sys
import traceback
from collections.abc import Sequence

import click
import psycopg

from frostline import logs
from frostline.catalog.connect import first_line
from frostline.errors import FrostlineError, UnavailableError

INTERRUPTED = 130
_UNAVAILABLE = UnavailableError.exit_code


def report(error: BaseException, *, debug: bool) -> int:
    """Print the error on stderr and return the exit code."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    message, hint, exit_code = explain(error)
    _print("error", message)
    for line in (hint or "").splitlines():
        _print("hint", line)
    return exit_code


def report_all(errors: Sequence[BaseException], *, debug: bool) -> int:
    """Print the errors of several tables, none of which stopped the others, and return the gravest exit code."""
    return max([report(error, debug=debug) for error in errors], default=0)


def explain(error: BaseException) -> tuple[str, str | None, int]:
    """Message, hint and exit code for any error."""
    if isinstance(error, FrostlineError):
        return str(error), error.hint, error.exit_code
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "frostline"
        return _lower(error.format_message()), f"see: {command} --help", 2
    if isinstance(error, click.ClickException):
        return _lower(error.format_message()), None, error.exit_code
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted", None, INTERRUPTED
    if isinstance(error, psycopg.OperationalError):
        return f"Postgres gave up: {first_line(error)}", "frostline status; then run the command again", _UNAVAILABLE
    text = f"unexpected {type(error).__name__}: {error}"
    return text, "this is a bug; run it again with --debug and report what it prints", 1


def _print(label: str, text: str) -> None:
    print(f"{label}: {' '.join(logs.without_passwords(text).split())}", file=sys.stderr)  # noqa: T201


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:].removesuffix(".")
