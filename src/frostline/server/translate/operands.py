"""The two things that conditions compare: constants as Postgres typed them, and values computed from columns."""

import re
from dataclasses import dataclass

from frostline.errors import UsageError
from frostline.model.types import Collation
from frostline.server.translate import tree

INTEGERS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
"""Integer types, with the first magnitude that does not fit."""
_FLOATS = {"float4", "float8"}
_NUMBERS = {*INTEGERS, *_FLOATS, "numeric"}
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class UnboundParameter(UsageError):
    """A parameter without a value."""

    sqlstate = "42P02"


class Untranslatable(Exception):
    """Not known to mean the same in DuckDB; Postgres has to evaluate it. Says why, for the log."""


@dataclass(frozen=True)
class Const:
    """A constant: its text as Postgres prints it (None is NULL), and its type (None: takes the other side's)."""

    type: str | None
    text: str | None


@dataclass(frozen=True)
class Value:
    """A DuckDB expression whose value has this Postgres type."""

    sql: str
    type: str
    precision: int = 0
    scale: int = 0
    collation: Collation = Collation.NONE
    collation_name: str | None = None


def constant(node: object, params: tuple[str | None, ...]) -> Const | None:
    """The constant that this node is, or None when it is something else."""
    match node:
        case tree.A_Const():
            return _literal(node)
        case tree.ParamRef():
            number = int(node.number or 0)
            if not 1 <= number <= len(params):
                raise UnboundParameter(f"there is no parameter ${number}")
            return Const(None, params[number - 1])
        case tree.TypeCast():
            inner = constant(node.arg, params)
            return None if inner is None else _cast(inner, node.type_name)
        case _:
            return None


def _literal(node: tree.A_Const) -> Const | None:
    if node.isnull:
        return Const(None, None)
    match node.val:
        case tree.Integer():
            return Const("int4", str(node.val.ival))
        case tree.Float():
            text = str(node.val.fval)  # a number that is no int4: bigint if it fits, else numeric
            return Const("numeric" if whole_number(text) is None else "int8", text)
        case tree.Boolean():
            return Const("bool", "t" if node.val.boolval else "f")
        case tree.String():
            return Const(None, str(node.val.sval))
        case _:
            return None


def whole_number(text: str) -> int | None:
    """The bigint that the text is, written plainly; None for anything else."""
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def builtin_name(parts: tree.Nodes) -> str | None:
    """The name of something of Postgres' own, from the parser's list of name parts; None when it lies elsewhere."""
    names = [part.sval for part in parts if isinstance(part, tree.String)]
    if len(names) == 2 and names[0] == "pg_catalog":
        return names[1]
    return names[0] if len(names) == 1 else None


def type_name(node: tree.TypeName | None) -> str | None:
    """The built-in type of a cast, `name` or `name[]`; None for any other and for one with a modifier."""
    if node is None or node.typmods or node.setof or node.pct_type:
        return None
    name = builtin_name(node.names)
    return None if name is None else name + ("[]" if node.array_bounds else "")


def _cast(inner: Const, node: tree.TypeName | None) -> Const | None:
    target = type_name(node)
    if target is None:
        return None
    if inner.type is None or inner.type == target or inner.text is None:
        return Const(target, inner.text)
    if target in INTEGERS and inner.type in INTEGERS:
        return Const(target, inner.text) if _fits(inner.text, target) else None
    if target in _NUMBERS and inner.type in INTEGERS:
        return Const(target, inner.text)
    if target in _FLOATS and inner.type == "numeric":
        return Const(target, inner.text)
    return None


def _fits(text: str, integer: str) -> bool:
    number = whole_number(text)
    return number is not None and -INTEGERS[integer] <= number < INTEGERS[integer]
