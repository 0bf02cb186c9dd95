"""column op constant, constant op column, column op column."""

from postgast import pg_query_pb2 as pb

from frostline.model.types import Collation
from frostline.server.translate import tree
from frostline.server.translate.compare import FLIPPED, OPERATORS, check_order, compare
from frostline.server.translate.operands import INTEGERS, Untranslatable, Value, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import operator_name, value

_TEXTS = ("text", "varchar")
_SAME = {"bool", "date", "timestamp", "timestamptz", "bytea", "uuid"}


def comparison(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `=`, `<>`, `<`, `<=`, `>` and `>=`."""
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_OP:
        return None
    operator = operator_name(node)
    if operator not in OPERATORS or node.lexpr is None:
        return None
    left, right = constant(node.lexpr, scope.params), constant(node.rexpr, scope.params)
    if right is not None and left is None:
        return compare(operator, value(node.lexpr, scope), right)
    if left is not None and right is None:
        return compare(FLIPPED[operator], value(node.rexpr, scope), left)
    if left is None and right is None:
        return two_values(operator, value(node.lexpr, scope), value(node.rexpr, scope))
    raise Untranslatable("two constants")


def two_values(operator: str, left: Value, right: Value) -> str:
    """Two columns against each other, of types that DuckDB compares without rounding."""
    if not _comparable(left, right):
        raise Untranslatable(f"{left.type} {operator} {right.type}")
    check_order(operator, left)
    return f"({left.sql} {operator} {right.sql})"


def _comparable(left: Value, right: Value) -> bool:
    if left.type in _TEXTS and right.type in _TEXTS:
        return (left.collation, left.collation_name) == (right.collation, right.collation_name)
    if left.type in INTEGERS and right.type in INTEGERS:
        return True
    if left.type == right.type == "numeric":
        whole = max(left.precision - left.scale, right.precision - right.scale)
        return whole + max(left.scale, right.scale) <= 38
    return left.type == right.type and left.type in _SAME and left.collation is Collation.NONE
