"""ORDER BY, LIMIT and OFFSET of a plain scan."""

from collections.abc import Iterator

from pglast import ast
from pglast.enums import LimitOption, SortByDir, SortByNulls

from frostline.server.translate import duck
from frostline.server.translate.compare import check_order
from frostline.server.translate.operands import Untranslatable, constant, whole_number
from frostline.server.translate.scope import Scope

_FLOATS = ("float4", "float8")


def order_clause(node: ast.SelectStmt, scope: Scope) -> str:
    """ORDER BY over columns whose order is the same in DuckDB; raises Untranslatable for others."""
    renamed = {target.name for target in node.targetList or () if target.name}
    keys = [key for item in node.sortClause or () for key in _sort_keys(item, scope, renamed)]
    return f" order by {duck.listed(keys)}" if keys else ""


def _sort_keys(item: ast.SortBy, scope: Scope, renamed: set[str]) -> Iterator[str]:
    column = scope.column(item.node)
    if column is None or item.sortby_dir == SortByDir.SORTBY_USING:
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


def direction(item: ast.SortBy) -> str:
    """Up or down, and where the nulls go, in words that leave nothing to DuckDB."""
    downward = item.sortby_dir == SortByDir.SORTBY_DESC
    nulls_first = item.sortby_nulls == SortByNulls.SORTBY_NULLS_FIRST or (
        downward and item.sortby_nulls == SortByNulls.SORTBY_NULLS_DEFAULT
    )
    return f"{'desc' if downward else 'asc'} nulls {'first' if nulls_first else 'last'}"


def limit_clause(node: ast.SelectStmt, scope: Scope) -> str:
    """LIMIT and OFFSET with constants."""
    if node.limitOption == LimitOption.LIMIT_OPTION_WITH_TIES:
        raise Untranslatable("with ties")
    return _count(" limit ", node.limitCount, scope) + _count(" offset ", node.limitOffset, scope)


def _count(word: str, node: ast.Node | None, scope: Scope) -> str:
    if node is None:
        return ""
    const = constant(node, scope.params)
    if const is not None and const.text is None:
        return ""
    number = whole_number(const.text) if const is not None and const.text is not None else None
    if number is None or number < 0:
        raise Untranslatable(f"{word.strip()} that is not a plain number")
    return f"{word}{number}"
