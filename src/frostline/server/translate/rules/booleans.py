"""A boolean column by itself, and boolean constants."""

from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Untranslatable, constant
from frostline.server.translate.scope import Scope


def boolean_column(node: tree.Node, scope: Scope) -> str | None:
    """The rule for a boolean column as a condition."""
    column = scope.column(node)
    if column is None:
        return None
    if column.pg_type.name != "bool":
        raise Untranslatable("a column that is not boolean")
    return scope.source.value(column).sql


def boolean_constant(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `true`, `false` and NULL."""
    const = constant(node, scope.params)
    if const is None:
        return None
    if const.text is None:
        return duck.NULL
    if const.type != "bool" or const.text not in ("t", "f"):
        raise Untranslatable("a constant that is not boolean")
    return "true" if const.text == "t" else "false"
