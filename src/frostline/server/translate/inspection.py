"""Looking over a whole query, given as all of its nodes: what it names, and what in it is never served."""

from collections.abc import Iterable, Iterator, Sequence

from frostline.server.translate import tree
from frostline.server.translate.operands import builtin_name
from frostline.server.translate.statements import NotServed

_IN_FROM = ("RangeFunction", "RangeTableFunc", "JsonTable")


def refuse_unserved(nodes: Iterable[tree.Node]) -> None:  # noqa: C901  (a list of cases, one after the other)
    """Raise NotServed for what reads or changes anything but lake tables."""
    for part in nodes:
        match part:
            case tree.SelectStmt() if part.locking_clause or part.into_clause or part.with_clause:
                raise NotServed("locking, INTO and WITH are not served by the lake server")
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


def _strange_operator(part: tree.A_Expr | tree.SubLink | tree.SortBy) -> bool:
    """Whether it names an operator that somebody made: its function would run with the lake server's rights."""
    match part:
        case tree.A_Expr():
            return builtin_name(part.name) is None
        case tree.SubLink():
            return bool(part.oper_name) and builtin_name(part.oper_name) is None
        case _:
            return bool(part.use_op) and builtin_name(part.use_op) is None


def columns_named(nodes: Sequence[tree.Node]) -> frozenset[str]:
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


def columns_qualified(nodes: Iterable[tree.Node]) -> Iterator[tuple[str, str]]:
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
