"""Conditions: the tuple of rules, tried in order. A rule answers with DuckDB SQL, or None when it is not its form.

A rule raises Untranslatable when the form is its own but the meaning could differ; then Postgres evaluates the
whole condition. There is no rule that is almost right.
"""

from collections.abc import Callable

from postgast import pg_query_pb2 as pb

from frostline.server.translate import duck, tree
from frostline.server.translate.operands import Untranslatable
from frostline.server.translate.rules.booleans import boolean_column, boolean_constant
from frostline.server.translate.rules.comparison import comparison
from frostline.server.translate.rules.like import like
from frostline.server.translate.rules.lists import array, between, in_list
from frostline.server.translate.rules.nulls import distinct, null_test
from frostline.server.translate.scope import Scope

Rule = Callable[[tree.Node, Scope], str | None]

_TESTS: dict[int, str] = {
    pb.IS_TRUE: "coalesce({}, false)",
    pb.IS_NOT_TRUE: "(not coalesce({}, false))",
    pb.IS_FALSE: "(not coalesce({}, true))",
    pb.IS_NOT_FALSE: "coalesce({}, true)",
    pb.IS_UNKNOWN: "({} is null)",
    pb.IS_NOT_UNKNOWN: "({} is not null)",
}


def connective(node: tree.Node, scope: Scope) -> str | None:
    """The rule for AND, OR and NOT. Three-valued logic is the same on both sides."""
    if not isinstance(node, tree.BoolExpr):
        return None
    parts = [condition(part, scope) for part in node.args or ()]
    if node.boolop == pb.NOT_EXPR:
        return f"(not {parts[0]})"
    return duck.joined(parts, " and " if node.boolop == pb.AND_EXPR else " or ")


def boolean_test(node: tree.Node, scope: Scope) -> str | None:
    """The rule for IS [NOT] TRUE, FALSE and UNKNOWN."""
    if not isinstance(node, tree.BooleanTest) or node.arg is None:
        return None
    return _TESTS[node.booltesttype].replace("{}", condition(node.arg, scope))


RULES: tuple[Rule, ...] = (
    connective,
    comparison,
    null_test,
    array,
    in_list,
    between,
    like,
    distinct,
    boolean_test,
    boolean_column,
    boolean_constant,
)


def condition(node: tree.Node, scope: Scope) -> str:
    """The condition in DuckDB; raises Untranslatable when no rule knows it."""
    for rule in RULES:
        found = rule(node, scope)
        if found is not None:
            return found
    raise Untranslatable(f"no rule for {tree.kind_name(node)}")
