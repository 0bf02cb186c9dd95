"""How results reach the reader: tables and lines for people, JSON for programs. Data goes to stdout, talk to stderr."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

Record = Mapping[str, Any]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class Output(ABC):
    """Prints what a command found."""

    @abstractmethod
    def records(self, records: Sequence[Record]) -> None:
        """Print records that have the same keys, one below the other."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Print one record."""

    @abstractmethod
    def screen(self, everything: Record, brief: Sequence[Record], lines: Sequence[str]) -> None:
        """Print one screen: to programs everything, to people what is brief and then the lines."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Print one line that is itself the result."""

    @abstractmethod
    def each(self, records: Iterable[Record], written: Callable[[Record], str]) -> list[Record]:
        """Print records that come one by one, for people as soon as they come and as `written`; gives them back."""

    def say(self, text: str) -> None:
        """Tell the person at the terminal something that is not a result."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201  (this module is where printing happens)


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
        _stdout().print(table)

    def record(self, record: Record) -> None:
        """Print one `key  value` pair a line."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for key, value in record.items():
            table.add_row(Text(title(key), style="bold"), Text(shown(key, value)))
        _stdout().print(table)

    def each(self, records: Iterable[Record], written: Callable[[Record], str]) -> list[Record]:
        """Print each record as it comes."""
        printed: list[Record] = []
        for record in records:
            self.line(written(record))
            printed.append(record)
        return printed

    def screen(self, everything: Record, brief: Sequence[Record], lines: Sequence[str]) -> None:  # noqa: ARG002
        """Print a table and lines below it."""
        self.records(brief)
        for line in lines:
            self.line(line)

    def line(self, text: str) -> None:
        """Print the line as it is."""
        print(text, flush=True)  # noqa: T201


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

    def screen(self, everything: Record, brief: Sequence[Record], lines: Sequence[str]) -> None:  # noqa: ARG002
        """Print an object."""
        self.record(everything)

    def line(self, text: str) -> None:
        """Print a string."""
        self._print(text)

    def _print(self, value: object) -> None:
        print(json.dumps(value, ensure_ascii=False, default=str), flush=True)  # noqa: T201


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


def _stdout() -> Console:
    # A table that goes into a file or a pipe is not cut to a terminal's width.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000, highlight=False)
