"""= ANY(array), <> ALL(array) and the other operators with ANY and ALL, IN (...), BETWEEN."""

from collections.abc import Sequence

from postgast import pg_query_pb2 as pb

from frostline.server.translate import duck, tree
from frostline.server.translate.arrays import elements
from frostline.server.translate.compare import OPERATORS, compare, member
from frostline.server.translate.operands import Const, Untranslatable, Value, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import operator_name, value

_ARRAYS: dict[int, str] = {pb.AEXPR_OP_ANY: " or ", pb.AEXPR_OP_ALL: " and "}
_EMPTY = {" or ": "false", " and ": "true"}
_MEMBERSHIP = {("=", " or "): "{}", ("<>", " and "): "(not {})"}
_BETWEEN: dict[int, tuple[str, str, str]] = {
    pb.AEXPR_BETWEEN: (">=", "<=", " and "),
    pb.AEXPR_NOT_BETWEEN: ("<", ">", " or "),
}


def array(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column op ANY(array)` and `column op ALL(array)`."""
    if not isinstance(node, tree.A_Expr) or node.kind not in _ARRAYS:
        return None
    operator = operator_name(node)
    if operator not in OPERATORS:
        raise Untranslatable(f"operator {operator} with an array")
    items = elements(node.rexpr, scope.params)
    joint = _ARRAYS[node.kind]
    # NULL instead of an array is NULL; an empty array decides even for NULL.
    return duck.NULL if items is None else _each(operator, value(node.lexpr, scope), items, joint)


def in_list(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column [NOT] IN (constants)`."""
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_IN:
        return None
    items = [constant(item, scope.params) for item in _listed(node.rexpr)]
    if any(item is None for item in items):
        raise Untranslatable("a list of expressions")
    operator = operator_name(node) or ""
    consts = [item for item in items if item is not None]
    return _each(operator, value(node.lexpr, scope), consts, " or " if operator == "=" else " and ")


def _listed(node: tree.Node | None) -> Sequence[tree.Node]:
    return node.items if isinstance(node, tree.List) else ()


def _each(operator: str, left: Value, items: Sequence[Const], joint: str) -> str:
    """Each element on its own, so that every one gets the exact treatment of a single comparison."""
    if not items:
        return _EMPTY[joint]
    if (operator, joint) in _MEMBERSHIP:
        inside = member(left, items)
        if inside is not None:
            return _MEMBERSHIP[operator, joint].replace("{}", inside)
    return duck.joined(list(dict.fromkeys(compare(operator, left, item) for item in items)), joint)


def between(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column [NOT] BETWEEN constant AND constant`."""
    if not isinstance(node, tree.A_Expr) or node.kind not in _BETWEEN:
        return None
    low, high, joint = _BETWEEN[node.kind]
    bounds = [constant(item, scope.params) for item in _listed(node.rexpr)]
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        raise Untranslatable("between expressions")
    left = value(node.lexpr, scope)
    return f"({compare(low, left, bounds[0])}{joint}{compare(high, left, bounds[1])})"
