"""Periods of a policy as Postgres reads them: intervals of time, or numbers where the tier key is one."""

import psycopg

from frostline import sqlfiles
from frostline.catalog.connect import Connection, only_value
from frostline.errors import UsageError
from frostline.model import heap_grid
from frostline.model.heap_grid import Step
from frostline.model.tiers import TierKind

_statement = sqlfiles.statements(__name__, "queries/period")


def check(connection: Connection, kind: TierKind, option: str, text: str) -> None:
    """Refuse a period that is not a positive interval, or for integer tier keys a positive number."""
    if kind.is_time:
        check_interval(connection, option, text, positive=True)
    elif not (text.isascii() and text.isdecimal() and 0 < int(text) <= TierKind.BIGINT.highest):
        hint = f"a tier key of type {kind.value} counts in its own units"
        raise UsageError(f"--{option} {text!r} is not a positive number", hint=hint)


def step(connection: Connection, kind: TierKind, interval: str) -> Step | None:
    """What `--every` says; None when it is no width of this kind, UsageError when it is no interval at all."""
    return heap_grid.parse(kind, printed_width(connection, interval) if kind.is_time else interval)


def printed_width(connection: Connection, interval: str) -> str:
    """An interval that `--every` says, as the catalog would give it back."""
    try:
        return only_value(connection.execute(_statement("printed"), {"text": heap_grid.spelled(interval)}))
    except psycopg.DataError:
        hint = "for example month, day, '3 months' or '12 hours'"
        raise UsageError(f"--every {interval!r} is not an interval", hint=hint) from None


def is_longer(connection: Connection, kind: TierKind, period: str, other: str) -> bool:
    """Whether one period is longer than another; both are valid."""
    if not kind.is_time:
        return int(period) > int(other)
    return only_value(connection.execute(_statement("longer"), {"one": period, "other": other}))


def check_interval(connection: Connection, option: str, text: str, *, positive: bool = False) -> None:
    """Refuse what Postgres does not read as an interval, or one that runs backwards."""
    try:
        row = connection.execute(_statement("valid_interval"), {"text": text}).fetchone()
    except psycopg.errors.DatetimeFieldOverflow:
        hint = "for example '1 month' or '90 days'"
        raise UsageError(f"--{option} {text!r} goes back beyond the calendar", hint=hint) from None
    except psycopg.DataError:
        raise UsageError(f"--{option} {text!r} is not an interval", hint="for example '1 month' or '90 days'") from None
    if row is None or not row[0 if positive else 1]:
        raise UsageError(f"--{option} {text!r} is not positive", hint="for example '1 month' or '90 days'")


def seconds(connection: Connection, interval: str) -> float:
    """How long a valid interval is; a month counts as 30 days."""
    return only_value(connection.execute(_statement("seconds"), {"text": interval}))
