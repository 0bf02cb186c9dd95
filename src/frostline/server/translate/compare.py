"""A value against a constant, exactly as Postgres decides it.

The constant is turned into a literal of the column's own type, and the operator adjusted where the constant
lies between two values of that type (`price < 1.005` on numeric(10,2) is `price <= 1.00`). So DuckDB never
widens a column, which would go through floating point for decimals and would defeat row group statistics.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from frostline.lake import ducksql, ducktext
from frostline.model.tiers import BY_TYPNAME, MICROS_PER_DAY, TierKind, civil, days_of, from_text
from frostline.model.types import Collation
from frostline.server.translate import duck
from frostline.server.translate.operands import INTEGERS, Const, Untranslatable, Value, whole_number

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_HEX = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")
_TIME = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d).*)?", re.ASCII)
_BOOLEANS = {"t": "true", "true": "true", "f": "false", "false": "false"}
_NAN = ("nan",)
_INFINITIES = {"infinity": 1, "inf": 1, "+infinity": 1, "+inf": 1, "-infinity": -1, "-inf": -1}

_LARGEST = {"float": 3.4e38, "double": math.inf}


@dataclass(frozen=True)
class _At:
    """The constant is a value of the column's type."""

    literal: str


@dataclass(frozen=True)
class _Between:
    """It lies strictly between `floor` and the next value of the type."""

    floor: str


@dataclass(frozen=True)
class _Beyond:
    """It is greater (1) or smaller (-1) than every value of the type."""

    sign: int


_Place: TypeAlias = _At | _Between | _Beyond
"""Where a constant is among the values of a column's type."""


def compare(operator: str, value: Value, const: Const) -> str:
    """The condition `value operator const` in DuckDB; raises Untranslatable where the meaning could differ."""
    if operator not in OPERATORS:
        raise Untranslatable(f"operator {operator}")
    rule = _CONDITIONS.get(_families(value, const))
    if rule is None:
        place = _place(operator, value, const)
        return duck.NULL if place is None else _condition(operator, value, place)
    return duck.NULL if const.text is None else rule(operator, value, const)


def member(value: Value, items: Sequence[Const]) -> str | None:
    """`value = any of the items` as one IN, which DuckDB looks up instead of trying each.

    None for types where equality is not DuckDB's.
    """
    if value.type in ("float4", "float8", "bytea"):
        return None
    places = dict.fromkeys(_place("=", value, item) for item in items)
    # An item that no value can equal adds nothing; NULL makes "not found" unknown.
    literals = [place.literal for place in places if isinstance(place, _At)] + ["null"] * (None in places)
    return f"({value.sql} in ({duck.listed(literals)}))" if literals else never(value)


def _place(operator: str, value: Value, const: Const) -> _Place | None:
    """Where the constant is; None for NULL. Raises Untranslatable where only Postgres knows."""
    rule = _PLACES.get(_families(value, const))
    if rule is None:
        raise Untranslatable(f"{value.type} {operator} {const.type}")
    if const.text is None:
        return None
    check_order(operator, value)
    return rule(value, const if const.type else Const(value.type, const.text))


def _condition(operator: str, value: Value, place: _Place) -> str:
    match place:
        case _At(literal):
            return f"({value.sql} {operator} {literal})"
        case _Between(floor) if operator in ("<", "<="):
            return f"({value.sql} <= {floor})"
        case _Between(floor) if operator in (">", ">="):
            return f"({value.sql} > {floor})"
        case _Between():
            return always(value) if operator == "<>" else never(value)
        case _Beyond(sign):
            holds = ("<>", "<", "<=") if sign > 0 else ("<>", ">", ">=")
            return always(value) if operator in holds else never(value)


def always(value: Value) -> str:
    """True for every value but NULL, and NULL for NULL."""
    return f"({value.sql} is not null or null)"


def never(value: Value) -> str:
    """False for every value but NULL, and NULL for NULL."""
    return f"({value.sql} is null and null)"


def _families(value: Value, const: Const) -> tuple[str, str]:
    return _family(value.type), _family(const.type or value.type)


def _family(pg_type: str) -> str:
    if pg_type in INTEGERS or pg_type == "numeric":
        return "exact"
    return "text" if pg_type == "varchar" else pg_type


def _text(const: Const) -> str:
    assert const.text is not None
    return const.text


