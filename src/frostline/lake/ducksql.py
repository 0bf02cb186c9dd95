"""Pieces of DuckDB SQL about lake files, quoted. Knows DuckDB's language, not the engine."""

from collections.abc import Iterable

from frostline.model import laketypes
from frostline.model.tables import Column


def identifier(name: str) -> str:
    """A name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """A text, quoted. A DuckDB string knows no escapes but the doubled quote."""
    return "'" + value.replace("'", "''") + "'"


def read_parquet(files: Iterable[str], columns: Iterable[tuple[str, Column]]) -> str:
    """The rows of these files, given as quoted literals, with only these columns under these names.

    Columns are matched by field id, whatever they are called in the file; one that a file lacks has its missing value
    there, or null.
    """
    fields = ", ".join(_field(name, column) for name, column in columns)
    return f"read_parquet([{', '.join(files)}], schema = map {{{fields}}})"


def _field(name: str, column: Column) -> str:
    duck_type = literal(laketypes.duck_type(column.encoding.lake_type))
    return f"{column.field_id}: {{name: {literal(name)}, type: {duck_type}, default_value: {_missing(column)}}}"


def _missing(column: Column) -> str:
    """The missing value as text that DuckDB casts to the field's type: the values of a map have one type together."""
    if column.missing is None:
        return "null"
    lake_type = column.encoding.lake_type
    if lake_type == "binary":
        return literal("".join(f"\\x{byte:02X}" for byte in bytes.fromhex(column.missing.removeprefix("\\x"))))
    return literal(era_first(column.missing) if laketypes.of(lake_type).infinity else column.missing)


def era_first(text: str) -> str:
    """A date or timestamp as DuckDB reads it: `0044-03-15 (BC) 12:00`, where Postgres has `0044-03-15 12:00 BC`."""
    if not text.endswith(" BC"):
        return text
    day, _, clock = text.removesuffix(" BC").partition(" ")
    return f"{day} (BC) {clock}".strip()
