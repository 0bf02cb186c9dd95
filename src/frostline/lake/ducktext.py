"""Values between DuckDB and Postgres as text: how a lake value is printed so that Postgres reads the same one back."""

from collections.abc import Callable

from frostline.lake import ducksql
from frostline.model.range import Range
from frostline.model.tiers import TierKind, to_text

_FIRST_DAY, _LAST_DAY = "date '0001-01-01'", "date '9999-12-31'"
_FIRST_MICRO = "timestamp '0001-01-01'"
_ESCAPES = (("\\", "\\\\"), (chr(9), "\\t"), (chr(10), "\\n"), (chr(13), "\\r"))


def printed_value(sql: str, lake_type: str) -> str:
    """A value of this lake type as text, in DuckDB SQL."""
    return _PRINTERS.get(lake_type, _plain)(sql)


def copied_value(sql: str, lake_type: str) -> str:
    """A value of this lake type as a field of COPY's text format, in DuckDB SQL."""
    text = _signed(sql) if lake_type in ("float", "double") else printed_value(sql, lake_type)
    for character, escape in _ESCAPES if lake_type in ("string", "binary") else ():
        text = f"replace({text}, {ducksql.literal(character)}, {ducksql.literal(escape)})"
    return f"coalesce({text}, '\\N')"


def tier_literal(kind: TierKind, value: int) -> str:
    """A tier value as a literal of the tier key's type."""
    return time(kind, value) if kind.is_time else str(value)


def within(sql: str, kind: TierKind, wanted: Range) -> str:
    """The condition that a tier key lies in the range, in DuckDB SQL."""
    lower = [] if wanted.lower is None else [f"{sql} >= {tier_literal(kind, wanted.lower)}"]
    upper = [] if wanted.upper is None else [f"{sql} < {tier_literal(kind, wanted.upper)}"]
    return " and ".join([*lower, *upper]) or "true"


def time(kind: TierKind, value: int) -> str:
    """A date or timestamp literal from its axis value."""
    return _cast(ducksql.literal(ducksql.era_first(to_text(kind, value))), kind.typname)


def _cast(value: str, duck_type: str) -> str:
    return f"cast({value} as {duck_type})"


def _plain(sql: str) -> str:
    return _cast(sql, "varchar")


def _as_it_is(sql: str) -> str:
    return sql


def _hex(sql: str) -> str:
    return f"'\\x' || lower(hex({sql}))"


def _boolean(sql: str) -> str:
    return f"case when {sql} then 't' when not {sql} then 'f' end"


def _date(sql: str) -> str:
    # The cast takes ten times as long as this, which knows no eras.
    common = f"{sql} >= {_FIRST_DAY} and {sql} <= {_LAST_DAY}"
    others = _era_last(f"{sql} >= {_FIRST_DAY}", _plain(sql))
    return f"case when {common} then strftime({sql}, '%Y-%m-%d') else {others} end"


def _timestamp(sql: str) -> str:
    return _era_last(f"{sql} >= {_FIRST_MICRO}", _plain(sql))


def _float(sql: str) -> str:
    named = f"case when isnan({sql}) then 'NaN' when {sql} > 0 then 'Infinity' when {sql} < 0 then '-Infinity' end"
    return f"case when isfinite({sql}) then {_plain(sql)} else {named} end"


def _signed(sql: str) -> str:
    """As above; a NaN with a sign, which `inf - inf` is on many machines, keeps it: the C library reads it back."""
    return f"case when isnan({sql}) and signbit({sql}) then '-NaN' else {_float(sql)} end"


def _era_last(after_christ: str, text: str) -> str:
    """DuckDB writes `0044-03-15 (BC) 12:00:00`, Postgres `0044-03-15 12:00:00 BC`."""
    moved = f"replace({text}, ' (BC)', '') || ' BC'"
    return f"case when {after_christ} or not contains({text}, '(BC)') then {text} else {moved} end"


def _with_zone(sql: str) -> str:
    # The cast of a timestamptz goes through ICU and takes twice as long as this.
    text = f"{_cast(f'make_timestamp(epoch_us({sql}))', 'varchar')} || '+00'"
    common = f"{sql} >= timestamptz '0001-01-01 00:00:00+00' and {sql} < timestamptz 'infinity'"
    moved = f"replace({text}, ' (BC)', '') || ' BC'"
    return f"case when {common} then {text} when isfinite({sql}) then {moved} else {_cast(sql, 'varchar')} end"


_PRINTERS: dict[str, Callable[[str], str]] = {
    "string": _as_it_is,
    "binary": _hex,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _with_zone,
    "float": _float,
    "double": _float,
}
