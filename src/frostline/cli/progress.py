"""A progress bar for long work: on stderr, and only when that is a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from frostline.model.names import Named

if TYPE_CHECKING:
    from frostline.pipeline import tasks


@contextmanager
def copying(snapshot: str) -> Generator["Callable[[tasks.Progress], None]"]:
    """Show rows, bytes and the time left of a snapshot of many tables while the block runs."""
    with _bar() as report:
        yield lambda progress: report(snapshot, progress)


@contextmanager
def exporting() -> Generator["Callable[[Named, tasks.Progress], None]"]:
    """Show rows, bytes and the time left of each table's export while the block runs."""
    with _bar() as report:
        yield lambda table, progress: report(str(table.name), progress)


@contextmanager
def _bar() -> Generator["Callable[[str, tasks.Progress], None]"]:
    """A line for each name that is reported."""
    if not sys.stderr.isatty():
        yield lambda _name, _progress: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        DownloadColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown: dict[str, TaskID] = {}

        def report(name: str, progress: "tasks.Progress") -> None:
            if name not in shown:
                shown[name] = bar.add_task(name, rows=0)
            # The lake's bytes are known only when they are written, so the total follows the tasks.
            share = progress.tasks_total / progress.tasks if progress.tasks else None
            total = progress.size_bytes * share if share else None
            bar.update(shown[name], total=total, completed=progress.size_bytes, rows=progress.rows)

        yield report
