"""Pieces of DuckDB SQL, quoted. Everything that comes from outside enters DuckDB through one of these."""

from collections.abc import Iterable

from frostline.lake import ducksql
from frostline.model.tiers import TierKind, to_text

NULL = "cast(null as boolean)"


def local(path: str) -> str:
    """A `file://` URI as the path it stands for (nothing in it is encoded); anything else as it is."""
    return path.removeprefix("file://")


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


def time(kind: TierKind, value: int) -> str:
    """A date or timestamp literal from its axis value."""
    text = to_text(kind, value)
    if text.endswith(" BC"):
        day, _, clock = text.removesuffix(" BC").partition(" ")
        text = f"{day} (BC) {clock}".strip()
    return cast(ducksql.literal(text), _TIME_TYPES[kind])


_TIME_TYPES = {
    TierKind.DATE: "date",
    TierKind.TIMESTAMP: "timestamp",
    TierKind.TIMESTAMPTZ: "timestamptz",
}


def tier_literal(kind: TierKind, value: int) -> str:
    """A tier value as a literal of the tier key's type."""
    return time(kind, value) if kind.is_time else str(value)
