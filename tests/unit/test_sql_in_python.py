"""The few statements that are written in Python are ones of Postgres' grammar; those in files are tried against a server.

What DuckDB is asked (`lake/duck`, `pipeline/export` and their like) has another grammar, and is not made with `psycopg.sql`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import postgast
import pytest

import frostline

ROOT = Path(frostline.__file__).parent
VERB = re.compile(
    r"(select|insert|update|delete|with|lock|drop|alter|create|analyze|set|reset|grant|revoke|truncate|copy|begin)\s\S",
    re.IGNORECASE,
)
GAPS = {
    r"in \{\} mode": "in share mode",
    r"\{\} row level": "enable row level",
    r"table \{\} \(\{\}\)": "table example (id int)",
    r"snapshot \{\w*\}": "snapshot 'example'",
    r"; \{\};": "; select 1;",
    r"\{\w*\}": "example",
}
"""What a gap is filled with, the first that fits."""


OPTION = "drop {}"
"""Of a foreign server: no statement, though it looks like one."""


def _statements() -> Iterator[tuple[str, str]]:
    """Every text that begins like a statement and is given to `sql.SQL`, and where."""
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("sql"), attr="SQL"), args=[ast.Constant(str(text))]):
                    if VERB.match(text) and text != OPTION:
                        yield f"{file.relative_to(ROOT)}: {text[:60]}", text
                case _:
                    pass


STATEMENTS = dict(_statements())


@pytest.mark.parametrize("place", STATEMENTS)
def test_the_grammar_accepts_it(place: str) -> None:
    text = STATEMENTS[place]
    for gap, filling in GAPS.items():
        text = re.sub(gap, filling, text)
    assert postgast.parse(text).stmts


def test_there_are_some() -> None:
    assert len(STATEMENTS) > 30
