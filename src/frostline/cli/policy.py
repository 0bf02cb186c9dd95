"""A table's policy on the command line: one option for each part of it, and how to print it."""

import re
from collections.abc import Callable
from typing import Any

import click

from frostline.model.heap_grid import spelled
from frostline.model.policy import MIN_FILE_SIZE, ExpireBy, Policy

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"([1-9]\d{0,14}) *([a-z]*)", re.IGNORECASE)
_CLEARED = "none"


class Size(click.ParamType[int]):
    """A number of bytes, with or without a unit: 256000000, 256MB, 256MiB."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a megabyte is a million bytes, a mebibyte 2 to the 20th."""
        match = _SIZE.fullmatch(str(value).strip())
        if not match or match[2].lower() not in _UNITS:
            self.fail(f"{value!r} is not a size such as 256MB", param, ctx)
        size = int(match[1]) * _UNITS[match[2].lower()]
        if size < MIN_FILE_SIZE:
            self.fail(f"{value!r} is less than 1MB", param, ctx)
        return size


SIZE = Size()
_MARKS = click.IntRange(1, 10**12)

OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--hot", "hot_period", {"help": "How long rows stay hot: an interval; for integer tier keys a number."}),
    ("--grace", "grace_period", {"help": "How long archived rows also stay in the heap.  [default: 1 day]"}),
    ("--retention", "retention_period", {"help": "Rows older than this are removed for good; none keeps them."}),
    ("--premake", "premake", {"type": click.IntRange(0, 1000), "help": "Partitions made ahead.  [default: 4]"}),
    (
        "--every",
        "partition_interval",
        {"help": "Width of new partitions: month, '3 days', 1000; none: as the last.  [default: none]"},
    ),
    (
        "--expire-by",
        "expire_by",
        {"type": click.Choice([way.value for way in ExpireBy]), "help": "Of a table without a lake.  [default: drop]"},
    ),
    (
        "--fold-rows",
        "fold_rows",
        {"type": _MARKS, "metavar": "N", "help": "Fold when this many cold rows have changed."},
    ),
    ("--fold-age", "fold_age", {"help": "Changed cold rows this old are to be folded.  [default: 1 day]"}),
    (
        "--snapshot-retention",
        "snapshot_retention",
        {"help": "How long replaced lake snapshots can be read.  [default: 7 days]"},
    ),
    (
        "--target-file-size",
        "target_file_size",
        {"type": SIZE, "help": "Compaction makes lake files of about this size.  [default: 256MB]"},
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a policy."""
    for flag, name, settings in reversed(OPTIONS):
        command = click.option(flag, name, **settings)(command)
    return command


def given(values: dict[str, Any]) -> dict[str, Any]:
    """What was said on the command line; `none` clears a part that need not be there."""
    said = {name: value for name, value in values.items() if value is not None}
    cleared = {name: None for name in ("retention_period", "partition_interval") if said.get(name) == _CLEARED}
    width = {"partition_interval": spelled(said["partition_interval"])} if "partition_interval" in said else {}
    expire = {"expire_by": ExpireBy(said["expire_by"])} if "expire_by" in said else {}
    return said | width | cleared | expire


def described(policy: Policy) -> dict[str, Any]:
    """The policy for printing, by the names of its options."""
    return {
        "hot": policy.hot_period,
        "grace": policy.grace_period,
        "retention": policy.retention_period,
        "premake": policy.premake,
        "every": policy.partition_interval,
        "expire_by": policy.expire_by.value,
        "fold_rows": policy.fold_rows,
        "fold_age": policy.fold_age,
        "snapshot_retention": policy.snapshot_retention,
        "target_file_size_bytes": policy.target_file_size,
    }
