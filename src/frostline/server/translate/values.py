"""Scalar expressions over columns: the column, casts that change nothing, integer arithmetic that cannot fail."""

from dataclasses import replace

from postgast import pg_query_pb2 as pb

from frostline.server.translate import tree
from frostline.server.translate.operands import (
    INTEGERS,
    Untranslatable,
    Value,
    builtin_name,
    constant,
    type_name,
    whole_number,
)
from frostline.server.translate.scope import Scope


def operator_name(node: tree.A_Expr) -> str | None:
    """The operator, if it is one of Postgres' own."""
    return builtin_name(node.name)


def value(node: object, scope: Scope) -> Value:
    """The node as a typed DuckDB expression; raises Untranslatable for anything that is not known to be the same."""
    column = scope.column(node)
    if column is not None:
        return scope.source.value(column)
    match node:
        case tree.TypeCast():
            return _widened(value(node.arg, scope), type_name(node.type_name))
        case tree.A_Expr() if node.kind == pb.AEXPR_OP:
            return _division(node, scope)
        case _:
            raise Untranslatable(tree.kind_name(node))


def _widened(inner: Value, target: str | None) -> Value:
    if target == inner.type or (inner.type, target) == ("varchar", "text"):
        return replace(inner, type=target)
    if inner.type in INTEGERS and target in INTEGERS and INTEGERS[inner.type] <= INTEGERS[target]:
        return replace(inner, type=target)
    raise Untranslatable(f"cast from {inner.type} to {target}")


_DIVISIONS = {"%": "%", "/": "//"}
"""DuckDB's `/` is not integer division. Both engines cut towards zero."""


def _division(node: tree.A_Expr, scope: Scope) -> Value:
    operator = operator_name(node)
    divisor = constant(node.rexpr, scope.params)
    if operator not in _DIVISIONS or divisor is None or divisor.text is None:
        raise Untranslatable(f"operator {operator}")
    dividend = value(node.lexpr, scope)
    if dividend.type not in INTEGERS:
        raise Untranslatable(f"{dividend.type} {operator}")
    result = max(dividend.type, divisor.type or dividend.type, key=lambda name: INTEGERS.get(name, 0))
    number = whole_number(divisor.text) or 0
    if (divisor.type or dividend.type) not in INTEGERS or number <= 0:
        # Zero fails, and the smallest integer divided by -1 overflows: Postgres says so best.
        raise Untranslatable("divisor")
    return Value(f"({dividend.sql} {_DIVISIONS[operator]} {number})", result)
