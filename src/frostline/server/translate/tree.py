"""The parser's tree as plain values: one small class a kind of node that the rules know, `Other` for the rest.

The names are those of Postgres' own structs, in lower case. Nothing of the parser's tree is left out: a field that a
class here does not have is in `rest`, so that whoever walks the tree sees every node of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A node. Lists are empty and values None, 0 or '' where the text says nothing."""

    rest: "Sequence[Node | None]" = ()
    """What is below this node in fields that its class does not have."""

    def children(self) -> "list[Node]":
        """The nodes right below this one, in the order of the parser's fields."""
        below: list[Node] = []
        for name in branches(type(self)):
            value: Node | Sequence[Node | None] | None = getattr(self, name)
            if isinstance(value, Node):
                below.append(value)
            elif value:
                below += [item for item in value if item is not None]
        return below


Nodes = Sequence[Node]


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, outermost first. No recursion: a query may be deeper than Python's stack."""
    waiting = [node]
    while waiting:
        item = waiting.pop()
        yield item
        waiting += reversed(item.children())


@dataclass(slots=True, eq=False)
class Other(Node):
    """A kind of node that no rule knows; what it holds is in `rest`."""

    kind: str = ""


@dataclass(slots=True, eq=False)
class Integer(Node):
    """An int4."""

    ival: int = 0


@dataclass(slots=True, eq=False)
class Float(Node):
    """A number that is no int4, as it was written."""

    fval: str = ""


@dataclass(slots=True, eq=False)
class Boolean(Node):
    """TRUE or FALSE."""

    boolval: bool = False


@dataclass(slots=True, eq=False)
class String(Node):
    """A string, or one part of a name."""

    sval: str = ""


@dataclass(slots=True, eq=False)
class BitString(Node):
    """B'1' or X'f'."""

    bsval: str = ""


@dataclass(slots=True, eq=False)
class List(Node):
    """A list that stands where a node may stand, as that of IN."""

    items: Nodes = ()


@dataclass(slots=True, eq=False)
class A_Const(Node):  # noqa: N801  (Postgres' name, as those below)
    """A constant; `val` is None for NULL."""

    isnull: bool = False
    val: Node | None = None


@dataclass(slots=True, eq=False)
class A_Star(Node):  # noqa: N801
    """`*`."""


@dataclass(slots=True, eq=False)
class A_Expr(Node):  # noqa: N801
    """An operator and its operands; `kind` says which form: `a = b`, IN, LIKE, = ANY."""

    kind: int = 0
    name: Nodes = ()
    lexpr: Node | None = None
    rexpr: Node | None = None


@dataclass(slots=True, eq=False)
class A_ArrayExpr(Node):  # noqa: N801
    """ARRAY[...]."""

    elements: Nodes = ()


@dataclass(slots=True, eq=False)
class A_Indirection(Node):  # noqa: N801
    """A subscript or a field of a value."""

    arg: Node | None = None
    indirection: Nodes = ()


@dataclass(slots=True, eq=False)
class Alias(Node):
    """AS name (columns)."""

    aliasname: str = ""
    colnames: Nodes = ()


@dataclass(slots=True, eq=False)
class BoolExpr(Node):
    """AND, OR, NOT."""

    boolop: int = 0
    args: Nodes = ()


@dataclass(slots=True, eq=False)
class BooleanTest(Node):
    """IS TRUE and its like."""

    arg: Node | None = None
    booltesttype: int = 0


@dataclass(slots=True, eq=False)
class ColumnRef(Node):
    """A column's name, of one or more parts."""

    fields: Nodes = ()


@dataclass(slots=True, eq=False)
class FuncCall(Node):
    """A call of a function or an aggregate."""

    funcname: Nodes = ()
    args: Nodes = ()
    agg_order: Nodes = ()
    agg_filter: Node | None = None
    over: Node | None = None
    agg_within_group: bool = False
    agg_star: bool = False
    agg_distinct: bool = False
    func_variadic: bool = False


@dataclass(slots=True, eq=False)
class JoinExpr(Node):
    """JOIN."""

    jointype: int = 0
    is_natural: bool = False
    larg: Node | None = None
    rarg: Node | None = None
    using_clause: Nodes = ()
    quals: Node | None = None


@dataclass(slots=True, eq=False)
class NullTest(Node):
    """IS [NOT] NULL."""

    arg: Node | None = None
    nulltesttype: int = 0


