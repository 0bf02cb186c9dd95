"""`frostline doctor`: is everything there, and does it work."""

from dataclasses import asdict

import click

from frostline.cli.invocation import Invocation
from frostline.cli.output import Record
from frostline.errors import FrostlineError


@click.command()
@click.option("--spark", is_flag=True, help="Also start Spark and run a task on it, which takes a while.")
@click.pass_obj
def doctor(invocation: Invocation, spark: bool) -> int:  # noqa: FBT001
    """Check the whole set-up: versions, privileges, the lake server, clocks, the warehouse, Java, Spark.

    Prints one line a check, and under what is wrong a command that helps. Changes nothing. Exit code 1 when there is
    a fault; a warning is none.
    """
    from frostline.observe.doctor import examination  # noqa: PLC0415
    from frostline.observe.doctor.finding import State  # noqa: PLC0415
    from frostline.observe.doctor.patient import Patient  # noqa: PLC0415

    checks = (*examination.CHECKS, examination.SPARK_RUNS) if spark else examination.CHECKS
    findings = examination.examine(Patient(invocation.settings, invocation.home), checks)
    shown = invocation.output.each((asdict(finding) for finding in findings), _written)
    return FrostlineError.exit_code if any(finding["state"] == State.FAULT for finding in shown) else 0


def _written(finding: Record) -> str:
    """One line, and below it what to do."""
    line = f"{finding['state']:<8} {finding['name']:<27} {finding['detail']}"
    return f"{line}\n{'':<8} hint: {finding['hint']}" if finding["hint"] else line
