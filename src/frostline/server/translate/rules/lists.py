"""= ANY(array), <> ALL(array) and the other operators with ANY and ALL, IN (...), BETWEEN."""

from collections.abc import Sequence

from pglast import ast
from pglast.enums import A_Expr_Kind

from frostline.server.translate import duck
from frostline.server.translate.arrays import elements
from frostline.server.translate.compare import OPERATORS, compare, member
from frostline.server.translate.operands import Const, Untranslatable, Value, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import operator_name, value

_ARRAYS = {A_Expr_Kind.AEXPR_OP_ANY: " or ", A_Expr_Kind.AEXPR_OP_ALL: " and "}
_EMPTY = {" or ": "false", " and ": "true"}
_MEMBERSHIP = {("=", " or "): "{}", ("<>", " and "): "(not {})"}
_BETWEEN = {A_Expr_Kind.AEXPR_BETWEEN: (">=", "<=", " and "), A_Expr_Kind.AEXPR_NOT_BETWEEN: ("<", ">", " or ")}


def array(node: ast.Node, scope: Scope) -> str | None:
    """The rule for `column op ANY(array)` and `column op ALL(array)`."""
    if not isinstance(node, ast.A_Expr) or node.kind not in _ARRAYS:
        return None
    operator = operator_name(node)
    if operator not in OPERATORS:
        raise Untranslatable(f"operator {operator} with an array")
    items = elements(node.rexpr, scope.params)
    joint = _ARRAYS[A_Expr_Kind(node.kind)]
    # NULL instead of an array is NULL; an empty array decides even for NULL.
    return duck.NULL if items is None else _each(operator, value(node.lexpr, scope), items, joint)


def in_list(node: ast.Node, scope: Scope) -> str | None:
    """The rule for `column [NOT] IN (constants)`."""
    if not isinstance(node, ast.A_Expr) or node.kind != A_Expr_Kind.AEXPR_IN:
        return None
    items = [constant(item, scope.params) for item in node.rexpr or ()]
    if any(item is None for item in items):
        raise Untranslatable("a list of expressions")
    operator = operator_name(node) or ""
    consts = [item for item in items if item is not None]
    return _each(operator, value(node.lexpr, scope), consts, " or " if operator == "=" else " and ")


def _each(operator: str, left: Value, items: Sequence[Const], joint: str) -> str:
    """Each element on its own, so that every one gets the exact treatment of a single comparison."""
    if not items:
        return _EMPTY[joint]
    if (operator, joint) in _MEMBERSHIP:
        inside = member(left, items)
        if inside is not None:
            return _MEMBERSHIP[operator, joint].replace("{}", inside)
    return duck.joined(list(dict.fromkeys(compare(operator, left, item) for item in items)), joint)


def between(node: ast.Node, scope: Scope) -> str | None:
    """The rule for `column [NOT] BETWEEN constant AND constant`."""
    if not isinstance(node, ast.A_Expr) or node.kind not in _BETWEEN:
        return None
    low, high, joint = _BETWEEN[A_Expr_Kind(node.kind)]
    bounds = [constant(item, scope.params) for item in node.rexpr or ()]
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        raise Untranslatable("between expressions")
    left = value(node.lexpr, scope)
    return f"({compare(low, left, bounds[0])}{joint}{compare(high, left, bounds[1])})"
