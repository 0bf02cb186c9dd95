"""How results reach the reader: tables and lines for people, JSON for programs. Data goes to stdout, talk to stderr."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from io import StringIO
from typing import Any, TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frostline import logs
from frostline.errors import UnavailableError

Record = Mapping[str, Any]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class ClosedOutput(Exception):
    """Whoever read stdout has closed it, as `head` does."""


@dataclass(frozen=True)
class Complaint:
    """An error as it is told."""

    code: str
    """The SQLSTATE that fits."""
    kind: str
    """The class of `errors.py`, or Interrupted, or InternalError."""
    message: str
    hint: str | None
    exit_code: int


class Output(ABC):
    """Prints what a command found."""

    @abstractmethod
    def records(self, records: Sequence[Record]) -> None:
        """Print records that have the same keys, one below the other."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Print one record."""

    @abstractmethod
    def screen(self, complete: Record, briefs: Sequence[Sequence[Record]], lines: Sequence[str]) -> None:
        """Print one screen: to programs what is complete, to people the brief tables and then the lines."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Print one line that is itself the result."""

    @abstractmethod
    def each(self, records: Iterable[Record], written: Callable[[Record], str]) -> list[Record]:
        """Print records that come one by one, for people as soon as they come and as `written`; gives them back."""

    @abstractmethod
    def complain(self, complaint: Complaint) -> None:
        """Print an error, on stderr."""

    def say(self, text: str) -> None:
        """Tell the person at the terminal something that is not a result."""
        _tell(text)


class TextOutput(Output):
    """For people. A key that ends in `_bytes` is shown as a size."""

    def records(self, records: Sequence[Record]) -> None:
        """Print a table, or a word when there is nothing."""
        if not records:
            self.say("nothing to show")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for key in records[0]:
            numeric = all(_is_number(record[key]) for record in records)
            table.add_column(title(key), justify="right" if numeric else "left", overflow="fold")
        for record in records:
            table.add_row(*(Text(shown(key, value)) for key, value in record.items()))
        _print_table(table)

    def record(self, record: Record) -> None:
        """Print one `key  value` pair a line."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for key, value in record.items():
            table.add_row(Text(title(key), style="bold"), Text(shown(key, value)))
        _print_table(table)

    def each(self, records: Iterable[Record], written: Callable[[Record], str]) -> list[Record]:
        """Print each record as it comes."""
        printed: list[Record] = []
        for record in records:
            self.line(written(record))
            printed.append(record)
        return printed

    def screen(self, complete: Record, briefs: Sequence[Sequence[Record]], lines: Sequence[str]) -> None:  # noqa: ARG002
        """Print the tables that are not empty, or a word, and lines below."""
        for brief in [brief for brief in briefs if brief] or [()]:
            self.records(brief)
        for line in lines:
            self.line(line)

    def line(self, text: str) -> None:
        """Print the line as it is."""
        _print(text)

    def complain(self, complaint: Complaint) -> None:
        """Print a line that says what, and lines that say what to do."""
        hints = [f"hint: {line}" for line in (complaint.hint or "").splitlines()]
        for line in (f"error: {complaint.message}", *hints):
            _tell(_one_line(line))


class JsonOutput(Output):
    """For programs: every result is one JSON document on one line."""

    def records(self, records: Sequence[Record]) -> None:
        """Print an array of objects."""
        self._print([dict(record) for record in records])

    def record(self, record: Record) -> None:
        """Print an object."""
        self._print(dict(record))

    def each(self, records: Iterable[Record], written: Callable[[Record], str]) -> list[Record]:  # noqa: ARG002
        """Print an array of objects, when all are there."""
        collected = list(records)
        self.records(collected)
        return collected

    def screen(self, complete: Record, briefs: Sequence[Sequence[Record]], lines: Sequence[str]) -> None:  # noqa: ARG002
        """Print an object."""
        self.record(complete)

    def line(self, text: str) -> None:
        """Print a string."""
        self._print(text)

    def complain(self, complaint: Complaint) -> None:
        """Print an object."""
        values = asdict(complaint)
        values = {("class" if key == "kind" else key): values[key] for key in values}
        values |= {"message": _one_line(complaint.message)}
        values |= {"hint": logs.without_passwords(complaint.hint) if complaint.hint else None}
        _tell(_json({"error": values}, sys.stderr))

    def _print(self, value: object) -> None:
        _print(_json(value, sys.stdout))


def title(key: str) -> str:
    """A key as a heading: `hot_rows` is `hot rows`, `size_bytes` is `size`."""
    return key.removesuffix("_bytes").replace("_", " ")


def shown(key: str, value: object) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "\n".join(map(str, cast(list[object], value))) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith("_bytes"):
        return size(value)
    if isinstance(value, int) and not key.endswith(("id", "port")):
        return f"{value:,}"
    return str(value)


def size(size_bytes: int) -> str:
    """A number of bytes with three digits and a unit, in powers of 1000."""
    amount = float(size_bytes)
    for unit in _UNITS[:-1]:
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """As a person says it: `3 d`, `5 h`, `12 min`, `40 s`."""
    span = timedelta(seconds=abs(seconds))
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min")):
        if span >= unit:
            return f"{span // unit} {name}"
    return f"{int(span.total_seconds())} s"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _print_table(table: Table) -> None:
    # A table that goes into a file or a pipe is not cut to a terminal's width. Rich would end the program if the pipe
    # is closed, so it writes into a text.
    is_terminal = sys.stdout.isatty()
    width = Console(file=sys.stdout).width if is_terminal else 1000
    text = StringIO()
    Console(file=text, width=width, highlight=False, force_terminal=is_terminal).print(table)
    _print(text.getvalue().removesuffix("\n"))


def _print(text: str) -> None:
    """Print a result. ClosedOutput when nobody reads it any more, UnavailableError when it cannot be written."""
    try:
        print(text, flush=True)  # noqa: T201  (this module is where printing happens)
    except BrokenPipeError:
        raise ClosedOutput from None
    except OSError as error:
        hint = "make room where the output goes; what the command was to do is done"
        raise UnavailableError(f"cannot write the output: {error.strerror}", hint=hint) from None


def _tell(text: str) -> None:
    """Print something that is not a result. If nobody can hear it, there is nobody to tell."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _json(value: object, stream: TextIO) -> str:
    """As JSON, in characters that the stream can write."""
    plain = (stream.encoding or "").lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain, default=str)


def _one_line(text: str) -> str:
    return " ".join(logs.without_passwords(text).split())
