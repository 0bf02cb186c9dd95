"""Queries whose first rows are in a few files: ORDER BY a column of the primary key, and its smallest or largest value.

A column of the primary key is never NULL, and the bounds of a number or a time are values, not beginnings of one.
"""

from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.model.tables import Column
from frostline.server.translate import tree
from frostline.server.translate.operands import builtin_name
from frostline.server.translate.scope import Scope
from frostline.server.translate.tail import limits, order_clause
from frostline.server.translate.wants import is_number


@dataclass(frozen=True)
class Ordered:
    """The rows come by this column first; rows that are equal in it come by the rest of the clause."""

    column: Column
    downward: bool
    clause: str
    """ORDER BY, in DuckDB; empty for an extreme."""
    limit: int | None = None
    offset: int = 0
    extreme: bool = False
    """One row is wanted: the smallest value, or downward the largest, of rows that there may be none of."""


def ordered(node: tree.SelectStmt, scope: Scope) -> Ordered | None:
    """How the rows are ordered; None when it is not by a column of the key. Raises Untranslatable as the rules do."""
    if node.group_clause:
        return None
    targets = node.target_list or ()
    if any(isinstance(target.val, tree.FuncCall) for target in targets):
        return _extreme(node, scope)
    first = next(iter(node.sort_clause or ()), None)
    column = _key_column(first.node, scope) if first is not None else None
    if first is None or column is None:
        return None
    limit, offset = limits(node, scope)
    downward = first.sortby_dir == pb.SORTBY_DESC
    return Ordered(column, downward, order_clause(node, scope), limit, offset or 0)


def _extreme(node: tree.SelectStmt, scope: Scope) -> Ordered | None:
    targets = node.target_list or ()
    call = targets[0].val if len(targets) == 1 else None
    if not isinstance(call, tree.FuncCall) or node.sort_clause:
        return None
    (argument,) = call.args if len(call.args) == 1 else (None,)
    function, column = builtin_name(call.funcname), _key_column(argument, scope)
    if function not in ("min", "max") or column is None or limits(node, scope) != (None, None):
        return None
    return Ordered(column, function == "max", "", extreme=True)


def _key_column(node: tree.Node | None, scope: Scope) -> Column | None:
    column = scope.column(node)
    if column is None or column.name not in scope.source.table.key or not is_number(column):
        return None
    return column
