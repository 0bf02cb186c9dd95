"""The lake tables of a query, each at its snapshot: the one that `frostline_snapshot = N` pins, or the current one."""

from collections.abc import Iterator
from dataclasses import replace

from postgast import pg_query_pb2 as pb

from frostline.server.lake_tables import LakeTables
from frostline.server.translate import tree
from frostline.server.translate.operands import INTEGERS, Const, constant, whole_number
from frostline.server.translate.scope import SNAPSHOT_COLUMN, Scope, Source, conjuncts, remote_table
from frostline.server.translate.statements import NotServed
from frostline.server.translate.values import operator_name
from frostline.server.translate.whole import walk


def sources(node: tree.SelectStmt, params: tuple[str | None, ...], tables: LakeTables) -> Iterator[Source]:
    """Every lake table that the query names anywhere, in order of appearance."""
    for select in walk(node):
        if isinstance(select, tree.SelectStmt):
            for name, quals in _from_items(select):
                yield _source(name, quals, params, tables)


def _from_items(select: tree.SelectStmt) -> Iterator[tuple[tree.RangeVar, list[tree.Node]]]:
    """Each table of one FROM clause with the conditions that every row of it in the result fulfils."""
    where = list(conjuncts(select.where_clause))
    for item in select.from_clause or ():
        yield from _tables_in(item, where)


def _tables_in(item: tree.Node | None, quals: list[tree.Node]) -> Iterator[tuple[tree.RangeVar, list[tree.Node]]]:
    match item:
        case tree.RangeVar():
            yield item, quals
        case tree.RangeTableSample():
            yield from _tables_in(item.relation, quals)
        case tree.JoinExpr():
            own = list(conjuncts(item.quals))
            left_keeps = item.jointype in (pb.JOIN_LEFT, pb.JOIN_FULL)
            right_keeps = item.jointype in (pb.JOIN_RIGHT, pb.JOIN_FULL)
            yield from _tables_in(item.larg, quals if left_keeps else quals + own)
            yield from _tables_in(item.rarg, quals if right_keeps else quals + own)
        case _:
            return


def _source(name: tree.RangeVar, quals: list[tree.Node], params: tuple[str | None, ...], tables: LakeTables) -> Source:
    table, remote = remote_table(name, tables)
    alias = str(name.alias.aliasname) if name.alias else str(name.relname)
    source = Source(alias, table, remote, None, int(name.location or 0), aliased=name.alias is not None)
    pins = [pin for pin in (pinned_snapshot(qual, Scope(source, params)) for qual in quals) if pin]
    if len({pin.text for pin in pins}) > 1:
        raise NotServed("a table cannot be pinned to two snapshots at once")
    if not pins:
        return replace(source, snapshot=tables.current_snapshot(table.id))
    return replace(source, snapshot=None if pins[0].text is None else int(pins[0].text))


def pinned_snapshot(node: tree.Node, scope: Scope) -> Const | None:
    """The constant of `frostline_snapshot = constant`, None for any other condition."""
    if not isinstance(node, tree.A_Expr) or node.kind != pb.AEXPR_OP or operator_name(node) != "=":
        return None
    for column, other in ((node.lexpr, node.rexpr), (node.rexpr, node.lexpr)):
        const = constant(other, scope.params)
        if scope.name(column) == SNAPSHOT_COLUMN and const is not None and _is_integer(const):
            return const
    return None


def _is_integer(const: Const) -> bool:
    if const.type is not None and const.type not in INTEGERS:
        return False
    return const.text is None or whole_number(const.text) is not None