def _exact(value: Value, const: Const) -> _Place:
    text = _text(const).lower()
    integer = whole_number(text) if const.type in INTEGERS and value.type in INTEGERS else None
    if integer is not None and abs(integer) < min(INTEGERS[const.type or ""], INTEGERS[value.type]):
        return _At(_exact_literal(value, integer))  # long lists are mostly of such
    if const.type == "numeric" and text in _NAN:
        return _Beyond(1)
    if const.type == "numeric" and text in _INFINITIES:
        return _Beyond(_INFINITIES[text])
    scaled = fraction(const) * 10**value.scale
    floor = scaled.numerator // scaled.denominator
    limit = INTEGERS.get(value.type) or 10 ** (value.precision or 38)
    if not -limit <= floor < limit:
        return _Beyond(1 if floor > 0 else -1)
    literal = _exact_literal(value, floor)
    return _At(literal) if scaled == floor else _Between(literal)


def fraction(const: Const) -> Fraction:
    """The exact number that the constant is; raises Untranslatable when it is none of its type."""
    text = _text(const)
    if not _NUMBER.fullmatch(text):
        raise Untranslatable(f"not a plain number: {const.type}")
    number = Fraction(text)
    limit = INTEGERS.get(const.type or "")
    if limit and (number.denominator != 1 or not -limit <= number < limit):
        raise Untranslatable(f"not a {const.type}")
    return number


def _exact_literal(value: Value, scaled: int) -> str:
    if value.type in INTEGERS:
        return str(scaled) if scaled >= 0 else f"({scaled})"
    if abs(scaled) >= 10**value.precision:
        # -10^p, the floor of something below the smallest value: one digit more than the column has.
        raise Untranslatable("at the edge of the column's precision")
    digits = str(abs(scaled)).rjust(value.scale + 1, "0")
    integral, fractional = digits[: len(digits) - value.scale], digits[len(digits) - value.scale :]
    text = f"{'-' if scaled < 0 else ''}{integral}.{fractional}"
    return duck.cast(ducksql.literal(text), f"decimal({value.precision}, {value.scale})")


def _float(duck_type: str, *, widen: bool) -> Callable[[str, Value, Const], str]:
    def rule(operator: str, value: Value, const: Const) -> str:
        text = _text(const).lower()
        sql = duck.cast(value.sql, duck_type) if widen else value.sql
        if text in _NAN:
            return _against_nan(operator, sql, value)
        if text not in _INFINITIES and not (_NUMBER.fullmatch(text) and abs(float(text)) < _LARGEST[duck_type]):
            raise Untranslatable(f"not a {duck_type}")
        return _guarded(operator, sql, text, duck_type)

    return rule


def _guarded(operator: str, sql: str, number: str, duck_type: str) -> str:
    literal = duck.cast(ducksql.literal(number), duck_type)
    # Some writers leave NaN out of a row group's minimum and maximum, so a filter that DuckDB checks against
    # those would lose NaN rows, which are greater than everything. Naming NaN apart keeps them.
    if operator in ("=", "<>") and float(number) == 0:
        # Zero equals negative zero, but the Bloom filters that DuckDB writes and trusts take them for two numbers.
        return f"(abs({sql}) {operator} {literal})"
    if operator in ("=", "<", "<="):
        return f"({sql} {operator} {literal} and not isnan({sql}))"
    return f"({sql} {operator} {literal} or isnan({sql}))"


def _against_nan(operator: str, sql: str, value: Value) -> str:
    match operator:
        case "=" | ">=":
            return f"isnan({sql})"
        case "<>" | "<":
            return f"(not isnan({sql}))"
        case "<=":
            return always(value)
        case _:
            return never(value)


def axis(pg_type: str, text: str) -> int:
    """A date or time constant on its axis; raises Untranslatable for what is not plain ISO text."""
    kind, finite = BY_TYPNAME[pg_type], text not in ("infinity", "-infinity")
    if finite:
        _check_calendar(text)
    try:
        value = from_text(kind, text)
    except ValueError:
        raise Untranslatable(f"not plain {pg_type} text") from None
    if finite and abs(value) >= kind.highest:
        raise Untranslatable(f"a {pg_type} that the lake cannot hold")
    return value


