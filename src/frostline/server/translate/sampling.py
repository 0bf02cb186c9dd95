"""The samples that ANALYZE of a foreign table asks for: TABLESAMPLE, or `random() < fraction`."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.model.tables import LakeFile
from frostline.server.translate import tree
from frostline.server.translate.operands import Const, Untranslatable, builtin_name, constant
from frostline.server.translate.values import operator_name

_FRACTION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,30})?(?:[eE]-?[0-9]{1,3})?")
FILES_ENOUGH = 500
"""A sample of files has at least so many. With fewer, a column whose values are alike within a file would look as if
it had few values."""


@dataclass(frozen=True)
class Sample:
    """About this fraction of the rows is wanted."""

    fraction: float
    of_files: bool = False
    """TABLESAMPLE SYSTEM: not every file need be looked at, as with the pages of a heap."""


def split(node: tree.SelectStmt, conditions: list[tree.Node]) -> tuple[Sample | None, list[tree.Node]]:
    """The wanted sample of the rows, if it is one, and the conditions that are left."""
    item = (node.from_clause or (None,))[0]
    if isinstance(item, tree.RangeTableSample):
        return Sample(_percent(item) / 100, builtin_name(item.method) == "system"), conditions
    for position, part in enumerate(conditions):
        fraction = _below_random(part)
        if fraction is not None:
            return Sample(fraction), conditions[:position] + conditions[position + 1 :]
    return None, conditions


def drawn(files: list[LakeFile], sample: Sample | None) -> tuple[list[LakeFile], tuple[str, ...]]:
    """The files to read, and the condition that keeps as many of their rows as are wanted of all.

    Each file is as likely as any other, and they are spread evenly over the tier key.
    """
    if sample is None:
        return files, ()
    count = max(FILES_ENOUGH, math.ceil(sample.fraction * len(files)))
    if not sample.of_files or count >= len(files):
        return files, _condition(sample.fraction)
    step, start = len(files) / count, random.random()
    chosen = [files[int((number + start) * step)] for number in range(count)]
    return chosen, _condition(min(1.0, sample.fraction * _rows(files) / max(1, _rows(chosen))))


def _rows(files: Sequence[LakeFile]) -> int:
    return sum(file.rows for file in files)


def _condition(fraction: float) -> tuple[str, ...]:
    """Row by row."""
    return (f"random() < {fraction:.17f}",)


def is_sampled(node: tree.SelectStmt) -> bool:
    """Whether FROM has a TABLESAMPLE."""
    return any(isinstance(item, tree.RangeTableSample) for item in node.from_clause or ())


def _percent(item: tree.RangeTableSample) -> float:
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


def _below_random(node: tree.Node) -> float | None:
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_OP or operator_name(node) != "<":
        return None
    call = node.lexpr
    if not isinstance(call, tree.FuncCall) or builtin_name(call.funcname) != "random" or call.args:
        return None
    return _number(constant(node.rexpr, ()))
