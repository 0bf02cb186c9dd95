"""`frostline init`: Frostline in a Postgres of your own."""

import click

from frostline.cli.invocation import Invocation


@click.command()
@click.option("--dsn", help="The database, as a connection string.  [default: FROSTLINE_DSN]")
@click.option("--warehouse", help="Where the lake's files go: a directory or a URI.  [default: FROSTLINE_WAREHOUSE]")
@click.option("--new-warehouse", is_flag=True, help="Use another warehouse than before. Refused while rows are in it.")
@click.pass_obj
def init(invocation: Invocation, dsn: str | None, warehouse: str | None, new_warehouse: bool) -> None:  # noqa: FBT001
    """Install the catalog and the foreign server into an existing database. Running it again changes nothing.

    With --home, also write frostline.toml there, so that the other commands need no more than --home. The warehouse
    gets a marker, without which nothing is ever written to it or deleted from it.
    """
    from frostline.runtime.install import install_with_home, with_home_if_made  # noqa: PLC0415

    invocation.home, target = with_home_if_made(invocation.home), invocation.home
    settings = invocation.settings({key: value for key, value in (("dsn", dsn), ("warehouse", warehouse)) if value})
    invocation.output.record(install_with_home(settings, target, new_warehouse=new_warehouse))
