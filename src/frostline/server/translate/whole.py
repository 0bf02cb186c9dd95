"""Looking over a whole query: what it names, and what in it is never served."""

from collections.abc import Iterator
from typing import Any

from pglast import ast

from frostline.server.translate.operands import builtin_name
from frostline.server.translate.statements import NotServed


def walk(node: object) -> Iterator[ast.Node]:
    """The node and everything below it, outermost first."""
    if isinstance(node, ast.Node):
        yield node
        for name in node:
            yield from walk(getattr(node, name))
    elif isinstance(node, (tuple, list)):
        items: tuple[Any, ...] = tuple(node)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for item in items:
            yield from walk(item)


def refuse_unserved(node: ast.SelectStmt) -> None:
    """Raise NotServed for what reads or changes anything but lake tables."""
    for part in walk(node):
        match part:
            case ast.SelectStmt() if part.lockingClause or part.intoClause or part.withClause:
                raise NotServed("locking, INTO and WITH are not served by the lake server")
            case ast.RangeFunction() | ast.RangeTableFunc() | ast.JsonTable():
                raise NotServed("functions in FROM are not served by the lake server")
            case ast.RangeVar() if part.catalogname or not part.schemaname:
                raise NotServed(f"not a lake table: {part.relname!r}", hint="name it as the foreign table does")
            case ast.FuncCall() if builtin_name(part.funcname) is None:
                raise NotServed("only functions of pg_catalog are served")
            case ast.A_Expr() if builtin_name(part.name) is None:
                raise NotServed("only operators of pg_catalog are served")
            case _:
                pass


def columns_named(node: ast.SelectStmt) -> frozenset[str]:
    """The last part of every column reference; `*` when all columns, or a whole row, are meant."""
    names: set[str] = set()
    aliases = {part.alias.aliasname for part in walk(node) if isinstance(part, ast.RangeVar) and part.alias}
    for part in walk(node):
        if isinstance(part, ast.ColumnRef):
            *qualifiers, last = part.fields or ("*",)
            name = str(last.sval) if isinstance(last, ast.String) else "*"
            names.add("*" if name in aliases and not qualifiers else name)
    return frozenset(names)


def functions_named(node: ast.SelectStmt) -> frozenset[str]:
    """The name of every function that is called."""
    calls = (part for part in walk(node) if isinstance(part, ast.FuncCall))
    return frozenset(builtin_name(call.funcname) or "" for call in calls)
