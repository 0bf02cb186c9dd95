"""[NOT] LIKE, with Postgres' backslash as the escape character."""

from postgast import pg_query_pb2 as pb

from frostline.lake import ducksql
from frostline.model.types import Collation
from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Untranslatable, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import operator_name, value

_WORDS = {"~~": "like", "!~~": "not like"}


def like(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column ~~ pattern` and `column !~~ pattern`, which is what LIKE is called inside."""
    if not isinstance(node, tree.A_Expr) or node.kind not in (pb.AEXPR_OP, pb.AEXPR_LIKE):
        return None
    word, pattern = _WORDS.get(operator_name(node) or ""), constant(node.rexpr, scope.params)
    if word is None:
        return None
    left = value(node.lexpr, scope)
    if left.type not in ("text", "varchar") or left.collation is Collation.NONDETERMINISTIC:
        raise Untranslatable(f"like on {left.type}")
    if pattern is None or pattern.type not in (None, "text", "varchar"):
        raise Untranslatable("like with an expression")
    return duck.NULL if pattern.text is None else _with_pattern(left.sql, word, pattern.text)


def _with_pattern(sql: str, word: str, pattern: str) -> str:
    if "\\" not in pattern:
        return f"({sql} {word} {ducksql.literal(pattern)})"
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        # Postgres raises an error, but only when the match gets that far.
        raise Untranslatable("a pattern that ends with its escape character")
    return f"({sql} {word} {ducksql.literal(pattern)} escape '\\')"
