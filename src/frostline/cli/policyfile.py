"""`frostline table export` and `frostline table import`: the policies of all tables as YAML."""

from pathlib import Path

import click
import yaml

from frostline.catalog import tables
from frostline.cli.invocation import Invocation
from frostline.errors import UsageError
from frostline.model.policyfile import BadDocument, Entry, document, entries


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
