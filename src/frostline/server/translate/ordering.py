"""ORDER BY, LIMIT and OFFSET of a plain scan, and the queries among them whose first rows are in a few files.

Those are ORDER BY a column of the primary key, and its smallest or largest value. Such a column is never NULL, and the
bounds of a number or a time are values, not beginnings of one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.model.tables import Column
from frostline.server.translate import duck, tree
from frostline.server.translate.compare import check_order
from frostline.server.translate.operands import Untranslatable, builtin_name, constant, whole_number
from frostline.server.translate.scope import Scope
from frostline.server.translate.wants import is_number

_FLOATS = ("float4", "float8")


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


def order_clause(node: tree.SelectStmt, scope: Scope) -> str:
    """ORDER BY over columns whose order is the same in DuckDB; raises Untranslatable for others."""
    renamed = {target.name for target in node.target_list or () if target.name}
    keys = [key for item in node.sort_clause or () for key in _sort_keys(item, scope, renamed)]
    return f" order by {duck.listed(keys)}" if keys else ""


def _sort_keys(item: tree.SortBy, scope: Scope, renamed: set[str]) -> Iterator[str]:
    column = scope.column(item.node)
    if column is None or item.sortby_dir == pb.SORTBY_USING:
        raise Untranslatable("order by an expression")
    if column.name in renamed:
        raise Untranslatable("order by a name that may be an output's")
    value = scope.source.value(column)
    check_order("<", value)
    suffix = direction(item)
    if value.type in _FLOATS:
        # A LIMIT prunes row groups by their statistics, which may leave NaN out; NaN is above all numbers.
        yield f"isnan({value.sql}) {suffix}"
    yield f"{value.sql} {suffix}"


def direction(item: tree.SortBy) -> str:
    """Up or down, and where the nulls go, in words that leave nothing to DuckDB."""
    downward = item.sortby_dir == pb.SORTBY_DESC
    nulls_first = item.sortby_nulls == pb.SORTBY_NULLS_FIRST or (
        downward and item.sortby_nulls == pb.SORTBY_NULLS_DEFAULT
    )
    return f"{'desc' if downward else 'asc'} nulls {'first' if nulls_first else 'last'}"


def limit_clause(node: tree.SelectStmt, scope: Scope) -> str:
    """LIMIT and OFFSET with constants."""
    if node.limit_option == pb.LIMIT_OPTION_WITH_TIES:
        raise Untranslatable("with ties")
    count, skipped = limits(node, scope)
    return (f" limit {count}" if count is not None else "") + (f" offset {skipped}" if skipped is not None else "")


def limits(node: tree.SelectStmt, scope: Scope) -> tuple[int | None, int | None]:
    """The numbers of LIMIT and OFFSET; None where there is none."""
    return _count("limit", node.limit_count, scope), _count("offset", node.limit_offset, scope)


def _count(word: str, node: tree.Node | None, scope: Scope) -> int | None:
    if node is None:
        return None
    const = constant(node, scope.params)
    if const is not None and const.text is None:
        return None
    number = whole_number(const.text) if const is not None and const.text is not None else None
    if number is None or number < 0:
        raise Untranslatable(f"{word} that is not a plain number")
    return number


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
