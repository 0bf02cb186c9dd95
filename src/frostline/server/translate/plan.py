"""From one SELECT to what has to be done for it: a query for DuckDB alone, or one that Postgres must finish."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice

from postgast import pg_query_pb2 as pb

from frostline.model import laketypes
from frostline.model.lake_tables import RemoteLakeTable
from frostline.model.range import Range
from frostline.model.tables import Column
from frostline.server.protocol.backend import ResultColumn
from frostline.server.served_tables import ServedTables
from frostline.server.translate import changetree, duck, sampling, tree
from frostline.server.translate.conditions import condition
from frostline.server.translate.grouping import grouped, is_grouped
from frostline.server.translate.operands import INTEGERS, Const, Untranslatable, builtin_name, constant, whole_number
from frostline.server.translate.ordering import Ordered, limit_clause, order_clause, ordered
from frostline.server.translate.projection import Projection, projection
from frostline.server.translate.pruning import certain_range, tier_range
from frostline.server.translate.sampling import Sample
from frostline.server.translate.scope import (
    SNAPSHOT_COLUMN,
    Scope,
    Source,
    UnknownColumn,
    UnknownName,
    conjuncts,
    remote_table,
)
from frostline.server.translate.statements import NotServed, Select
from frostline.server.translate.values import operator_name
from frostline.server.translate.wants import Want, looked_up
from frostline.server.translate.wants import wanted as key_wants

_IN_FROM = ("RangeFunction", "RangeTableFunc", "JsonTable")


@dataclass(frozen=True)
class Scan:
    """The candidate rows of one lake table: these columns, in this tier range, for which the conditions hold."""

    source: Source
    columns: tuple[Column, ...]
    range: Range
    conditions: tuple[str, ...] = ()
    certain: Mapping[str, Range] = field(default_factory=dict[str, Range])
    """Conditions that every row with a tier value in this range fulfils: files within it need not be asked."""
    sample: Sample | None = None
    """Not all of them are wanted, if there is one."""
    wants: tuple[Want, ...] = ()
    """What is known of the key's other columns; each is one of the conditions too."""
    looked_up: tuple[Column, ...] = ()
    """Columns that must equal a constant by one of the conditions: the next query may be the same but for that."""


@dataclass(frozen=True)
class DuckPlan:
    """DuckDB answers alone: `select {outputs} from {scan} {tail}`."""

    scan: Scan
    result: tuple[ResultColumn, ...]
    outputs: tuple[str, ...]
    tail: str
    ordered: Ordered | None = None
    """Files can be read one after the other for it, and the rest left when nobody asks for more."""


@dataclass(frozen=True)
class PostgresPlan:
    """Postgres answers over temporary tables that hold the candidate rows of each scan."""

    sql: str
    params: tuple[str | None, ...]
    scans: tuple[Scan, ...]
    functions: frozenset[str] = field(default_factory=frozenset[str])
    reason: str = ""


Plan = DuckPlan | PostgresPlan


def plan(select: Select, params: tuple[str | None, ...], tables: ServedTables) -> Plan:
    """Decide how to answer; raises NotServed or UnknownName for what is not to be answered at all."""
    refuse_unserved(select.nodes)
    sources = tuple(_sources(select.nodes, params, tables))
    if not sources:
        raise NotServed("the lake server answers queries on lake tables only")
    _refuse_unknown(select.nodes, sources)
    try:
        return _duck_plan(select, sources, params)
    except (Untranslatable, RecursionError) as reason:
        return _postgres_plan(select, sources, params, str(reason))


def _sources(nodes: tree.Nodes, params: tuple[str | None, ...], tables: ServedTables) -> Iterator[Source]:
    """Every lake table that the query names anywhere, in order of appearance."""
    for select in (part for part in nodes if isinstance(part, tree.SelectStmt)):
        where = list(conjuncts(select.where_clause))
        for item in select.from_clause or ():
            for name, quals in _tables_in(item, where):
                yield _source(name, quals, params, tables)


def _tables_in(item: tree.Node | None, quals: list[tree.Node]) -> Iterator[tuple[tree.RangeVar, list[tree.Node]]]:
    """Each table in an item of FROM with the conditions that every row of it in the result fulfils."""
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


def _source(
    name: tree.RangeVar, quals: list[tree.Node], params: tuple[str | None, ...], tables: ServedTables
) -> Source:
    table, remote = remote_table(name, tables)
    alias = str(name.alias.aliasname) if name.alias else str(name.relname)
    source = Source(alias, table, remote, None, int(name.location or 0), aliased=name.alias is not None)
    pins = [pin for pin in (pinned_snapshot(qual, Scope(source, params)) for qual in quals) if pin]
    if len({pin.text for pin in pins}) > 1:
        raise NotServed("a table cannot be pinned to two snapshots at once")
    if not pins:
        return replace(source, snapshot=tables.current_snapshot(remote))
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


