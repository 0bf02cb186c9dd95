"""Policies on the command line: an option for each part, how to print one, export and import of those of all tables."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.errors import UsageError
from frostline.model.heap_grid import spelled
from frostline.model.policy import MIN_FILE_SIZE, ExpireBy, Policy
from frostline.model.policyfile import BadDocument, Entry, document, entries

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


@click.command(name="export")
@click.pass_obj
def export(invocation: Invocation) -> None:
    """Print the policies of all managed tables as YAML."""
    with invocation.catalog() as connection:
        policies = document(tables.list_all(connection))
    invocation.output.line(yaml.safe_dump(policies, sort_keys=False, allow_unicode=True).rstrip("\n"))


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.pass_obj
def import_(invocation: Invocation, file: Path, dry_run: bool) -> None:  # noqa: FBT001
    """Bring tables to the policies of a YAML file: all of them or, if one cannot be, none.

    A table that is not managed yet is added. Tables that the file does not name stay as they are.
    """
    from frostline.relation import policyfile  # noqa: PLC0415

    wanted = _read(file)
    with invocation.catalog() as connection:
        done = policyfile.apply(connection, wanted, dry_run=dry_run)
    invocation.output.records([{"table": str(imported.name), "result": imported.what} for imported in done])


def _read(file: Path) -> list[Entry]:
    try:
        with click.open_file(str(file), encoding="utf-8") as opened:
            return entries(yaml.safe_load(opened))
    except (BadDocument, yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())
        hint = "frostline table export shows the form"
        raise UsageError(f"cannot import {str(file)!r}: {reason}", hint=hint) from None
