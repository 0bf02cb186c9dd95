"""How a lake value is printed so that Postgres reads the same value back."""

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
    return printed_value(duck.ident(column.name), column.carriage.lake_type)


def printed_value(sql: str, lake_type: str) -> str:
    """A value of this lake type as text, in DuckDB SQL."""
    text = duck.cast(sql, "varchar")
    match lake_type:
        case "string":
            return sql
        case "binary":
            return f"'\\x' || lower(hex({sql}))"
        case "boolean":
            return f"case when {sql} then 't' when not {sql} then 'f' end"
        case "date":
            return _era_last(f"{sql} >= {_FIRST_DAY}", text)
        case "timestamp":
            return _era_last(f"{sql} >= {_FIRST_MICRO}", text)
        case "timestamptz":
            return _with_zone(sql)
        case "float" | "double":
            return f"case when isfinite({sql}) then {text} else {_not_finite(sql)} end"
        case _:
            return text


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


def _not_finite(sql: str) -> str:
    return f"case when isnan({sql}) then 'NaN' when {sql} > 0 then 'Infinity' when {sql} < 0 then '-Infinity' end"