def _refuse_unknown(nodes: tree.Nodes, sources: Sequence[Source]) -> None:
    """Raise UnknownColumn where `table.name` is no column: in Postgres it could call a function of that name."""
    known = {(source.alias, column.name) for source in sources for column in source.table.columns}
    known |= {(source.alias, SNAPSHOT_COLUMN) for source in sources}
    aliases = {source.alias for source in sources}
    for alias, name in _columns_qualified(nodes):
        if alias in aliases and (alias, name) not in known:
            raise UnknownColumn(f"column {alias}.{name} does not exist")


def _duck_plan(select: Select, sources: tuple[Source, ...], params: tuple[str | None, ...]) -> DuckPlan:
    node = select.node
    if len(sources) != 1 or len(node.from_clause or ()) != 1:
        raise Untranslatable("several tables")
    if not isinstance((node.from_clause or (None,))[0], (tree.RangeVar, tree.RangeTableSample)):
        raise Untranslatable("not just the table itself")
    if node.having_clause or node.distinct_clause or node.window_clause or node.values_lists:
        raise Untranslatable("having, distinct or a window")
    scope = Scope(sources[0], params)
    sample, wanted = sampling.split(node, _unpinned(node, scope))
    if len(wanted) > duck.MOST_PARTS:
        raise Untranslatable("too many conditions")
    known = dict(_known(wanted, scope))
    certain = {text: where for text, where in known.items() if where is not None}
    if sample is not None and is_grouped(node):
        raise Untranslatable("groups of a sample")
    if is_grouped(node):
        shown, tail = grouped(node, scope)
    else:
        shown, tail = projection(node.target_list or (), scope), order_clause(node, scope) + limit_clause(node, scope)
    bounds = tier_range(wanted, scope), tuple(known), certain, sample, key_wants(wanted, scope)
    scan = Scan(sources[0], _needed(select.nodes, scope, shown), *bounds, looked_up(wanted, scope))
    return DuckPlan(scan, shown.result, shown.outputs, tail, ordered(node, scope) if sample is None else None)


def _known(wanted: Sequence[tree.Node], scope: Scope) -> Iterator[tuple[str, Range | None]]:
    """Each condition for DuckDB, and where it is certain; raises Untranslatable when they are too much text."""
    left = duck.MOST_TEXT
    for part in wanted:
        text = condition(part, scope)
        left -= len(text)
        if left < 0:
            raise Untranslatable("too much text")
        yield text, certain_range(part, scope)


def _needed(nodes: tree.Nodes, scope: Scope, shown: Projection) -> tuple[Column, ...]:
    names = _columns_named(nodes) | {column.name for column in shown.columns}
    return tuple(column for column in scope.source.table.columns if column.name in names)


def _unpinned(node: tree.SelectStmt, scope: Scope) -> list[tree.Node]:
    """The conditions without the pin, which the choice of files already answers."""
    return [part for part in conjuncts(node.where_clause) if pinned_snapshot(part, scope) is None]


def _postgres_plan(
    select: Select, sources: Sequence[Source], params: tuple[str | None, ...], reason: str
) -> PostgresPlan:
    if sampling.is_sampled(select.node):
        raise NotServed("a sample is served of a plain scan only")
    names = _columns_named(select.nodes)
    alone = len(sources) == 1 and isinstance((select.node.from_clause or (None,))[0], tree.RangeVar)
    scans = tuple(_candidates(select.node, Scope(source, params), names, alone=alone) for source in sources)
    return PostgresPlan(select.sql, params, scans, functions_named(select.nodes), reason)


def candidates(
    sql: str,
    node: changetree.UpdateStmt | changetree.DeleteStmt,
    params: tuple[str | None, ...],
    tables: ServedTables,
) -> PostgresPlan:
    """An UPDATE or DELETE as a query with all columns of its tables: what Postgres has to have to run it."""
    others = node.from_clause if isinstance(node, changetree.UpdateStmt) else node.using_clause
    first = (node.relation,) if node.relation is not None else ()
    everything = tree.ResTarget(val=tree.ColumnRef(fields=(tree.A_Star(),)))
    query = tree.SelectStmt(
        target_list=(everything,), from_clause=(*first, *(others or ())), where_clause=node.where_clause
    )
    nodes = (*tree.walk(query), *tree.walk(node))
    refuse_unserved(nodes)
    select = Select(sql, query)
    sources = tuple(_sources(select.nodes, params, tables))
    _refuse_unknown(nodes, sources)
    plan = _postgres_plan(select, sources, params, "a change")
    return replace(plan, functions=functions_named(nodes))


def _candidates(node: tree.SelectStmt, scope: Scope, names: frozenset[str], *, alone: bool) -> Scan:
    """Every column that the query could mean, and for a query on one table the conditions that are safe to apply."""
    table = scope.source.table
    columns = tuple(column for column in table.columns if "*" in names or column.name in names)
    wanted = list(_unpinned(node, scope)) if alone else []
    applied = tuple(islice(_translatable(wanted, scope), duck.MOST_PARTS))
    keys, by = key_wants(wanted, scope), looked_up(wanted, scope)
    return Scan(scope.source, columns, tier_range(wanted, scope), applied, wants=keys, looked_up=by)


