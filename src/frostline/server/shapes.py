"""Queries that come again with other numbers are planned once: their *shape* is the query without those numbers."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from frostline.model.tables import Column
from frostline.server.lake_tables import LakeTables
from frostline.server.meter import Meter
from frostline.server.printed import Ledger
from frostline.server.reading import Chosen, Question, choose, looked_up, sorted_by
from frostline.server.translate import gaps
from frostline.server.translate.compare import compare
from frostline.server.translate.gaps import Gap
from frostline.server.translate.plan import DuckPlan, pinned_snapshot, plan
from frostline.server.translate.scope import Scope, conjuncts
from frostline.server.translate.statements import Select
from frostline.server.translate.wants import is_number

_REMEMBERED, _MOST_CHARS, _MOST_FILES = 128, 4_096, 500
"""So many are remembered, none of a longer text, parameters included, and none that reads more files: their names are
a part of it."""

Params = tuple[str | None, ...]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Shape:
    """A query on one snapshot. Its gaps are columns outside the primary key, so it reads the same files each time."""

    gaps: tuple[Gap, ...]
    columns: tuple[Column, ...]
    """What the gaps compare, in their order."""
    plan: DuckPlan
    """Of the query without them."""
    chosen: Chosen

    def is_of(self, tables: LakeTables) -> bool:
        """Whether the table is still described as it was."""
        table = self.plan.scan.source.table
        now = tables.resolve(table.id)
        return now is table or now == table

    @cached_property
    def ledger(self) -> Ledger | None:
        """All rows that it could be answered with; None where there is nothing to be gained from them."""
        return sorted_by(self.plan, self.columns, self.chosen) if self.plan.outputs else None

    def numbers(self, params: Params) -> tuple[int, ...] | None:
        """What these parameters look for; None where it is not simply a number for each gap."""
        pairs = zip(self.gaps, self.columns, strict=True)
        numbers = [gaps.number(column, gap.const(params)) for gap, column in pairs]
        plain = tuple(number for number in numbers if number is not None)
        return plain if len(plain) == len(numbers) else None

    def question(self, params: Params, meter: Meter) -> Question:
        """The query with its gaps filled."""
        source = self.plan.scan.source
        pairs = zip(self.gaps, self.columns, strict=True)
        equal = [compare("=", source.value(column), gap.const(params)) for gap, column in pairs]
        return looked_up(self.plan, self.columns, equal, self.chosen, meter)


class Shapes:
    """The shapes of the last queries. For many threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filled: OrderedDict[tuple[str, int], frozenset[int]] = OrderedDict()
        """The places of the parameters that fill gaps. Not the gaps: a text that is parsed again is another tree."""
        self._known: OrderedDict[tuple[str, Params], Shape | None] = OrderedDict()
        """None for a query that has no shape."""
        self._seen_once: OrderedDict[tuple[str, Params], None] = OrderedDict()

    def of(self, select: Select, params: Params, tables: LakeTables) -> Shape | None:
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


def _shape(select: Select, params: Params, tables: LakeTables) -> Shape | None:
    holes = gaps.gaps(select, len(params))
    rest = gaps.without(select, holes)
    planned = plan(rest, params, tables)
    if not isinstance(planned, DuckPlan) or planned.tail or planned.ordered or planned.scan.sample:
        return None
    scope = Scope(planned.scan.source, params)
    if not any(pinned_snapshot(part, scope) for part in conjuncts(rest.node.where_clause)):
        return None
    table = scope.source.table
    by_name = {column.name: column for column in table.columns if is_number(column) and column.name not in table.key}
    columns = tuple(by_name[name] for gap in holes if (name := scope.name(gap.column)) in by_name)
    if len(columns) != len(holes) or len(set(columns)) != len(columns):
        return None
    chosen = choose(planned.scan, tables)
    return Shape(holes, columns, planned, chosen) if len(chosen.files) <= _MOST_FILES else None
