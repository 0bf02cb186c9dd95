"""Array constants: `'{1,2,NULL}'::integer[]` and `ARRAY[1, 2]`."""

import re

from pglast import ast

from frostline.server.translate.operands import Const, Untranslatable, constant

_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",{}\\]+(?:\s+[^\s",{}\\]+)*))\s*(,|$)', re.DOTALL)


def elements(node: ast.Node | None, params: tuple[str | None, ...]) -> list[Const] | None:
    """The elements of a one-dimensional array constant, None for a NULL array; raises Untranslatable for others."""
    if isinstance(node, ast.A_ArrayExpr):
        return _listed(node, params)
    const = constant(node, params)
    if const is None or const.type is None or not const.type.endswith("[]"):
        raise Untranslatable("not an array constant")
    if const.text is None:
        return None
    element_type = const.type.removesuffix("[]")
    return [Const(element_type, text) for text in split(const.text)]


def _listed(node: ast.A_ArrayExpr, params: tuple[str | None, ...]) -> list[Const]:
    items = [constant(item, params) for item in node.elements or ()]
    if not items or any(item is None or item.type is None for item in items):
        raise Untranslatable("an array of expressions")
    return [item for item in items if item is not None]


def split(text: str) -> list[str | None]:
    """The elements of array text; raises Untranslatable for nested arrays and explicit bounds."""
    if not (text.startswith("{") and text.endswith("}")):
        raise Untranslatable("not plain array text")
    inside, position = text[1:-1], 0
    items: list[str | None] = []
    while inside.strip():
        found = _ELEMENT.match(inside, position)
        if not found:
            raise Untranslatable("not plain array text")
        items.append(_item(found))
        position = found.end()
        if not found[3]:
            break
    return items


def _item(found: re.Match[str]) -> str | None:
    quoted, bare = found[1], found[2]
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    return None if bare.upper() == "NULL" else bare
