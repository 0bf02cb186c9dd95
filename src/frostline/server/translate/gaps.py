"""Queries that come again with other numbers: which of their parameters are looked for, and the query without those.

A nested loop of Postgres sends the same text for each row of another table. `column = $2` is a *gap* in it: what it
asks for is filled in each time, and the rest can be thought about once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb

from frostline.model.tables import Column
from frostline.model.tiers import BY_TYPNAME
from frostline.server.translate import tree
from frostline.server.translate.compare import axis
from frostline.server.translate.operands import INTEGERS, Const, Untranslatable, builtin_name, type_name, whole_number
from frostline.server.translate.scope import SNAPSHOT_COLUMN, conjuncts
from frostline.server.translate.statements import Select


@dataclass(frozen=True)
class Gap:
    """A condition that every row has to fulfil: the column equals a parameter that stands nowhere else."""

    condition: tree.Node
    column: tree.ColumnRef
    parameter: int
    """Its place in the list of parameters."""
    type: str | None
    """What the query casts it to."""

    def const(self, params: Sequence[str | None]) -> Const:
        """What is looked for."""
        return Const(self.type, params[self.parameter])


def gaps(select: Select, count: int) -> tuple[Gap, ...]:
    """Those of a plain scan of one table with so many parameters; none of any other query."""
    node = select.node
    if not _is_plain(select):
        return ()
    uses = Counter(part.number for part in select.nodes if isinstance(part, tree.ParamRef))
    return tuple(gap for gap in _equalities(node) if uses[gap.parameter + 1] == 1 and gap.parameter < count)


def _is_plain(select: Select) -> bool:
    """Whether each row of the answer is one of the table's, and whether it is one depends on nothing but the row."""
    node = select.node
    if len(node.from_clause) != 1 or not isinstance(node.from_clause[0], tree.RangeVar):
        return False
    if node.sort_clause or node.limit_count or node.limit_offset or node.group_clause or node.distinct_clause:
        return False
    others = (tree.SelectStmt, tree.FuncCall, tree.SubLink, tree.Other)
    return not any(isinstance(part, others) for part in select.nodes if part is not node)


def _equalities(node: tree.SelectStmt) -> Iterator[Gap]:
    for part in conjuncts(node.where_clause):
        if not isinstance(part, tree.A_Expr) or part.kind != pb.AEXPR_OP or builtin_name(part.name) != "=":
            continue
        for side, other in ((part.lexpr, part.rexpr), (part.rexpr, part.lexpr)):
            if isinstance(side, tree.ColumnRef) and not _is_snapshot(side):
                yield from _gap(part, side, other)


def _is_snapshot(node: tree.ColumnRef) -> bool:
    last = node.fields[-1] if node.fields else None
    return isinstance(last, tree.String) and last.sval == SNAPSHOT_COLUMN


def _gap(condition: tree.Node, column: tree.ColumnRef, node: tree.Node | None) -> Iterator[Gap]:
    cast = None
    if isinstance(node, tree.TypeCast):
        cast, node = type_name(node.type_name), node.arg
        if cast is None:
            return
    if isinstance(node, tree.ParamRef):
        yield Gap(condition, column, node.number - 1, cast)


def without(select: Select, holes: Sequence[Gap]) -> Select:
    """The query without these conditions, which are nodes of its own tree."""
    left_out = {id(gap.condition) for gap in holes}
    parts = list(conjuncts(select.node.where_clause))
    kept = [part for part in parts if id(part) not in left_out]
    assert len(kept) == len(parts) - len(holes), "the gaps of another tree"
    where = tree.BoolExpr(boolop=pb.AND_EXPR, args=kept) if kept else None
    return Select(select.sql, replace(select.node, where_clause=where))


def number(column: Column, const: Const) -> int | None:
    """The one value of the column, as a number on its axis, that equals the constant; None where that takes more."""
    kind, text = BY_TYPNAME[column.pg_type.name], const.text
    if text is None:
        return None
    if not kind.is_time:
        integer, limit = whole_number(text), INTEGERS.get(const.type or column.pg_type.name)
        return integer if limit is not None and integer is not None and -limit <= integer < limit else None
    if const.type not in (None, column.pg_type.name):
        return None
    try:
        return axis(column.pg_type.name, text)
    except Untranslatable:
        return None