@dataclass(slots=True, eq=False)
class ParamRef(Node):
    """$1."""

    number: int = 0


@dataclass(slots=True, eq=False)
class RangeTableSample(Node):
    """TABLESAMPLE."""

    relation: Node | None = None
    method: Nodes = ()
    args: Nodes = ()
    repeatable: Node | None = None


@dataclass(slots=True, eq=False)
class RangeVar(Node):
    """A table's name."""

    catalogname: str = ""
    schemaname: str = ""
    relname: str = ""
    alias: Alias | None = None
    location: int = 0
    """Where the name begins in the text, in bytes of UTF-8."""


@dataclass(slots=True, eq=False)
class ResTarget(Node):
    """An item of the select list."""

    name: str = ""
    val: Node | None = None


@dataclass(slots=True, eq=False)
class SelectStmt(Node):
    """SELECT, VALUES, and what UNION and its like make of two."""

    distinct_clause: Sequence[Node | None] = ()
    """Plain DISTINCT is a list with nothing in its one place."""
    into_clause: Node | None = None
    target_list: Sequence[ResTarget] = ()
    from_clause: Nodes = ()
    where_clause: Node | None = None
    group_clause: Nodes = ()
    having_clause: Node | None = None
    window_clause: Nodes = ()
    values_lists: Nodes = ()
    sort_clause: "Sequence[SortBy]" = ()
    limit_offset: Node | None = None
    limit_count: Node | None = None
    limit_option: int = 0
    locking_clause: Nodes = ()
    with_clause: Node | None = None
    larg: Node | None = None
    rarg: Node | None = None


@dataclass(slots=True, eq=False)
class SortBy(Node):
    """An item of ORDER BY."""

    node: Node | None = None
    sortby_dir: int = 0
    sortby_nulls: int = 0
    use_op: Nodes = ()


@dataclass(slots=True, eq=False)
class SubLink(Node):
    """A subquery in an expression."""

    testexpr: Node | None = None
    oper_name: Nodes = ()
    subselect: Node | None = None


@dataclass(slots=True, eq=False)
class TypeName(Node):
    """A type's name."""

    names: Nodes = ()
    setof: bool = False
    pct_type: bool = False
    typmods: Nodes = ()
    array_bounds: Nodes = ()


@dataclass(slots=True, eq=False)
class TypeCast(Node):
    """`arg::type_name`."""

    arg: Node | None = None
    type_name: TypeName | None = None


@dataclass(slots=True, eq=False)
class ClosePortalStmt(Node):
    """CLOSE; no name is ALL."""

    portalname: str = ""


@dataclass(slots=True, eq=False)
class DeallocateStmt(Node):
    """DEALLOCATE; no name is ALL."""

    name: str = ""


@dataclass(slots=True, eq=False)
class DeclareCursorStmt(Node):
    """DECLARE CURSOR."""

    portalname: str = ""
    query: Node | None = None


@dataclass(slots=True, eq=False)
class DiscardStmt(Node):
    """DISCARD."""

    target: int = 0


@dataclass(slots=True, eq=False)
class FetchStmt(Node):
    """FETCH or MOVE."""

    direction: int = 0
    how_many: int = 0
    portalname: str = ""
    ismove: bool = False


@dataclass(slots=True, eq=False)
class TransactionStmt(Node):
    """BEGIN, COMMIT, SAVEPOINT and their like."""

    kind: int = 0
    savepoint_name: str = ""


@dataclass(slots=True, eq=False)
class VariableSetStmt(Node):
    """SET or RESET."""

    kind: int = 0
    name: str = ""
    args: Nodes = ()


@dataclass(slots=True, eq=False)
class VariableShowStmt(Node):
    """SHOW."""

    name: str = ""


def kind_name(node: object) -> str:
    """What Postgres calls such a node."""
    return node.kind if isinstance(node, Other) else type(node).__name__


@cache
def names(kind: type[Node]) -> tuple[str, ...]:
    """The fields of such a node, `rest` excepted."""
    return tuple(field.name for field in fields(kind) if field.name != "rest")


@cache
def branches(kind: type[Node]) -> tuple[str, ...]:
    """The fields of such a node that may hold other nodes."""
    return (
        *(field.name for field in fields(kind) if field.name != "rest" and field.type not in (str, int, bool)),
        "rest",
    )


KINDS = {name: kind for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, Node)}
"""The classes above by name, which is the parser's."""
