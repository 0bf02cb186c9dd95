"""Queries that come again with other numbers are planned once: their *shape* is the query without those numbers."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from frostline.model.range import Range, overlapping
from frostline.model.tables import Column
from frostline.server.meter import Meter
from frostline.server.printed import Ledger
from frostline.server.reading import Chosen, Question, choose, looked_up, sorted_by
from frostline.server.served_tables import ServedTables
from frostline.server.translate import gaps
from frostline.server.translate.compare import compare
from frostline.server.translate.gaps import Gap
from frostline.server.translate.plan import DuckPlan, pinned_snapshot, plan
from frostline.server.translate.scope import Scope, conjuncts
from frostline.server.translate.statements import Select
from frostline.server.translate.wants import OneOf, is_number

_REMEMBERED, _MOST_CHARS = 128, 4_096
"""So many are remembered, none of a longer text, parameters included."""
_MOST_FILES, _FEW_FILES, _MOST_PARTS = 500, 16, 256
"""No ledger is of more files, whose names are a part of it, nor of more than a few that were chosen by a key; so many
such choices are remembered of each shape."""

Params = tuple[str | None, ...]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Part:
    """The files that some look-ups of a shape read: those that their numbers can be in."""

    shape: "Shape"
    chosen: Chosen

    @cached_property
    def ledger(self) -> Ledger | None:
        """All rows that they could be answered with; None where there is nothing to be gained from them."""
        shape = self.shape
        most = _MOST_FILES if len(self.chosen.files) == len(shape.chosen.files) else _FEW_FILES
        is_of_use = shape.plan.outputs and len(self.chosen.files) <= most
        return sorted_by(shape.plan, shape.columns, self.chosen) if is_of_use else None

    def question(self, params: Params, meter: Meter) -> Question:
        """The query with its gaps filled."""
        shape = self.shape
        source = shape.plan.scan.source
        pairs = zip(shape.gaps, shape.columns, strict=True)
        equal = [compare("=", source.value(column), gap.const(params)) for gap, column in pairs]
        return looked_up(shape.plan, shape.columns, equal, self.chosen, meter)


@dataclass(frozen=True)
class Shape:
    """A query on one snapshot, without the numbers in its gaps."""

    gaps: tuple[Gap, ...]
    columns: tuple[Column, ...]
    """What the gaps compare, in their order."""
    plan: DuckPlan
    """Of the query without them."""
    chosen: Chosen
    """What it reads."""
    _parts: dict[tuple[str, ...] | None, Part] = field(
        default_factory=dict["tuple[str, ...] | None", Part], compare=False
    )
    """By the files that they read; None for all."""

    def is_of(self, tables: ServedTables) -> bool:
        """Whether the table is still described as it was."""
        source = self.plan.scan.source
        now = tables.resolve(source.remote)
        return now is source.table or now == source.table

    def numbers(self, params: Params) -> tuple[int, ...] | None:
        """What these parameters look for; None where it is not simply a number for each gap."""
        pairs = zip(self.gaps, self.columns, strict=True)
        numbers = [gaps.number(column, gap.const(params)) for gap, column in pairs]
        plain = tuple(number for number in numbers if number is not None)
        return plain if len(plain) == len(numbers) else None

    def part(self, numbers: Sequence[int]) -> Part:
        """The files for these numbers: columns whose bounds are known choose among them, others do not."""
        table, files = self.plan.scan.source.table, self.chosen.files
        tier = table.tier
        for column, number in zip(self.columns, numbers, strict=True):
            if tier is not None and column.name == tier.name:
                files = overlapping(files, Range.closed(number, number))
            elif column.name in table.bounded:
                want = OneOf(column.field_id, (number,))
                files = [file for file in files if want.may_be_in(file)]
        left_out = len(self.chosen.files) - len(files)
        paths = tuple(file.path for file in files) if left_out else None
        part = self._parts.get(paths)
        if part is None:
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            part = self._parts[paths] = Part(self, Chosen(files, self.chosen.passed_over + left_out))
        return part


class Shapes:
    """The shapes of the last queries. For many threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filled: OrderedDict[tuple[str, int], frozenset[int]] = OrderedDict()
        """The places of the parameters that fill gaps. Not the gaps: a text that is parsed again is another tree."""
        self._known: OrderedDict[tuple[str, Params], Shape | None] = OrderedDict()
        """None for a query that has no shape."""
        self._seen_once: OrderedDict[tuple[str, Params], None] = OrderedDict()

    def of(self, select: Select, params: Params, tables: ServedTables) -> Shape | None:
        """The shape of the query; None of one that has none, or that is seen for the first time."""
        size = len(select.sql) + sum(len(param) for param in params if param is not None)
        filled = self._filled_in(select, len(params)) if params and size <= _MOST_CHARS else None
        if not filled:
            return None
        key = select.sql, tuple(None if place in filled else param for place, param in enumerate(params))
        with self._lock:
            is_known, shape = key in self._known, self._known.get(key)
            if is_known:
                self._known.move_to_end(key)
            elif key not in self._seen_once:
                _put(self._seen_once, key, None)
                return None
        if is_known and (shape is None or shape.is_of(tables)):
            return shape
        shape = _shape(select, params, tables)
        with self._lock:
            _put(self._known, key, shape)
        return shape

    def _filled_in(self, select: Select, count: int) -> frozenset[int]:
        key = select.sql, count
        filled = self._filled.get(key)
        if filled is None:
            filled = frozenset(gap.parameter for gap in gaps.gaps(select, count))
            with self._lock:
                _put(self._filled, key, filled)
        return filled


def _put(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)


def _shape(select: Select, params: Params, tables: ServedTables) -> Shape | None:
    holes = gaps.gaps(select, len(params))
    rest = gaps.without(select, holes)
    planned = plan(rest, params, tables)
    if not isinstance(planned, DuckPlan) or planned.tail or planned.ordered or planned.scan.sample:
        return None
    scope = Scope(planned.scan.source, params)
    if not any(pinned_snapshot(part, scope) for part in conjuncts(rest.node.where_clause)):
        return None
    table = scope.source.table
    by_name = {column.name: column for column in table.columns if is_number(column)}
    columns = tuple(by_name[name] for gap in holes if (name := scope.name(gap.column)) in by_name)
    if len(columns) != len(holes) or len(set(columns)) != len(columns):
        return None
    return Shape(holes, columns, planned, choose(planned.scan, tables))
