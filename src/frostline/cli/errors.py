"""How an error ends the program: a line that says what, lines that say what to do, the exit code of its class."""

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click

from frostline.catalog import faults
from frostline.cli.invocation import Invocation
from frostline.cli.output import ClosedOutput, Complaint, Output
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.model.names import Named

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells say it."""
CLOSED = 141
"""The same for SIGPIPE: the reader of the output wants no more of it."""
_CANCELLED = "57014"
_SYSTEM_HINT = "check that it is there, may be used, and that there is room; then run the command again"


class Stopped(KeyboardInterrupt):
    """A signal other than SIGINT that ends the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def report(error: BaseException, output: Output, *, debug: bool) -> int:
    """Print the error on stderr and return the exit code."""
    if isinstance(error, ClosedOutput):
        return _end_of_output()
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    complaint = explain(error)
    output.complain(complaint)
    return complaint.exit_code


class TableResult(Protocol):
    """What a job did on one table, or why it failed."""

    @property
    def table(self) -> Named:
        """The table."""
        ...

    @property
    def error(self) -> FrostlineError | None:
        """None if it did not fail."""
        ...


_Result = TypeVar("_Result", bound=TableResult)


def report_results(
    invocation: Invocation, results: Sequence[_Result], described: Callable[[_Result], Mapping[str, Any]]
) -> int:
    """Print one record a table, then the errors of those that failed; returns the gravest exit code."""
    records = [
        {
            "table": str(result.table.name),
            **described(result),
            "error": str(result.error) if result.error else None,
        }
        for result in results
    ]
    invocation.output.records(records)
    failed = [result.error for result in results if result.error]
    return report_all(failed, invocation.output, debug=invocation.debug)


def report_all(errors: Sequence[BaseException], output: Output, *, debug: bool) -> int:
    """Print the errors of several tables, none of which stopped the others, and return the gravest exit code."""
    return max([report(error, output, debug=debug) for error in errors], default=0)


def explain(error: BaseException) -> Complaint:
    """What to say about any error."""
    known = _known(error)
    if known is not None:
        return Complaint(known.sqlstate, type(known).__name__, known.message, known.hint, known.exit_code)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return _interrupted(error)
    text = f"unexpected {type(error).__name__}: {error}"
    hint = "this is a bug; run it again with --debug and report what it prints"
    return Complaint("XX000", "InternalError", text, hint, 1)


def _known(error: BaseException) -> FrostlineError | None:
    """The error as one that was foreseen."""
    if isinstance(error, FrostlineError):
        return error
    if isinstance(error, click.ClickException):
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "frostline"
        return UsageError(_lower(error.format_message()), hint=f"see: {command} --help")
    return faults.understood(error) or _of_the_system(error) or _of_an_engine(error)


def _of_the_system(error: BaseException) -> FrostlineError | None:
    """What the machine has no more of, or does not allow."""
    if isinstance(error, OSError):
        place = f" {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
        return UnavailableError(f"the system refuses{place or ' it'}: {error.strerror or error}", hint=_SYSTEM_HINT)
    if isinstance(error, MemoryError):
        return UnavailableError("there is not enough memory", hint="end other programs, then run the command again")
    return None


def _of_an_engine(error: BaseException) -> FrostlineError | None:
    """Java, or DuckDB's disk and memory. By name: most commands need neither."""
    kinds = {f"{kind.__module__.partition('.')[0].strip('_')}.{kind.__name__}" for kind in type(error).__mro__}
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if kinds & {"py4j.Py4JError", "pyspark.PySparkException"}:
        return UnavailableError(f"Spark gave up: {line}", hint="see its log above, then run the command again")
    if kinds & {"duckdb.IOException", "duckdb.OutOfMemoryException"}:
        hint = "make room on the disk, or raise export_memory; then run the command again"
        return UnavailableError(f"DuckDB gave up: {line}", hint=hint)
    return None


def _interrupted(error: BaseException) -> Complaint:
    cause = error if isinstance(error, Stopped) else error.__cause__
    code = 128 + cause.number if isinstance(cause, Stopped) else INTERRUPTED
    return Complaint(_CANCELLED, "Interrupted", "interrupted", None, code)


def _end_of_output() -> int:
    """Say nothing, also when Python writes out what is left at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:].removesuffix(".")
