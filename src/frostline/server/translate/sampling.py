"""The samples that ANALYZE of a foreign table asks for: TABLESAMPLE, or `random() < fraction`."""

import re

from pglast import ast
from pglast.enums import A_Expr_Kind

from frostline.server.translate.operands import Const, Untranslatable, builtin_name, constant
from frostline.server.translate.values import operator_name

_FRACTION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,30})?(?:[eE]-?[0-9]{1,3})?")


def split(node: ast.SelectStmt, conditions: list[ast.Node]) -> tuple[float | None, list[ast.Node]]:
    """The wanted fraction of the rows, if it is a sample, and the conditions that are left."""
    item = (node.fromClause or (None,))[0]
    if isinstance(item, ast.RangeTableSample):
        return _percent(item) / 100, conditions
    for position, part in enumerate(conditions):
        fraction = _below_random(part)
        if fraction is not None:
            return fraction, conditions[:position] + conditions[position + 1 :]
    return None, conditions


def condition(fraction: float | None) -> tuple[str, ...]:
    """Row by row sampling: the same for BERNOULLI and SYSTEM, because a lake has no pages worth sampling."""
    return () if fraction is None else (f"random() < {fraction:.17f}",)


def is_sampled(node: ast.SelectStmt) -> bool:
    """Whether FROM has a TABLESAMPLE."""
    return any(isinstance(item, ast.RangeTableSample) for item in node.fromClause or ())


def _percent(item: ast.RangeTableSample) -> float:
    method = builtin_name(item.method)
    arguments = item.args or ()
    const = constant(arguments[0], ()) if len(arguments) == 1 else None
    if method not in ("bernoulli", "system") or item.repeatable or const is None or const.text is None:
        raise Untranslatable("a sample of another kind")
    percent = _number(const)
    if percent is None or percent > 100:
        raise Untranslatable("a sample of another size")
    return percent


def _number(const: Const | None) -> float | None:
    text = const.text if const is not None else None
    return float(text) if text is not None and _FRACTION.fullmatch(text) else None


def _below_random(node: ast.Node) -> float | None:
    if not isinstance(node, ast.A_Expr) or node.kind != A_Expr_Kind.AEXPR_OP or operator_name(node) != "<":
        return None
    call = node.lexpr
    if not isinstance(call, ast.FuncCall) or builtin_name(call.funcname) != "random" or call.args:
        return None
    return _number(constant(node.rexpr, ()))
