"""Pieces of DuckDB SQL, quoted. Knows DuckDB's language, not the engine."""


def identifier(name: str) -> str:
    """A name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """A text, quoted. A DuckDB string knows no escapes but the doubled quote."""
    return "'" + value.replace("'", "''") + "'"


def era_first(text: str) -> str:
    """A date or timestamp as DuckDB reads it: `0044-03-15 (BC) 12:00`, where Postgres has `0044-03-15 12:00 BC`."""
    if not text.endswith(" BC"):
        return text
    day, _, clock = text.removesuffix(" BC").partition(" ")
    return f"{day} (BC) {clock}".strip()
