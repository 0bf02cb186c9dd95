"""Which tier values a query can want, so that files outside are never opened."""

from collections.abc import Iterable, Sequence

from postgast import pg_query_pb2 as pb

from frostline.model.range import Range
from frostline.model.tables import TierKey
from frostline.model.tiers import TierKind
from frostline.server.translate import tree
from frostline.server.translate.compare import FLIPPED, axis, fraction
from frostline.server.translate.operands import INTEGERS, Const, Untranslatable, constant, whole_number
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import elements, operator_name


def tier_range(conditions: Iterable[tree.Node], scope: Scope) -> Range:
    """What the foreign table and these conditions leave over; too wide is safe, too narrow never happens."""
    left = scope.source.remote.range
    for node in conditions:
        try:
            left = left.clip(_of_condition(node, scope))
        except (Untranslatable, RecursionError):
            continue
    return left


def certain_range(node: tree.Node, scope: Scope) -> Range | None:
    """Every row whose tier key lies in this range fulfils the condition; None where that is not known.

    The tier key is a part of the primary key, so it is never NULL.
    """
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_OP:
        return None
    try:
        return _of_comparison(node, scope)
    except Untranslatable:
        return None


def _of_condition(node: tree.Node, scope: Scope) -> Range:
    if not isinstance(node, tree.A_Expr):
        raise Untranslatable("not a comparison")
    tier = _tier(scope)
    if node.kind == pb.AEXPR_OP_ANY and scope.name(node.lexpr) == tier.name and operator_name(node) == "=":
        return _hull(elements(node.rexpr, scope.params) or (), tier.kind)
    if node.kind == pb.AEXPR_OP:
        return _of_comparison(node, scope)
    raise Untranslatable("not a comparison")


def _of_comparison(node: tree.A_Expr, scope: Scope) -> Range:
    """Exactly the tier values that fulfil it."""
    tier = _tier(scope)
    return comparison_range(node, tier.name, tier.kind, scope)


def _tier(scope: Scope) -> TierKey:
    tier = scope.source.table.tier
    if tier is None:
        raise Untranslatable("no tier key")
    return tier


def comparison_range(node: tree.A_Expr, name: str, kind: TierKind, scope: Scope) -> Range:
    """Exactly the values of the column of that name, whose type is of this kind, that fulfil the comparison."""
    operator = operator_name(node) or ""
    if scope.name(node.lexpr) == name:
        return _range(operator, tier_number(constant(node.rexpr, scope.params), kind))
    if scope.name(node.rexpr) == name:
        return _range(FLIPPED.get(operator, ""), tier_number(constant(node.lexpr, scope.params), kind))
    raise Untranslatable("not on that column")


def _range(operator: str, at: int) -> Range:
    """The range of `key operator at`."""
    match operator:
        case "=":
            return Range.closed(at, at)
        case "<":
            return Range(None, at)
        case "<=":
            return Range(None, at + 1)
        case ">":
            return Range(at + 1, None)
        case ">=":
            return Range(at, None)
        case _:
            raise Untranslatable(operator)


def tier_number(const: Const | None, kind: TierKind) -> int:
    """A constant on the axis; raises Untranslatable for one of another type."""
    if const is None or const.text is None:
        raise Untranslatable("not a constant")
    if kind.is_time:
        if const.type not in (None, kind.typname):
            raise Untranslatable("another type")
        return axis(kind.typname, const.text)
    if const.type is not None and const.type not in INTEGERS:
        raise Untranslatable("another type")
    integer = whole_number(const.text)
    if integer is not None and abs(integer) < INTEGERS[const.type or "int8"]:
        return integer  # long lists are mostly of such
    return int(fraction(Const(const.type or "int8", const.text)))


def _hull(items: Sequence[Const], kind: TierKind) -> Range:
    numbers = [tier_number(item, kind) for item in items if item.text is not None]
    if not numbers:
        raise Untranslatable("no element")
    return Range.closed(min(numbers), max(numbers))
