"""`frostline psql`: a terminal on the database."""

import click

from frostline.cli.invocation import Invocation


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def psql(invocation: Invocation, arguments: tuple[str, ...]) -> None:
    """Open psql on the database; ARGUMENTS are psql's own."""
    from frostline.runtime.programs import become_psql  # noqa: PLC0415

    become_psql(invocation.settings().dsn, arguments)
