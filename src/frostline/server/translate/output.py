"""How a lake value is printed so that Postgres reads the same value back."""

from frostline.lake.ducktext import printed_value
from frostline.model.tables import Column
from frostline.server.translate import duck

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
    return printed_value(duck.column(column), column.encoding.lake_type)
