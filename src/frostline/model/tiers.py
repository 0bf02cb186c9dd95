"""Tier keys: the six column types that can decide a row's tier, and one integer axis for each.

Everywhere in Python a tier value is an int on its kind's axis: microseconds since 1970 for the two
timestamp types, days since 1970 for date, the number itself for the integer types. Ints compare the way
Postgres compares the values, infinities included, and they have no time zone and no year 9999.
"""

import re
from enum import StrEnum

MICROS_PER_DAY = 86_400_000_000
_INFINITY_MICROS = 2**63 - 1
_INFINITY_DAYS = 2**31 - 1
_FIRST_DAY = -2_440_588
_TEXT = re.compile(
    r"(?P<y>\d{4,7})-(?P<m>\d\d)-(?P<d>\d\d)"
    r"(?:[ T](?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:\.(?P<f>\d{1,6}))?"
    r"(?P<z>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?)?"
    r"(?P<bc> BC)?"
)


class TierKind(StrEnum):
    """The type of a tier key. The value is the name that `format_type` gives it."""

    TIMESTAMPTZ = "timestamp with time zone"
    TIMESTAMP = "timestamp without time zone"
    DATE = "date"
    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"

    @property
    def typname(self) -> str:
        """The same type as `pg_type.typname` has it, which is also a name of DuckDB's for it."""
        return _TYPNAMES[self]

    @property
    def is_time(self) -> bool:
        """True for the kinds whose hot period is an interval, false for those where it is a number."""
        return self in (TierKind.TIMESTAMPTZ, TierKind.TIMESTAMP, TierKind.DATE)

    @property
    def lowest(self) -> int:
        """The axis value that no value of the type lies below: the frost line of a table with nothing archived."""
        return -_highest(self) - (0 if self.is_time else 1)

    @property
    def earliest(self) -> int:
        """The smallest finite value that Postgres can write: the first day of its calendar, 4714-11-24 BC."""
        if not self.is_time:
            return self.lowest
        return _FIRST_DAY if self is TierKind.DATE else _FIRST_DAY * MICROS_PER_DAY

    @property
    def highest(self) -> int:
        """The axis value that no value of the type lies above."""
        return _highest(self)


_TYPNAMES = {
    TierKind.TIMESTAMPTZ: "timestamptz",
    TierKind.TIMESTAMP: "timestamp",
    TierKind.DATE: "date",
    TierKind.SMALLINT: "int2",
    TierKind.INTEGER: "int4",
    TierKind.BIGINT: "int8",
}
BY_TYPNAME = {typname: kind for kind, typname in _TYPNAMES.items()}


def _highest(kind: TierKind) -> int:
    match kind:
        case TierKind.TIMESTAMPTZ | TierKind.TIMESTAMP | TierKind.BIGINT:
            return _INFINITY_MICROS
        case TierKind.DATE | TierKind.INTEGER:
            return _INFINITY_DAYS
        case TierKind.SMALLINT:
            return 2**15 - 1


def to_text(kind: TierKind, value: int) -> str:
    """The value as a literal that Postgres reads back as the same value under any session setting."""
    if not kind.is_time:
        return str(value)
    if abs(value) == _highest(kind):
        return "infinity" if value > 0 else "-infinity"
    if kind is TierKind.DATE:
        return _date_text(value, "")
    days, micros = divmod(value, MICROS_PER_DAY)
    seconds, fraction = divmod(micros, 1_000_000)
    clock = f" {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if fraction:
        clock += f".{fraction:06}".rstrip("0")
    return _date_text(days, clock + ("+00" if kind is TierKind.TIMESTAMPTZ else ""))


def _date_text(days: int, clock: str) -> str:
    year, month, day = civil(days)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}{clock}{era}"


def from_text(kind: TierKind, text: str) -> int:
    """Read what Postgres prints for the type with DateStyle ISO. Raises ValueError for anything else."""
    if not kind.is_time:
        return int(text)
    if text in ("infinity", "-infinity"):
        return _highest(kind) if text == "infinity" else -_highest(kind)
    match = _TEXT.fullmatch(text)
    if not match:
        raise ValueError(f"not a {kind.value}: {text!r}")
    year = int(match["y"]) if not match["bc"] else 1 - int(match["y"])
    days = days_of(year, int(match["m"]), int(match["d"]))
    if kind is TierKind.DATE:
        return days
    seconds = int(match["H"] or 0) * 3600 + int(match["M"] or 0) * 60 + int(match["S"] or 0)
    if kind is TierKind.TIMESTAMPTZ:
        seconds -= _offset_seconds(match["z"])
    return days * MICROS_PER_DAY + seconds * 1_000_000 + int((match["f"] or "").ljust(6, "0"))


def _offset_seconds(zone: str | None) -> int:
    if zone is None:
        raise ValueError("a timestamp with time zone needs its offset")
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
    return seconds if zone[0] == "+" else -seconds


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil(days: int) -> tuple[int, int, int]:
    """Year, month, day of a number of days since 1970-01-01; the inverse of `days_of`."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
