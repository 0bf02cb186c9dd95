"""How a lake value is printed so that Postgres reads the same value back."""

from collections.abc import Callable

from frostline.model.tables import Column
from frostline.server.translate import duck

_FIRST_DAY = "date '0001-01-01'"
_FIRST_MICRO = "timestamp '0001-01-01'"

TYPE_OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "float4": 700,
    "float8": 701,
    "varchar": 1043,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "numeric": 1700,
    "uuid": 2950,
}


def printed(column: Column) -> str:
    """The column as text, in DuckDB SQL."""
    return printed_value(duck.column(column), column.carriage.lake_type)


def printed_value(sql: str, lake_type: str) -> str:
    """A value of this lake type as text, in DuckDB SQL."""
    return _PRINTERS.get(lake_type, _plain)(sql)


def _plain(sql: str) -> str:
    return duck.cast(sql, "varchar")


def _as_it_is(sql: str) -> str:
    return sql


def _hex(sql: str) -> str:
    return f"'\\x' || lower(hex({sql}))"


def _boolean(sql: str) -> str:
    return f"case when {sql} then 't' when not {sql} then 'f' end"


def _date(sql: str) -> str:
    return _era_last(f"{sql} >= {_FIRST_DAY}", _plain(sql))


def _timestamp(sql: str) -> str:
    return _era_last(f"{sql} >= {_FIRST_MICRO}", _plain(sql))


def _float(sql: str) -> str:
    named = f"case when isnan({sql}) then 'NaN' when {sql} > 0 then 'Infinity' when {sql} < 0 then '-Infinity' end"
    return f"case when isfinite({sql}) then {_plain(sql)} else {named} end"


def _era_last(after_christ: str, text: str) -> str:
    """DuckDB writes `0044-03-15 (BC) 12:00:00`, Postgres `0044-03-15 12:00:00 BC`."""
    moved = f"replace({text}, ' (BC)', '') || ' BC'"
    return f"case when {after_christ} or not contains({text}, '(BC)') then {text} else {moved} end"


def _with_zone(sql: str) -> str:
    # The cast of a timestamptz goes through ICU and takes twice as long as this.
    text = f"{duck.cast(f'make_timestamp(epoch_us({sql}))', 'varchar')} || '+00'"
    common = f"{sql} >= timestamptz '0001-01-01 00:00:00+00' and {sql} < timestamptz 'infinity'"
    moved = f"replace({text}, ' (BC)', '') || ' BC'"
    return f"case when {common} then {text} when isfinite({sql}) then {moved} else {duck.cast(sql, 'varchar')} end"


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
