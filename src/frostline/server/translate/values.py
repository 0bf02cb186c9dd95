"""Values in a query: expressions over columns, and array constants.

Of expressions: the column, casts that change nothing, integer arithmetic that cannot fail. Arrays are
`'{1,2,NULL}'::integer[]` and `ARRAY[1, 2]`.
"""

import re
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from frostline.server.translate import duck, tree
from frostline.server.translate.operands import (
    INTEGERS,
    Const,
    Untranslatable,
    Value,
    builtin_name,
    constant,
    type_name,
    whole_number,
)
from frostline.server.translate.scope import Scope

_DIVISIONS = {"%": "%", "/": "//"}
"""DuckDB's `/` is not integer division. Both engines cut towards zero."""
_SPACE = " \t\n\r\v\f"
"""What Postgres ignores around an element; other blanks, such as the no-break space, belong to it."""
_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",{}\\]+(?:\s+[^\s",{}\\]+)*))\s*(,|\Z)', re.DOTALL | re.ASCII)


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


def elements(node: object, params: tuple[str | None, ...]) -> list[Const] | None:
    """The elements of a one-dimensional array constant, None for a NULL array; raises Untranslatable for others."""
    if isinstance(node, tree.A_ArrayExpr):
        items = _listed(node, params)
        if not items or any(item.type != items[0].type or item.type is None for item in items):
            raise Untranslatable("an array of several types")
        return items
    if isinstance(node, tree.TypeCast) and isinstance(node.arg, tree.A_ArrayExpr):
        return _retyped(_listed(node.arg, params), type_name(node.type_name))
    const = constant(node, params)
    if const is None or const.type is None or not const.type.endswith("[]"):
        raise Untranslatable("not an array constant")
    if const.text is None:
        return None
    element_type = const.type.removesuffix("[]")
    return [Const(element_type, text) for text in split(const.text)]


def _listed(node: tree.A_ArrayExpr, params: tuple[str | None, ...]) -> list[Const]:
    items = [constant(item, params) for item in node.elements or ()]
    if any(item is None for item in items):
        raise Untranslatable("an array of expressions")
    return [item for item in items if item is not None]


def _retyped(items: list[Const], array_type: str | None) -> list[Const]:
    """The elements of `ARRAY[...]::type[]`, where every element is of that type or has none yet."""
    element_type = (array_type or "").removesuffix("[]")
    if not (array_type or "").endswith("[]") or any(item.type not in (None, element_type) for item in items):
        raise Untranslatable("an array that is cast")
    return [Const(element_type, item.text) for item in items]


def split(text: str) -> list[str | None]:
    """The elements of array text; raises Untranslatable for nested arrays and explicit bounds."""
    if not (text.startswith("{") and text.endswith("}")):
        raise Untranslatable("not plain array text")
    inside, position = text[1:-1], 0
    items: list[str | None] = []
    if inside.count(",") >= duck.MOST_ELEMENTS:
        raise Untranslatable("too many elements")
    while inside.strip(_SPACE):
        element = _ELEMENT.match(inside, position)
        if not element:
            raise Untranslatable("not plain array text")
        items.append(_item(element))
        position = element.end()
        if not element[3]:
            break
    return items


def _item(element: re.Match[str]) -> str | None:
    quoted, bare = element[1], element[2]
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    return None if bare.upper() == "NULL" else bare
