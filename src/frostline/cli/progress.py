"""A progress bar for long work: on stderr, and only when that is a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

Advance = Callable[[int, int], None]
"""Called with the rows and the bytes that were done since the last call."""


@contextmanager
def progress_bar(label: str, total_bytes: int) -> Generator[Advance]:
    """Show rows, bytes and the time left while the block runs; yields the function that advances the bar."""
    if not sys.stderr.isatty():
        yield lambda _rows, _size_bytes: None
        return
    rows = TextColumn("{task.fields[rows]:,} rows")
    columns = (TextColumn(label), BarColumn(), rows, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total_bytes, rows=0)
        done_rows = 0

        def advance(more_rows: int, size_bytes: int) -> None:
            nonlocal done_rows
            done_rows += more_rows
            bar.update(task, advance=size_bytes, rows=done_rows)

        yield advance
