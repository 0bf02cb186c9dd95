"""Conditions: the tuple of rules, tried in order. A rule answers with DuckDB SQL, or None when it is not its form.

A rule raises Untranslatable when the form is its own but the meaning could differ; then Postgres evaluates the
whole condition. There is no rule that is almost right.
"""

from collections.abc import Callable, Sequence

from postgast import pg_query_pb2 as pb

from frostline.lake import ducksql
from frostline.model.types import Collation
from frostline.server.translate import duck, tree
from frostline.server.translate.compare import FLIPPED, OPERATORS, check_order, compare, member
from frostline.server.translate.operands import INTEGERS, Const, Untranslatable, Value, constant
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import elements, operator_name, value

Rule = Callable[[tree.Node, Scope], str | None]

_TEXTS = ("text", "varchar")
_SAME = {"bool", "date", "timestamp", "timestamptz", "bytea", "uuid"}
_LIKE = {"~~": "like", "!~~": "not like"}
_ARRAYS: dict[int, str] = {pb.AEXPR_OP_ANY: " or ", pb.AEXPR_OP_ALL: " and "}
_EMPTY = {" or ": "false", " and ": "true"}
_MEMBERSHIP = {("=", " or "): "{}", ("<>", " and "): "(not {})"}
_BETWEEN: dict[int, tuple[str, str, str]] = {
    pb.AEXPR_BETWEEN: (">=", "<=", " and "),
    pb.AEXPR_NOT_BETWEEN: ("<", ">", " or "),
}
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
        integral_digits = max(left.precision - left.scale, right.precision - right.scale)
        return integral_digits + max(left.scale, right.scale) <= 38
    return left.type == right.type and left.type in _SAME and left.collation is Collation.NONE


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


def like(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column ~~ pattern` and `column !~~ pattern`, which is what [NOT] LIKE is called inside."""
    if not isinstance(node, tree.A_Expr) or node.kind not in (pb.AEXPR_OP, pb.AEXPR_LIKE):
        return None
    word, pattern = _LIKE.get(operator_name(node) or ""), constant(node.rexpr, scope.params)
    if word is None:
        return None
    left = value(node.lexpr, scope)
    if left.type not in _TEXTS or left.collation is Collation.NONDETERMINISTIC:
        raise Untranslatable(f"like on {left.type}")
    if pattern is None or pattern.type not in (None, *_TEXTS):
        raise Untranslatable("like with an expression")
    if pattern.text is None:
        return duck.NULL
    if (len(pattern.text) - len(pattern.text.rstrip("\\"))) % 2:
        # Postgres raises an error, but only when the match gets that far.
        raise Untranslatable("a pattern that ends with its escape character")
    escape = " escape '\\'" if "\\" in pattern.text else ""
    return f"({left.sql} {word} {ducksql.literal(pattern.text)}{escape})"


def distinct(node: tree.Node, scope: Scope) -> str | None:
    """The rule for `column IS [NOT] DISTINCT FROM constant`."""
    kinds = (pb.AEXPR_DISTINCT, pb.AEXPR_NOT_DISTINCT)
    if not isinstance(node, tree.A_Expr) or node.kind not in kinds:
        return None
    const = constant(node.rexpr, scope.params)
    if const is None:
        raise Untranslatable("distinct from an expression")
    left = value(node.lexpr, scope)
    same = f"({left.sql} is null)" if const.text is None else f"coalesce({compare('=', left, const)}, false)"
    return f"(not {same})" if node.kind == pb.AEXPR_DISTINCT else same


def boolean_test(node: tree.Node, scope: Scope) -> str | None:
    """The rule for IS [NOT] TRUE, FALSE and UNKNOWN."""
    if not isinstance(node, tree.BooleanTest) or node.arg is None:
        return None
    return _TESTS[node.booltesttype].replace("{}", condition(node.arg, scope))


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
        translated = rule(node, scope)
        if translated is not None:
            return translated
    raise Untranslatable(f"no rule for {tree.kind_name(node)}")
