"""Lake files as DuckDB reads them: columns by field id, and what rows of a file have in a column that it lacks."""

from collections.abc import Iterable

from frostline.lake import ducksql, ducktext
from frostline.model import laketypes, missing
from frostline.model.missing import OwnValue
from frostline.model.tables import Column

_KEY = "frostline_key_{}"
_JOINED = " || chr(31) || "


def read_parquet(files: Iterable[str], columns: Iterable[tuple[str, Column]]) -> str:
    """The rows of these files, given as quoted literals, with only these columns under these names.

    Columns are matched by field id, whatever they are called in the file; one that a file lacks has its missing value
    there, or null.
    """
    named = list(columns)
    known = {column.field_id: (name, column.encoding.lake_type) for name, column in named}
    own = {name: value for name, column in named if (value := missing.own(column)) is not None}
    keys = {field_id: lake_type for value in own.values() for field_id, lake_type in value.key if field_id not in known}
    fields = [_field(column.field_id, name, column.encoding.lake_type, _missing(column)) for name, column in named]
    fields += [_field(field_id, _KEY.format(field_id), lake_type, "null") for field_id, lake_type in keys.items()]
    rows = f"read_parquet([{', '.join(files)}], schema = map {{{', '.join(fields)}}})"
    if not own:
        return rows
    known |= {field_id: (_KEY.format(field_id), lake_type) for field_id, lake_type in keys.items()}
    shown = ", ".join(_shown(name, column.missing, own.get(name), known) for name, column in named)
    return f"(select {shown} from {rows})"  # noqa: S608


def _field(field_id: int, name: str, lake_type: str, missing_value: str) -> str:
    duck_type = ducksql.literal(laketypes.duck_type(lake_type))
    return f"{field_id}: {{name: {ducksql.literal(name)}, type: {duck_type}, default_value: {missing_value}}}"


def _missing(column: Column) -> str:
    """The missing value as text that DuckDB casts to the field's type: the values of a map have one type together."""
    if column.missing is None:
        return "null"
    lake_type = column.encoding.lake_type
    if lake_type == "binary":
        return ducksql.literal("".join(f"\\x{byte:02X}" for byte in bytes.fromhex(column.missing.removeprefix("\\x"))))
    return ducksql.literal(ducksql.era_first(column.missing) if laketypes.of(lake_type).infinity else column.missing)


def _shown(name: str, text: str | None, own: OwnValue | None, known: dict[int, tuple[str, str]]) -> str:
    """The column; where its rows have values of their own, the text that says which is no value that a file has."""
    column = ducksql.identifier(name)
    if own is None or text is None:
        return column
    return f"case when {column} = {ducksql.literal(text)} then {_uuid(own, known)} else {column} end as {column}"


def _uuid(own: OwnValue, known: dict[int, tuple[str, str]]) -> str:
    """As `OwnValue.of` computes it, in DuckDB SQL over the columns of the key."""
    parts = (key_part(ducksql.identifier(name), lake_type) for name, lake_type in (known[key] for key, _ in own.key))
    digits = f"({ducksql.literal(own.prefix)} || sha256({ducksql.literal(own.salt)} || {_JOINED.join(parts)}))"
    variant = f"translate({digits}[17], '0123456789abcdef', '89ab89ab89ab89ab')"
    groups = (f"{digits}[1:8]", f"{digits}[9:12]", f"'{own.version}' || {digits}[14:16]")
    return " || '-' || ".join((*groups, f"{variant} || {digits}[18:20]", f"{digits}[21:32]"))


def key_part(sql: str, lake_type: str) -> str:
    """A value of a key as the seam protocol writes it in one text for the whole key, in DuckDB SQL."""
    text = f"cast({sql} as varchar)" if lake_type == "boolean" else ducktext.printed_value(sql, lake_type)
    return f"replace(replace({text}, '\\', '\\\\'), chr(31), '\\u')"
