"""Plots as SVG text: one row of dots for each thing, on a logarithmic axis."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABELS, FIGURES, ROW, TOP, BOTTOM = 980, 410, 110, 24, 34, 44
_LETTERS = 66
"""So many fit before the dots."""
_INK, _GRID, _GOOD, _BAD, _PLAIN = "#24292f", "#d0d7de", "#1a7f37", "#cf222e", "#0969da"


@dataclass(frozen=True)
class Row:
    """One thing: its samples as dots, the value that counts as a bar, and a figure at the end."""

    label: str
    values: Sequence[float]
    middle: float
    figure: str
    is_good: bool | None = None
    """Decides the colour, where there is something to reach."""


def dots(title: str, axis: str, rows: Sequence[Row], goal: float | None = None) -> str:
    """The whole picture. `goal` is a line from top to bottom."""
    height = TOP + ROW * len(rows) + BOTTOM
    scale = _Scale.over([value for row in rows for value in row.values] + ([goal] if goal else []))
    body = [*_ticks(scale, height), *_goal(scale, goal, height)]
    for number, row in enumerate(rows):
        body.extend(_row(scale, row, TOP + ROW * number + ROW / 2))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            _text(10, 20, title, weight="bold"),
            *body,
            _text(LABELS, height - 8, axis),
            "</svg>",
            "",
        ]
    )


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "_Scale":
        """Some room on both sides, so that no dot sits on the edge."""
        return cls(math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(LABELS + share * (WIDTH - LABELS - FIGURES), 1)

    def ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten; the powers alone where that is too much."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        steps = (1, 2, 5) if self.high - self.low < 2.5 else (1,)
        candidates = [step * 10.0**power for power in powers for step in steps]
        return [value for value in candidates if self.low <= math.log10(value) <= self.high]


def _ticks(scale: _Scale, height: int) -> Iterator[str]:
    for value in scale.ticks():
        x = scale.at(value)
        yield _line(x, TOP, x, height - BOTTOM, _GRID)
        yield _text(x, height - BOTTOM + 16, f"{value:g}", anchor="middle")


def _goal(scale: _Scale, goal: float | None, height: int) -> Iterator[str]:
    if goal:
        x = scale.at(goal)
        yield _line(x, TOP - 6, x, height - BOTTOM, _INK, width=1.5, dash="5 3")


def _row(scale: _Scale, row: Row, y: float) -> Iterator[str]:
    colour = _PLAIN if row.is_good is None else _GOOD if row.is_good else _BAD
    yield _text(LABELS - 10, y + 4, row.label, anchor="end")
    for value in row.values:
        yield f'<circle cx="{scale.at(value)}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.35"/>'
    yield _line(scale.at(row.middle), y - 8, scale.at(row.middle), y + 8, colour, width=3)
    yield _text(WIDTH - FIGURES + 10, y + 4, row.figure, colour=colour)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = _INK) -> str:
    shown = text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">{escape(shown)}</text>'
