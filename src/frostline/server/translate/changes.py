"""INSERT, UPDATE and DELETE as postgres_fdw sends them, on lake tables: SQL text and tree in, a small value out.

What changes one row by its `ctid` is told apart from what finds its rows by a condition. A batch of INSERT is read
without the parser: it has tens of thousands of parameters, and its text says nothing that its first row does not.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from postgast import pg_query_pb2 as pb

from frostline.errors import UsageError
from frostline.model.lake_tables import ROW_COLUMN, RemoteLakeTable
from frostline.server.protocol.parameters import Many
from frostline.server.translate import changetree, tree
from frostline.server.translate.values import operator_name

_INSERT = re.compile(r"INSERT INTO (\w+)\.lake_(\d+)\(([^()]*)\) VALUES \(", re.ASCII)
_DELETE = "DELETE FROM "
REQUESTS = "requests"
"""The table of the lake server in which rows are requests to make or drop a lake table."""
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([a-z_][a-z0-9_$]*))\s*(?:,|$)', re.ASCII)


class ChangeRefused(UsageError):
    """A change that the lake server does not make."""

    sqlstate = "0A000"


@dataclass(frozen=True)
class Insert:
    """INSERT ... VALUES. `values` has the number of the parameter in each place, from 0, and None for NULL."""

    schema: str
    """That the foreign table names."""
    table_id: int
    columns: tuple[str, ...]
    rows: tuple[tuple[int | None, ...], ...]
    returning: tuple[str, ...]


@dataclass(frozen=True)
class InsertBatch:
    """INSERT of rows whose values are all parameters, in their order."""

    schema: str
    table_id: int
    columns: tuple[str, ...]
    count: int
    returning: tuple[str, ...] = ()
    given: Many | None = field(default=None, compare=False)
    """The values, once they have come and are many."""


@dataclass(frozen=True)
class UpdateRow:
    """UPDATE ... WHERE ctid = $n. `values` are the parameters that the columns get; None for NULL."""

    table_id: int
    columns: tuple[str, ...]
    values: tuple[int | None, ...]
    row: int
    returning: tuple[str, ...]


@dataclass(frozen=True)
class DeleteRow:
    """DELETE ... WHERE ctid = $n."""

    table_id: int
    row: int
    returning: tuple[str, ...]


@dataclass(frozen=True)
class ChangeRows:
    """UPDATE or DELETE of the rows for which a condition holds, perhaps with other tables beside."""

    table_id: int
    sql: str
    node: changetree.UpdateStmt | changetree.DeleteStmt
    returning: tuple[str, ...]

    @property
    def is_update(self) -> bool:
        """UPDATE."""
        return isinstance(self.node, changetree.UpdateStmt)

    @property
    def is_plain_delete(self) -> bool:
        """DELETE of one table without RETURNING: its text is that of a query, but for the first words."""
        is_plain = isinstance(self.node, changetree.DeleteStmt) and not self.node.using_clause and not self.returning
        return is_plain and self.sql.startswith(_DELETE)

    def as_query(self) -> str:
        """The query for the rows that a plain DELETE deletes."""
        return "SELECT ctid FROM " + self.sql.removeprefix(_DELETE)  # noqa: S608  (it is parsed and planned again)


@dataclass(frozen=True)
class Request:
    """A row for the table of requests: a lake table is to be made or dropped. Both are parameters."""

    table_id: int
    """The parameter with the lake table's number."""
    text: int
    """The parameter with what is to be done, in JSON."""
    returning: tuple[str, ...] = ()


Change = Request | Insert | InsertBatch | UpdateRow | DeleteRow | ChangeRows


def tag(change: Change, count: int) -> str:
    """What the client is told."""
    match change:
        case Insert() | InsertBatch() | Request():
            return f"INSERT 0 {count}"
        case UpdateRow():
            return f"UPDATE {count}"
        case DeleteRow():
            return f"DELETE {count}"
        case _:
            return f"{'UPDATE' if change.is_update else 'DELETE'} {count}"


def batch(sql: str) -> InsertBatch | None:
    """A batch of INSERT, if the text is one to the last character; None for any other text."""
    head = _INSERT.match(sql)
    columns = _names(head[3]) if head else None
    if head is None or not columns:
        return None
    width = len(columns)
    last = re.search(r"\$(\d+)\)$", sql)
    if last is None or int(last[1]) % width:
        return None
    count = int(last[1]) // width
    return InsertBatch(head[1], int(head[2]), columns, count) if sql[head.end() :] == _rows(width, count) else None


@lru_cache(maxsize=32)
def _rows(width: int, count: int) -> str:
    """The text of so many rows of parameters. COPY sends batches of a few hundred, each of a slightly other size."""
    rows = (", ".join(f"${row * width + place}" for place in range(1, width + 1)) for row in range(count))
    return "), (".join(rows) + ")"


def _names(text: str) -> tuple[str, ...] | None:
    names, position = list[str](), 0
    while position < len(text):
        match = _NAME.match(text, position)
        if match is None:
            return None
        names.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
    return tuple(names)


