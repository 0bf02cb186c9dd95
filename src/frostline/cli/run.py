"""`frostline run`: the worker, in the foreground."""

import click

from frostline.cli.invocation import Invocation, master_option
from frostline.cli.signals import stop_with_parent, stopped_in_time


@click.command()
@master_option
@click.option("--with-parent", is_flag=True, hidden=True)
@click.pass_obj
def run(invocation: Invocation, master: str | None, with_parent: bool) -> None:  # noqa: FBT001
    """Do what is due on every table, until SIGTERM: make partitions, archive, fold, clean, and keep the lake tidy.

    Several workers may run; one of them acts. SIGTERM lets the current step finish for 20 s, a second one does not.
    """
    from frostline.observe.metrics import worker as metrics  # noqa: PLC0415
    from frostline.runtime import worker  # noqa: PLC0415

    settings = invocation.settings({"spark_master": master} if master else {})
    with stopped_in_time() as stop, metrics.served(settings):
        if with_parent:
            stop_with_parent()
        worker.run(settings, stop, announce=invocation.output.line, without_lake=with_parent)
