"""GROUP BY, and the aggregates that DuckDB computes exactly as Postgres does.

Left to Postgres: what depends on the order of the rows (sums of floats), on a linguistic collation, or on Postgres' own
division (avg).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from frostline.lake.ducktext import printed_value
from frostline.model.tables import Column
from frostline.server.protocol.backend import ResultColumn
from frostline.server.translate import duck, tree
from frostline.server.translate.compare import check_order
from frostline.server.translate.operands import INTEGERS, Untranslatable, builtin_name
from frostline.server.translate.ordering import direction, limit_clause
from frostline.server.translate.projection import TYPE_OIDS, Projection, printed
from frostline.server.translate.scope import Scope, UnknownColumn

_EXACT = ("bool", *INTEGERS, "numeric", "date", "timestamp", "timestamptz", "text", "varchar", "uuid")
"""Types where equal values are the same value. Zero and negative zero are equal, and one group cannot show both."""
_ORDERED = (*INTEGERS, "numeric", "date", "timestamp", "timestamptz")
"""Types whose smallest and largest value Postgres has a function for, and every engine agrees on."""
_SUM_DIGITS = 38 - 14
"""A sum has 38 digits in DuckDB. With so many in a value, 10^14 rows can be added."""


@dataclass(frozen=True)
class _Item:
    """One output: its value, and its text. The column behind it is None for an aggregate."""

    name: str
    type: str
    value: str
    text: str
    column: Column | None = None


def is_grouped(node: tree.SelectStmt) -> bool:
    """Whether the query may be one of groups. A function that is no aggregate is refused later."""
    return bool(node.group_clause) or any(isinstance(target.val, tree.FuncCall) for target in node.target_list or ())


def grouped(node: tree.SelectStmt, scope: Scope) -> tuple[Projection, str]:
    """The select list and what follows the relation; raises Untranslatable for what could differ."""
    targets = node.target_list or ()
    keys = list(dict.fromkeys(_key(item, targets, scope) for item in node.group_clause or ()))
    items = [_item(target, keys, scope) for target in targets]
    shown = Projection(
        tuple(ResultColumn(item.name, TYPE_OIDS[item.type]) for item in items),
        tuple(item.text for item in items),
        tuple(item.column for item in items if item.column is not None),
    )
    by = f" group by {duck.listed(duck.column(key) for key in keys)}" if keys else ""
    order = duck.listed(_sort_key(item, items, keys, scope) for item in node.sort_clause or ())
    return shown, by + (order and f" order by {order}") + limit_clause(node, scope)


def _key(node: tree.Node, targets: Sequence[tree.ResTarget], scope: Scope) -> Column:
    """The column that one item of GROUP BY names. An input column comes before an output of the same name."""
    position = _position(node, len(targets))
    column = _column(node if position is None else targets[position].val, scope)
    if column is None or column.pg_type.name not in _EXACT:
        raise Untranslatable("group by something else than a plain column")
    scope.source.value(column)
    return column


def _position(node: tree.Node | None, count: int) -> int | None:
    """Which output `2` in GROUP BY or ORDER BY stands for, counted from 0; None for what is no constant."""
    if not isinstance(node, tree.A_Const):
        return None
    number = int(node.val.ival or 0) if isinstance(node.val, tree.Integer) else 0
    if not 1 <= number <= count:
        raise Untranslatable("a constant that is no position")
    return number - 1


def _column(node: tree.Node | None, scope: Scope) -> Column | None:
    try:
        return scope.column(node)
    except UnknownColumn:
        raise Untranslatable("a name that may be an output's") from None


def _item(target: tree.ResTarget, keys: Sequence[Column], scope: Scope) -> _Item:
    if isinstance(target.val, tree.FuncCall):
        return _aggregate(target.val, target.name, scope)
    return _group(_column(target.val, scope), target.name, keys)


def _group(column: Column | None, name: str | None, keys: Sequence[Column]) -> _Item:
    if column is None or column not in keys:
        raise Untranslatable("neither a group nor an aggregate")
    return _Item(name or column.name, column.pg_type.name, duck.column(column), printed(column), column)


def _aggregate(call: tree.FuncCall, name: str | None, scope: Scope) -> _Item:
    function = builtin_name(call.funcname) or ""
    if call.agg_filter or call.agg_order or call.agg_within_group or call.over or call.func_variadic:
        raise Untranslatable("an aggregate with clauses of its own")
    if function == "count":
        return _count(call, name or function, scope)
    if function == "sum" and not call.agg_distinct:
        return _sum(name or function, _argument(call, scope))
    if function in ("min", "max") and not call.agg_distinct:
        return _extreme(name or function, function, _argument(call, scope))
    raise Untranslatable(f"function {function}")


def _argument(call: tree.FuncCall, scope: Scope) -> Column:
    arguments = call.args or ()
    column = _column(arguments[0], scope) if len(arguments) == 1 else None
    if column is None:
        raise Untranslatable("an aggregate of something else than a plain column")
    return column


def _count(call: tree.FuncCall, name: str, scope: Scope) -> _Item:
    if call.agg_star:
        return _number(name, "int8", "count(*)")
    column = _argument(call, scope)
    if not call.agg_distinct:
        return _number(name, "int8", f"count({duck.column(column)})")
    if column.pg_type.name not in _EXACT:
        raise Untranslatable(f"distinct {column.pg_type.name}")
    scope.source.value(column)
    return _number(name, "int8", f"count(distinct {duck.column(column)})")


def _sum(name: str, column: Column) -> _Item:
    pg_type, added = column.pg_type, f"sum({duck.column(column)})"
    if not column.encoding.pushable:
        raise Untranslatable(f"sum of {pg_type.name}")
    if pg_type.name in ("int2", "int4"):
        return _number(name, "int8", duck.cast(added, "bigint"))  # too large is an error here as in Postgres
    if pg_type.name == "int8" or (pg_type.name == "numeric" and (pg_type.precision or 38) <= _SUM_DIGITS):
        return _number(name, "numeric", added)
    raise Untranslatable(f"sum of {pg_type.name}")


def _extreme(name: str, function: str, column: Column) -> _Item:
    if not column.encoding.pushable or column.pg_type.name not in _ORDERED:
        raise Untranslatable(f"{function} of {column.pg_type.name}")
    value = f"{function}({duck.column(column)})"
    return _Item(name, column.pg_type.name, value, printed_value(value, column.encoding.lake_type))


def _number(name: str, pg_type: str, value: str) -> _Item:
    return _Item(name, pg_type, value, duck.cast(value, "varchar"))


def _sort_key(sort: tree.SortBy, items: Sequence[_Item], keys: Sequence[Column], scope: Scope) -> str:
    item = _sorted(sort.node, items, keys, scope)
    if sort.sortby_dir == pb.SORTBY_USING:
        raise Untranslatable("order by an operator")
    if item.column is not None:
        check_order("<", scope.source.value(item.column))
    return f"{item.value} {direction(sort)}"


def _sorted(node: tree.Node | None, items: Sequence[_Item], keys: Sequence[Column], scope: Scope) -> _Item:
    """What an item of ORDER BY stands for. An output comes before an input column of the same name."""
    position = _position(node, len(items))
    if position is not None:
        return items[position]
    if isinstance(node, tree.FuncCall):
        return _aggregate(node, None, scope)
    matches = [item for item in items if item.name == _plain_name(node)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise Untranslatable("order by a name of several outputs")
    return _group(_column(node, scope), None, keys)


def _plain_name(node: tree.Node | None) -> str | None:
    """The name that this node is, without a qualifier."""
    fields = node.fields or () if isinstance(node, tree.ColumnRef) else ()
    return str(fields[0].sval) if len(fields) == 1 and isinstance(fields[0], tree.String) else None