def change(node: tree.Node | None, sql: str) -> Change | None:
    """What the statement does to a lake table; None for a statement of another kind. ChangeRefused for odd ones."""
    match node:
        case changetree.InsertStmt():
            is_request = node.relation is not None and node.relation.relname == REQUESTS
            return _request(node) if is_request else _insert(node)
        case changetree.UpdateStmt() | changetree.DeleteStmt():
            return _changed(node, sql)
        case _:
            return None


def _target(relation: tree.RangeVar | None) -> int:
    known = RemoteLakeTable.find(str(relation.relname)) if relation is not None else None
    if known is None:
        raise ChangeRefused("only lake tables can be written at the lake server", hint="write to the table in Postgres")
    return known.lake_table_id


def _insert(node: changetree.InsertStmt) -> Insert:
    values = node.select_stmt
    columns = tuple(str(column.name) for column in node.cols or ())
    if values is None:
        return Insert(_schema(node), _target(node.relation), (), ((),), _returning(node.returning_clause))
    if not isinstance(values, tree.SelectStmt) or not values.values_lists or _has_with(node):
        raise ChangeRefused("the lake server takes INSERT with VALUES only", hint="insert into the foreign table")
    rows = tuple(_value_row(row) for row in values.values_lists)
    return Insert(_schema(node), _target(node.relation), columns, rows, _returning(node.returning_clause))


def _schema(node: changetree.InsertStmt) -> str:
    return str(node.relation.schemaname) if node.relation is not None else ""


def _request(node: changetree.InsertStmt) -> Request:
    rows = node.select_stmt.values_lists if isinstance(node.select_stmt, tree.SelectStmt) else ()
    names = [str(column.name) for column in node.cols or ()]
    values = [_value_row(row) for row in rows or ()]
    if names != ["lake_table", "request"] or len(values) != 1 or len(values[0]) != 2 or None in values[0]:
        raise ChangeRefused("a request has a lake table and a text", hint="select frostline.create_lake_table(...)")
    number, text = values[0]
    assert number is not None
    assert text is not None
    return Request(number, text)


def _has_with(node: tree.Node) -> bool:
    return any(tree.kind_name(part) == "WithClause" for part in node.rest)


def _value_row(row: tree.Node | None) -> tuple[int | None, ...]:
    return tuple(_parameter(item) for item in (row.items or ())) if isinstance(row, tree.List) else ()


def _parameter(node: tree.Node | None) -> int | None:
    if isinstance(node, changetree.SetToDefault) or (isinstance(node, tree.A_Const) and node.isnull):
        return None
    if isinstance(node, tree.ParamRef):
        return int(node.number) - 1
    raise ChangeRefused("the lake server takes values as parameters only", hint="insert into the foreign table")


def _changed(node: changetree.UpdateStmt | changetree.DeleteStmt, sql: str) -> Change:
    table_id, returning = _target(node.relation), _returning(node.returning_clause)
    if node.with_clause is not None:
        raise ChangeRefused("WITH is not served by the lake server")
    row = _row_parameter(node.where_clause)
    others = node.from_clause if isinstance(node, changetree.UpdateStmt) else node.using_clause
    if row is None or others:
        return ChangeRows(table_id, sql, node, returning)
    if isinstance(node, changetree.DeleteStmt):
        return DeleteRow(table_id, row, returning)
    targets = node.target_list or ()
    if not all(isinstance(target.val, (tree.ParamRef, changetree.SetToDefault)) for target in targets):
        return ChangeRows(table_id, sql, node, returning)
    columns = tuple(str(target.name) for target in targets)
    return UpdateRow(table_id, columns, tuple(_parameter(target.val) for target in targets), row, returning)


def _row_parameter(where: tree.Node | None) -> int | None:
    """The parameter of `ctid = $n`; None for any other condition."""
    if not isinstance(where, tree.A_Expr) or where.kind != pb.AEXPR_OP or operator_name(where) != "=":
        return None
    column, value = where.lexpr, where.rexpr
    if not isinstance(column, tree.ColumnRef) or not isinstance(value, tree.ParamRef):
        return None
    return int(value.number) - 1 if _column_name(column) == ROW_COLUMN.name else None


def _column_name(column: tree.ColumnRef) -> str:
    last = (column.fields or (None,))[-1]
    return str(last.sval) if isinstance(last, tree.String) else "*"


def _returning(clause: changetree.ReturningClause | None) -> tuple[str, ...]:
    names = list[str]()
    for target in clause.exprs if clause is not None else ():
        value = target.val
        if isinstance(value, tree.ColumnRef):
            names.append(_column_name(value))
        elif isinstance(value, tree.A_Const) and value.isnull:
            names.append("")
        else:
            raise ChangeRefused("RETURNING is served of columns only")
    return tuple(names)


def parameters(change: Change) -> int:
    """How many the statement has, for a change whose text need not be read for it."""
    return change.count * len(change.columns) if isinstance(change, InsertBatch) else 0
