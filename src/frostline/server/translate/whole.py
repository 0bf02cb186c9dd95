"""Looking over a whole query: what it names, and what in it is never served."""

from collections.abc import Iterator
from typing import Any

from pglast import ast

from frostline.server.translate.operands import builtin_name
from frostline.server.translate.statements import NotServed


def walk(node: object) -> Iterator[ast.Node]:
    """The node and everything below it, outermost first. No recursion: a query may be deeper than Python's stack."""
    waiting: list[Any] = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Node):
            yield item
            waiting += [getattr(item, name) for name in reversed(list(item))]
        elif isinstance(item, (tuple, list)):
            waiting += reversed(item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def refuse_unserved(node: ast.SelectStmt) -> None:  # noqa: C901  (a list of cases, one after the other)
    """Raise NotServed for what reads or changes anything but lake tables."""
    for part in walk(node):
        match part:
            case ast.SelectStmt() if part.lockingClause or part.intoClause or part.withClause:
                raise NotServed("locking, INTO and WITH are not served by the lake server")
            case ast.RangeFunction() | ast.RangeTableFunc() | ast.JsonTable():
                raise NotServed("functions in FROM are not served by the lake server")
            case ast.RangeVar() if part.catalogname or not part.schemaname:
                raise NotServed(f"not a lake table: {part.relname!r}", hint="name it as the foreign table does")
            case ast.RangeVar() if part.alias and part.alias.colnames:
                raise NotServed("other names for the columns of a lake table are not served")
            case ast.TypeName() if part.names and builtin_name(part.names) is None:
                raise NotServed("only types of pg_catalog are served")
            case ast.A_Indirection() if any(isinstance(step, ast.String) for step in part.indirection or ()):
                # In Postgres `('file'::text).pg_read_file` calls the function.
                raise NotServed("fields of a value are not served by the lake server")
            case ast.FuncCall() if builtin_name(part.funcname) is None:
                raise NotServed("only functions of pg_catalog are served")
            case ast.A_Expr() | ast.SubLink() | ast.SortBy() if _strange_operator(part):
                raise NotServed("only operators of pg_catalog are served")
            case _:
                pass


def _strange_operator(part: ast.A_Expr | ast.SubLink | ast.SortBy) -> bool:
    """Whether it names an operator that somebody made: its function would run with the lake server's rights."""
    match part:
        case ast.A_Expr():
            return builtin_name(part.name) is None
        case ast.SubLink():
            return bool(part.operName) and builtin_name(part.operName) is None
        case _:
            return bool(part.useOp) and builtin_name(part.useOp) is None


def columns_named(node: ast.SelectStmt) -> frozenset[str]:
    """The last part of every column reference; `*` when all columns, or a whole row, are meant."""
    names: set[str] = set()
    tables = [part for part in walk(node) if isinstance(part, ast.RangeVar)]
    aliases = {str(table.alias.aliasname if table.alias else table.relname) for table in tables}
    for part in walk(node):
        if isinstance(part, ast.JoinExpr) and (part.isNatural or part.usingClause):
            names.add("*")
        if isinstance(part, ast.ColumnRef):
            *qualifiers, last = part.fields or ("*",)
            name = str(last.sval) if isinstance(last, ast.String) else "*"
            names.add("*" if name in aliases and not qualifiers else name)
    return frozenset(names)


def columns_qualified(node: ast.SelectStmt) -> Iterator[tuple[str, str]]:
    """Qualifier and column of every reference that has both."""
    for part in walk(node):
        if isinstance(part, ast.ColumnRef):
            names = [str(field.sval) for field in part.fields or () if isinstance(field, ast.String)]
            if len(names) == 2:
                yield names[0], names[1]


def functions_named(node: ast.SelectStmt) -> frozenset[str]:
    """The name of every function that is called."""
    calls = (part for part in walk(node) if isinstance(part, ast.FuncCall))
    return frozenset(builtin_name(call.funcname) or "" for call in calls)
