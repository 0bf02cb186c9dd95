"""Pieces of DuckDB SQL, quoted. Everything that comes from outside enters DuckDB through one of these."""

from collections.abc import Iterable, Sequence

from frostline.lake import ducksql
from frostline.model.tables import Column
from frostline.server.translate.operands import Untranslatable

NULL = "cast(null as boolean)"
MOST_PARTS = 2_000
"""Conditions side by side. DuckDB's planning time grows with their square, and then it is deaf to a cancel request."""

MOST_ELEMENTS = 200_000
"""Members of one list. DuckDB needs some 300 bytes and 5 microseconds for each, and is deaf to a cancel request."""
MOST_TEXT = 4_000_000
"""Characters of all conditions on a table together, for the same reason."""


def local(path: str) -> str:
    """A `file://` URI as the path it stands for (nothing in it is encoded); anything else as it is."""
    return path.removeprefix("file://")


def name(column: Column) -> str:
    """What the column is called in DuckDB, not quoted.

    DuckDB takes names that differ by case only for the same, and in ORDER BY prefers the name of an output to that of
    a column. With its field id a column's name is like no other.
    """
    return f"{column.name}:{column.field_id}"


def column(column: Column) -> str:
    """The column in DuckDB."""
    return ducksql.identifier(name(column))


def cast(value: str, duck_type: str) -> str:
    """A value of another type."""
    return f"cast({value} as {duck_type})"


def listed(items: Iterable[str]) -> str:
    """A comma-separated list."""
    return ", ".join(items)


def select(expressions: str, relation: str, rest: str = "") -> str:
    """A query. All three parts come from functions here and in the rules, which quote what is not theirs."""
    return f"select {expressions} from {relation}{rest}"  # noqa: S608


def all_of(conditions: Iterable[str]) -> str:
    """A conjunction; true when there is nothing to say."""
    return " and ".join(conditions) or "true"


def joined(conditions: Sequence[str], word: str) -> str:
    """All of the conditions, or any of them; raises Untranslatable when they are too many."""
    if len(conditions) > MOST_PARTS:
        raise Untranslatable("too many conditions")
    return f"({word.join(conditions)})"