def _translatable(nodes: Sequence[tree.Node], scope: Scope) -> Iterator[str]:
    """The conditions that DuckDB can apply, as long as they are not too much text."""
    left = duck.MOST_TEXT
    for node in nodes:
        try:
            text = condition(node, scope)
        except (Untranslatable, UnknownName, RecursionError):
            continue
        left -= len(text)
        if left < 0:
            return
        yield text


def nothing(scan: Scan) -> str:
    """A relation with the columns of the scan and no row."""
    columns = (
        f"{duck.cast('null', laketypes.duck_type(column.encoding.lake_type))} as {duck.column(column)}"
        for column in scan.columns
    )
    return f"(select {duck.listed(columns) or 'null'} where false)"


def refuse_unserved(nodes: tree.Nodes) -> None:  # noqa: C901  (a list of cases, one after the other)
    """Raise NotServed for what reads or changes anything but lake tables."""
    locked = _locked(nodes)
    for part in nodes:
        match part:
            case tree.RangeVar() if id(part) in locked:
                pass
            case tree.SelectStmt() if part.into_clause or part.with_clause:
                raise NotServed("INTO and WITH are not served by the lake server")
            case tree.SelectStmt() if part.locking_clause and not _of_lake_tables(part):
                raise NotServed("locking is not served by the lake server")
            case tree.Other() if part.kind in _IN_FROM:
                raise NotServed("functions in FROM are not served by the lake server")
            case tree.RangeVar() if part.catalogname or not part.schemaname:
                raise NotServed(f"not a lake table: {part.relname!r}", hint="name it as the foreign table does")
            case tree.RangeVar() if part.alias and part.alias.colnames:
                raise NotServed("other names for the columns of a lake table are not served")
            case tree.TypeName() if part.names and builtin_name(part.names) is None:
                raise NotServed("only types of pg_catalog are served")
            case tree.A_Indirection() if any(isinstance(step, tree.String) for step in part.indirection or ()):
                # In Postgres `('file'::text).pg_read_file` calls the function.
                raise NotServed("fields of a value are not served by the lake server")
            case tree.FuncCall() if builtin_name(part.funcname) is None:
                raise NotServed("only functions of pg_catalog are served")
            case tree.A_Expr() | tree.SubLink() | tree.SortBy() if _strange_operator(part):
                raise NotServed("only operators of pg_catalog are served")
            case _:
                pass


def _locked(nodes: tree.Nodes) -> AbstractSet[int]:
    """The names in FOR UPDATE OF, which are aliases of tables that FROM names."""
    selects = (part for part in nodes if isinstance(part, tree.SelectStmt))
    clauses = (clause for select in selects for clause in select.locking_clause or ())
    return {id(part) for clause in clauses for part in tree.walk(clause)}


def _of_lake_tables(select: tree.SelectStmt) -> bool:
    """Whether all its tables are lake tables: a session that changes rows asks for a lock, and learns at its commit."""
    tables = [part for part in tree.walk(select) if isinstance(part, tree.RangeVar)]
    return bool(tables) and all(RemoteLakeTable.find(str(table.relname)) for table in tables if table.schemaname)


def _strange_operator(part: tree.A_Expr | tree.SubLink | tree.SortBy) -> bool:
    """Whether it names an operator that somebody made: its function would run with the lake server's rights."""
    match part:
        case tree.A_Expr():
            return builtin_name(part.name) is None
        case tree.SubLink():
            return bool(part.oper_name) and builtin_name(part.oper_name) is None
        case _:
            return bool(part.use_op) and builtin_name(part.use_op) is None


def _columns_named(nodes: Sequence[tree.Node]) -> frozenset[str]:
    """The last part of every column reference; `*` when all columns, or a whole row, are meant."""
    names: set[str] = set()
    tables = [part for part in nodes if isinstance(part, tree.RangeVar)]
    aliases = {str(table.alias.aliasname if table.alias else table.relname) for table in tables}
    for part in nodes:
        if isinstance(part, tree.JoinExpr) and (part.is_natural or part.using_clause):
            names.add("*")
        if isinstance(part, tree.ColumnRef):
            *qualifiers, last = part.fields or ("*",)
            name = str(last.sval) if isinstance(last, tree.String) else "*"
            names.add("*" if name in aliases and not qualifiers else name)
    return frozenset(names)


def _columns_qualified(nodes: Iterable[tree.Node]) -> Iterator[tuple[str, str]]:
    """Qualifier and column of every reference that has both."""
    for part in nodes:
        if isinstance(part, tree.ColumnRef):
            names = [str(field.sval) for field in part.fields or () if isinstance(field, tree.String)]
            if len(names) == 2:
                yield names[0], names[1]


def functions_named(nodes: Iterable[tree.Node]) -> frozenset[str]:
    """The name of every function that is called."""
    calls = (part for part in nodes if isinstance(part, tree.FuncCall))
    return frozenset(builtin_name(call.funcname) or "" for call in calls)