def _check_calendar(text: str) -> None:
    matched = _TIME.match(text)
    if not matched:
        raise Untranslatable("not plain ISO text")
    year, month, day = (int(part) for part in matched.groups()[:3])
    year = 1 - year if text.endswith(" BC") else year
    clock = [int(part) for part in matched.groups()[3:] if part]
    known = 1 <= month <= 12 and 1 <= day <= 28 + _extra_days(year, month)
    if not known or (clock and not (clock[0] < 24 and clock[1] < 60 and clock[2] < 60)) or "0000-" in text:
        raise Untranslatable("not in the calendar")


def _extra_days(year: int, month: int) -> int:
    return days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1) - 28


def _time(value: Value, const: Const) -> _Place:
    return _At(ducktext.time(BY_TYPNAME[value.type], axis(value.type, _text(const))))


def _date_and_timestamp(value: Value, const: Const) -> _Place:
    micros = axis("timestamp", _text(const))
    if abs(micros) == TierKind.TIMESTAMP.highest:
        return _time(value, Const("date", _text(const)))
    day, rest = divmod(micros, MICROS_PER_DAY)
    literal = ducktext.time(TierKind.DATE, day)
    return _Between(literal) if rest else _At(literal)


def _timestamp_and_date(value: Value, const: Const) -> _Place:
    day = axis("date", _text(const))
    if abs(day) == TierKind.DATE.highest:
        return _time(value, Const("timestamp", _text(const)))
    micros = day * MICROS_PER_DAY
    if abs(micros) >= TierKind.TIMESTAMP.highest or civil(day)[0] > 294_000:
        raise Untranslatable("a date beyond the timestamps")
    return _At(ducktext.time(TierKind.TIMESTAMP, micros))


def _string(_: Value, const: Const) -> _Place:
    return _At(ducksql.literal(_text(const)))


def check_order(operator: str, value: Value) -> None:
    """Raises Untranslatable unless byte order answers this operator under the value's collation."""
    if value.collation is Collation.NONDETERMINISTIC:
        raise Untranslatable("equality under a nondeterministic collation")
    if operator not in ("=", "<>") and value.collation is Collation.LINGUISTIC:
        raise Untranslatable("order under a linguistic collation")


def _bytes(operator: str, value: Value, const: Const) -> str:
    digits = _HEX.fullmatch(_text(const))
    if not digits:
        raise Untranslatable("bytea that is not in hex form")
    literal = f"from_hex({ducksql.literal(digits[1])})"
    # DuckDB looks an equal value up in a Bloom filter by another hash than it was written with, and misses it.
    match operator:
        case "=":
            return f"({value.sql} >= {literal} and {value.sql} <= {literal})"
        case "<>":
            return f"({value.sql} < {literal} or {value.sql} > {literal})"
        case _:
            return f"({value.sql} {operator} {literal})"


def _uuid(_: Value, const: Const) -> _Place:
    text = _text(const).lower()
    if not UUID.fullmatch(text):
        raise Untranslatable("not a canonical uuid")
    return _At(ducksql.literal(text))


def _boolean(_: Value, const: Const) -> _Place:
    if _text(const) not in _BOOLEANS:
        raise Untranslatable("not a plain boolean")
    return _At(_BOOLEANS[_text(const)])


_PLACES: dict[tuple[str, str], Callable[[Value, Const], _Place]] = {
    ("exact", "exact"): _exact,
    ("date", "date"): _time,
    ("date", "timestamp"): _date_and_timestamp,
    ("timestamp", "timestamp"): _time,
    ("timestamp", "date"): _timestamp_and_date,
    ("timestamptz", "timestamptz"): _time,
    ("text", "text"): _string,
    ("uuid", "uuid"): _uuid,
    ("bool", "bool"): _boolean,
}
_CONDITIONS: dict[tuple[str, str], Callable[[str, Value, Const], str]] = {
    ("float4", "float4"): _float("float", widen=False),
    ("float4", "float8"): _float("double", widen=True),
    ("float4", "exact"): _float("double", widen=True),
    ("float8", "float8"): _float("double", widen=False),
    ("float8", "exact"): _float("double", widen=False),
    ("bytea", "bytea"): _bytes,
}
"""Both by the families of column and constant; these where a comparison is not simply DuckDB's. What is in neither
is for Postgres: numeric against float, for one, because the two engines round differently on the way to double."""
