"""Which values of the primary key's other columns a query can want, so that files without any of them are not opened.

The tier key has `pruning`: files are found by it. A look-up by `id` alone names no tier value, but an id that was given
out in order is in one file or two, and the manifests have the smallest and the largest of each file.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from postgast import pg_query_pb2 as pb

from frostline.model.lake_tables import ServedTable
from frostline.model.range import Range
from frostline.model.tables import Column, KeyField, LakeFile
from frostline.model.tiers import BY_TYPNAME
from frostline.model.types import Collation
from frostline.server.translate import tree
from frostline.server.translate.compare import UUID
from frostline.server.translate.operands import Const, Untranslatable, constant
from frostline.server.translate.pruning import comparison_range, tier_number
from frostline.server.translate.scope import Scope
from frostline.server.translate.values import elements, operator_name

_TEXTS = {"text": (None, "text", "varchar"), "varchar": (None, "text", "varchar"), "uuid": (None, "uuid")}
"""Types that are stored as text and are equal when their bytes are, and the types of constants that may be compared."""


@dataclass(frozen=True)
class OneOf:
    """The column has one of these values, which are sorted."""

    field_id: int
    values: tuple[int, ...] | tuple[bytes, ...]

    def may_be_in(self, file: LakeFile) -> bool:
        """Whether the file may hold such a row."""
        known = file.bounds(self.field_id)
        if known is None:
            return True
        values = cast("tuple[Any, ...]", self.values)  # all numbers or all texts, as the bounds are
        place = bisect_left(values, known.lower)
        return place < len(values) and bool(values[place] <= known.upper)


@dataclass(frozen=True)
class Within:
    """The column lies in the range."""

    field_id: int
    range: Range

    def may_be_in(self, file: LakeFile) -> bool:
        """Whether the file may hold such a row."""
        known = file.bounds(self.field_id)
        if known is None or isinstance(known.lower, bytes) or isinstance(known.upper, bytes):
            return True
        return self.range.overlaps(Range.closed(known.lower, known.upper))


Want = OneOf | Within


def key_fields(table: ServedTable) -> tuple[KeyField, ...]:
    """The columns whose bounds are of use here."""
    return tuple(field for column in _key_columns(table) if (field := _field(column)) is not None)


def _key_columns(table: ServedTable) -> list[Column]:
    tier = table.tier and table.tier.name
    return [column for column in table.columns if column.name in table.bounded and column.name != tier]


def _field(column: Column) -> KeyField | None:
    if not column.encoding.pushable or not column.pg_type.builtin or column.collation is Collation.NONDETERMINISTIC:
        return None
    if is_number(column):
        return KeyField(column.field_id, is_number=True)
    return KeyField(column.field_id, is_number=False) if column.pg_type.name in _TEXTS else None


def is_number(column: Column) -> bool:
    """Whether its values have an axis."""
    return column.pg_type.builtin and column.encoding.pushable and column.pg_type.name in BY_TYPNAME


def looked_up(conditions: Iterable[tree.Node], scope: Scope) -> tuple[Column, ...]:
    """The columns that these conditions, which must all hold, want one value of."""
    return tuple(dict.fromkeys(column for node in conditions if (column := _equalled(node, scope)) is not None))


def _equalled(node: tree.Node, scope: Scope) -> Column | None:
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_OP or operator_name(node) != "=":
        return None
    for side, other in ((node.lexpr, node.rexpr), (node.rexpr, node.lexpr)):
        if isinstance(side, tree.ColumnRef) and constant(other, scope.params) is not None:
            name = scope.name(side)
            return next((column for column in scope.source.table.columns if column.name == name), None)
    return None


def wanted(conditions: Iterable[tree.Node], scope: Scope) -> tuple[Want, ...]:
    """What these conditions, which must all hold, say of the key. Too little is safe, too much never happens."""
    columns = {column.name: column for column in _key_columns(scope.source.table)}
    return tuple(_wants(conditions, columns, scope)) if columns else ()


def _wants(conditions: Iterable[tree.Node], columns: dict[str, Column], scope: Scope) -> Iterator[Want]:
    for node in conditions:
        sides = (node.lexpr, node.rexpr) if isinstance(node, tree.A_Expr) else ()
        names = [name for side in sides if (name := scope.name(side)) in columns]
        if isinstance(node, tree.A_Expr) and names and _field(columns[names[0]]) is not None:
            want = _known(node, columns[names[0]], scope)
            if want is not None:
                yield want


def _known(node: tree.A_Expr, column: Column, scope: Scope) -> Want | None:
    try:
        return _of_condition(node, column, scope)
    except (Untranslatable, RecursionError):
        return None


def _of_condition(node: tree.A_Expr, column: Column, scope: Scope) -> Want:
    if node.kind == pb.AEXPR_OP_ANY and operator_name(node) == "=" and scope.name(node.lexpr) == column.name:
        return _one_of(column, elements(node.rexpr, scope.params) or ())
    if node.kind != pb.AEXPR_OP:
        raise Untranslatable("not a comparison")
    if operator_name(node) == "=":
        other = node.rexpr if scope.name(node.lexpr) == column.name else node.lexpr
        const = constant(other, scope.params)
        return _one_of(column, () if const is None else (const,))
    if not is_number(column):
        raise Untranslatable("not a number")
    return Within(column.field_id, comparison_range(node, column.name, BY_TYPNAME[column.pg_type.name], scope))


def _one_of(column: Column, items: Iterable[Const]) -> OneOf:
    """NULL equals nothing; no item at all is not something to conclude from."""
    consts = [item for item in items if item.text is not None]
    if not consts:
        raise Untranslatable("no constant")
    if is_number(column):
        kind = BY_TYPNAME[column.pg_type.name]
        return OneOf(column.field_id, tuple(sorted({tier_number(item, kind) for item in consts})))
    return OneOf(column.field_id, tuple(sorted({_bytes(column, item) for item in consts})))


def _bytes(column: Column, const: Const) -> bytes:
    text = const.text or ""
    if const.type not in _TEXTS[column.pg_type.name]:
        raise Untranslatable("another type")
    if column.pg_type.name == "uuid":
        text = text.lower()
        if not UUID.fullmatch(text):
            raise Untranslatable("not a canonical uuid")
    return text.encode()
