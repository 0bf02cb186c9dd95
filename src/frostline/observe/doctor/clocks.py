"""Checks of clocks and time zones."""

import time
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg

from frostline.observe.doctor.finding import Verdict, ok, warning
from frostline.observe.doctor.patient import Patient, statement

_MOST_S = 2.0
_CONNECT_TIMEOUT_S = 5


def postgres_clock(patient: Patient) -> Verdict:
    """Whether Postgres' clock goes as ours does."""
    before = time.time()
    (there,) = patient.row("clock")
    return judge_skew("Postgres", there, before, time.time())


def judge_skew(whose: str, there: float, before: float, after: float) -> Verdict:
    """How far a clock is away that was read at some moment between two of ours."""
    away_s = there - min(max(there, before), after)
    if abs(away_s) > _MOST_S:
        side = "ahead of" if away_s > 0 else "behind"
        return warning(f"the clock of {whose} is {abs(away_s):.1f} s {side} this machine's", "timedatectl status")
    return ok("goes as this machine's does")


def time_zone(patient: Patient) -> Verdict:
    """Whether an application's session has a time zone that this machine reads as Postgres does."""
    _ = patient.postgres  # nothing to ask when it is down
    # Our own sessions are in UTC whatever the defaults are, so they cannot tell.
    with psycopg.connect(patient.settings.dsn, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S) as plain:
        name, offset_s = plain.execute(statement("time_zone")).fetchone() or ("UTC", 0)
    return judge_zone(name, offset_s)


def judge_zone(name: str, offset_s: int) -> Verdict:
    """Whether the zone's offset of this moment is the same here."""
    try:
        here = datetime.now(ZoneInfo(name)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return warning(f"this machine does not know Postgres' time zone {name!r}", "pip install tzdata")
    if here is not None and here.total_seconds() != offset_s:
        hours = f"{offset_s / 3600:+g} h in Postgres, {here.total_seconds() / 3600:+g} h here"
        return warning(f"{name} is {hours}: one of them has old rules", "pip install --upgrade tzdata")
    return ok(f"sessions are in {name}")
