"""Array constants: `'{1,2,NULL}'::integer[]` and `ARRAY[1, 2]`."""

import re

from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Const, Untranslatable, constant, type_name

_SPACE = " \t\n\r\v\f"
"""What Postgres ignores around an element; other blanks, such as the no-break space, belong to it."""
_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",{}\\]+(?:\s+[^\s",{}\\]+)*))\s*(,|\Z)', re.DOTALL | re.ASCII)


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
