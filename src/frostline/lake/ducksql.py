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

    Columns are matched by field id, whatever they are called in the file; one that a file lacks is null there.
    """
    fields = ", ".join(_field(name, column) for name, column in columns)
    return f"read_parquet([{', '.join(files)}], schema = map {{{fields}}})"


def _field(name: str, column: Column) -> str:
    duck_type = literal(laketypes.duck_type(column.encoding.lake_type))
    return f"{column.field_id}: {{name: {literal(name)}, type: {duck_type}, default_value: null}}"
