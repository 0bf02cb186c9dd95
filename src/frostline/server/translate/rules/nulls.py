"""IS NULL, IS NOT NULL, IS [NOT] DISTINCT FROM."""

from postgast import pg_query_pb2 as pb

from frostline.server.translate import duck, tree
from frostline.server.translate.compare import compare
from frostline.server.translate.operands import Const, Untranslatable, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import value


def null_test(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column IS [NOT] NULL`, whatever the column's type, unless it could be a row of NULLs."""
    if not isinstance(node, tree.NullTest):
        return None
    column = scope.column(node.arg)
    if column is None:
        raise Untranslatable("null test of an expression")
    if not column.pg_type.builtin:
        raise Untranslatable("null test of what may be a row")
    word = "is null" if node.nulltesttype == pb.IS_NULL else "is not null"
    return f"({duck.column(column)} {word})"


def distinct(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column IS [NOT] DISTINCT FROM constant`."""
    kinds = (pb.AEXPR_DISTINCT, pb.AEXPR_NOT_DISTINCT)
    if not isinstance(node, tree.A_Expr) or node.kind not in kinds:
        return None
    const = constant(node.rexpr, scope.params)
    if const is None:
        raise Untranslatable("distinct from an expression")
    same = _same(node.lexpr, const, scope)
    return f"(not {same})" if node.kind == pb.AEXPR_DISTINCT else same


def _same(node: object, const: Const, scope: Scope) -> str:
    left = value(node, scope)
    if const.text is None:
        return f"({left.sql} is null)"
    return f"coalesce({compare('=', left, const)}, false)"
