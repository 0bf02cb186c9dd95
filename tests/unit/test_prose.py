"""The pages have one sentence a line, so that a diff shows which sentence has changed.

A table cell may hold several, and so may a remark, *(measured ...)*. A bold head of a paragraph stays with its first sentence.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN_BY_PROGRAMS = {"cli.md", "benchmarks.md"}
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted(
    page for page in ROOT.glob("docs/**/*.md") if page.name not in WRITTEN_BY_PROGRAMS
)
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_NOT_PROSE = re.compile(r"^\s*(\||#|<!--)")
_MARKERS = re.compile(r"^\s*(?:> ?)*(?:(?:[*+-]|\d+[.)])\s+)*")
_HEAD = re.compile(r"\*\*.+?\*\*")
_ATOM = re.compile(r"(`+).+?\1|\]\([^)]*\)|\*\(.+?\)\*")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf)\.|(?<!\.)\.\.\.")
_REMARK = r"\*\(X+\)\*"
_END = re.compile(rf"""[.!?][)\]"'*_]*\s+(?:{_REMARK}\s+)?(?!{_REMARK})(?=[\["'(*_]*[A-Z0-9])""")


def breaks(line: str) -> Iterator[int]:
    """Where a second, third, ... sentence of a line of prose begins."""
    plain = _ABBREVIATION.sub(_masked, _ATOM.sub(_masked, line))
    begin = _MARKERS.match(plain)
    start = begin.end() if begin else 0
    head = _HEAD.match(plain, start)
    yield from (end.end() for end in _END.finditer(plain, head.end() if head else start))


def _masked(match: re.Match[str]) -> str:
    """As long as it was, and a word; a remark still shows as one, since it belongs to the sentence before it."""
    text = match[0]
    return f"*({'X' * (len(text) - 4)})*" if text.startswith("*(") else "X" * len(text)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside code, tables and headings, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        marks = _FENCE.match(line)
        if marks and (not fence or marks[1].startswith(fence)):
            fence = "" if fence else marks[1]
        elif not fence and not _NOT_PROSE.match(line):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_has_one_sentence(page: Path) -> None:
    full = [
        f"{page.relative_to(ROOT)}:{number}: {line[at:]}"
        for number, line in prose(page.read_text())
        for at in breaks(line)
    ]
    assert not full, "begin a new line at\n" + "\n".join(full)


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("It waits. Then it goes on.", "Then it goes on."),
        ("Who waits? Nobody does.", "Nobody does."),
        ("* An item ends. `frostline up` begins.", "`frostline up` begins."),
        ("  12. **A head.** It stays here. *Not this.*", "*Not this.*"),
        ("It is [told](a.md). [It](b.md) is not.", "[It](b.md) is not."),
        ("It is quick. *(measured: 3 ms. On two cores.)* So it stays.", "So it stays."),
        ("It says 'no.' (That is meant.)", "(That is meant.)"),
        ("It took 2.5. 3 were left.", "3 were left."),
    ],
)
def test_a_second_sentence_is_found(line: str, rest: str) -> None:
    assert [line[at:] for at in breaks(line)] == [rest]


@pytest.mark.parametrize(
    "line",
    [
        "1. It needs Python 3.11 (or newer).",
        "* **A head.** And its sentence.",
        "`a. B` and ``c. D`` are code.",
        "Engines (e.g. Spark, DuckDB etc. Both) read it.",
        "SELECT ... FROM events works.",
        "It links to [a page](https://example.org/a.html? B).",
        "It is quick. *(measured: 3 ms. On two cores.)*",
        "It is quick *(measured: 3 ms.)* Postgres would say.",
        "",
    ],
)
def test_one_sentence_is_left_alone(line: str) -> None:
    assert not list(breaks(line))


def test_tables_code_and_headings_are_not_prose() -> None:
    text = "# A. B\n\n| a. B | c. D |\n\n```sql\n-- A. B\n```\n\nIt is. It was.\n"
    assert list(prose(text)) == [(2, ""), (4, ""), (8, ""), (9, "It is. It was.")]
