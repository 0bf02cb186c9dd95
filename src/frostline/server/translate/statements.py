"""Which statements the server knows: SQL text in, one small value a statement out. Anything else is refused here."""

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from postgast import pg_query_pb2 as pb

from frostline.errors import UsageError
from frostline.server.translate import changes, parsing, tree
from frostline.server.translate.changes import Change
from frostline.server.translate.complexity import MAX_DEPTH, TooComplex, check_text, check_tokens, depth

_ALL = 2**63 - 1
"""How the parser writes FETCH ALL."""


_REMEMBERED, _REMEMBERED_CHARS = 512, 4_096
"""So many texts are remembered, and none that is longer: their trees take some ten megabytes at most."""
_CURSOR = re.compile(r"DECLARE \w+ CURSOR FOR\s", re.ASCII)
"""How postgres_fdw begins."""
_DEALLOCATE = re.compile(r"DEALLOCATE (pgsql_fdw_prep_\d+)", re.ASCII)
"""How it ends after each INSERT, each time with another name, so that there is nothing to remember."""


class SyntaxRefused(UsageError):
    """The text is not SQL."""

    sqlstate = "42601"


class NotServed(UsageError):
    """The SQL is fine, but nothing that the lake server does."""

    sqlstate = "0A000"


@dataclass(frozen=True)
class Begin:
    """START TRANSACTION. Lake snapshots are immutable, so every isolation level is the same to readers."""

    tag: str
    is_serializable: bool = False


@dataclass(frozen=True)
class End:
    """COMMIT or ROLLBACK."""

    tag: str


@dataclass(frozen=True)
class Savepoint:
    """SAVEPOINT, RELEASE, ROLLBACK TO; the latter heals a failed transaction."""

    tag: str
    name: str

    @property
    def heals(self) -> bool:
        """Whether it goes back to the savepoint."""
        return self.tag == "ROLLBACK"


@dataclass(frozen=True)
class SetVariable:
    """SET name = value; `value` is None for RESET and DEFAULT."""

    name: str
    value: str | None


@dataclass(frozen=True)
class Show:
    """SHOW name."""

    name: str


@dataclass(frozen=True)
class Select:
    """A query, with its own text."""

    sql: str
    node: tree.SelectStmt

    @cached_property
    def nodes(self) -> tree.Nodes:
        """All of its nodes, outermost first. A query that is remembered is walked once."""
        return tuple(tree.walk(self.node))


@dataclass(frozen=True)
class Write:
    """INSERT, UPDATE or DELETE on a lake table."""

    sql: str
    change: Change


@dataclass(frozen=True)
class Declare:
    """DECLARE name CURSOR FOR query."""

    cursor: str
    query: Select


@dataclass(frozen=True)
class Fetch:
    """FETCH or MOVE so many rows forward; `count` is None for all of them."""

    cursor: str
    count: int | None
    move: bool


@dataclass(frozen=True)
class Rewind:
    """MOVE BACKWARD ALL: to before the first row."""

    cursor: str


@dataclass(frozen=True)
class CloseCursor:
    """CLOSE name; None is ALL."""

    cursor: str | None


@dataclass(frozen=True)
class Deallocate:
    """DEALLOCATE name; None is ALL."""

    name: str | None


@dataclass(frozen=True)
class Discard:
    """DISCARD ALL."""


Statement = (
    Begin
    | End
    | Savepoint
    | SetVariable
    | Show
    | Select
    | Write
    | Declare
    | Fetch
    | Rewind
    | CloseCursor
    | Deallocate
    | Discard
)


def parameter_count(statement: Statement) -> int:
    """The highest parameter number that the statement mentions."""
    if isinstance(statement, Write) and isinstance(statement.change, changes.InsertBatch):
        return changes.parameters(statement.change)
    sql = statement.query.sql if isinstance(statement, Declare) else getattr(statement, "sql", "")
    text = sql.encode()
    tokens = [token for token in parsing.scan(sql) if token.token == pb.PARAM]
    return max((int(text[token.start + 1 : token.end]) for token in tokens), default=0)


def parse(sql: str) -> list[Statement]:
    """The statements of the text; raises SyntaxRefused, TooComplex or NotServed.

    Short texts are remembered: postgres_fdw sends the same `FETCH 1000 FROM c1` again and again, and for each row of an
    outer table the same query with other parameters. Nobody changes a tree.
    """
    deallocated = _DEALLOCATE.fullmatch(sql)
    if deallocated is not None:
        return [Deallocate(deallocated[1])]
    return list(_remembered(sql)) if len(sql) <= _REMEMBERED_CHARS else _parsed(sql)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(sql: str) -> tuple[Statement, ...]:
    return tuple(_parsed(sql))


def _parsed(sql: str) -> list[Statement]:
    """One of several is parsed again by itself, so that the locations in its tree are locations in its text."""
    batch = changes.batch(sql)
    if batch is not None:
        return [Write(sql, batch)]
    try:
        _check_size(sql)
        raw = parsing.parse_sql(sql)
    except parsing.ParseError as error:
        raise SyntaxRefused(f"syntax error: {error.message}") from None
    except parsing.TooDeep:
        raise TooComplex("the query is nested too deeply") from None
    text = sql.encode()
    if len(raw) == 1:
        return [_statement(raw[0].node, text[: raw[0].end].decode())]
    return [parsed for part in raw for parsed in _parsed(text[part.start : part.end].decode())]


def _check_size(sql: str) -> None:
    if len(sql) <= MAX_DEPTH:
        return  # it is neither deep nor large, as most are
    check_text(sql)
    tokens = parsing.scan(sql)
    check_tokens(len(tokens))
    if depth(tokens) > MAX_DEPTH:
        raise TooComplex("the query is nested too deeply")


def _statement(node: tree.Node | None, sql: str) -> Statement:
    match node:
        case tree.SelectStmt():
            return Select(sql, node)
        case tree.DeclareCursorStmt():
            return _declare(node, sql)
        case tree.FetchStmt():
            return _fetch(node)
        case tree.TransactionStmt():
            return _transaction(node)
        case _:
            change = changes.change(node, sql)
            return _session_statement(node) if change is None else Write(sql, change)


def _session_statement(node: tree.Node | None) -> Statement:
    match node:
        case tree.ClosePortalStmt():
            return CloseCursor(node.portalname or None)
        case tree.DeallocateStmt():
            return Deallocate(node.name or None)
        case tree.DiscardStmt() if node.target == pb.DISCARD_ALL:
            return Discard()
        case tree.VariableShowStmt():
            return Show(str(node.name).lower())
        case tree.VariableSetStmt():
            return _set(node)
        case _:
            words = tree.kind_name(node).removesuffix("Stmt").lower()
            raise NotServed(f"the lake server does not do {words}", hint="only SELECT on lake tables is served")


def _declare(node: tree.DeclareCursorStmt, sql: str) -> Declare:
    if not isinstance(node.query, tree.SelectStmt):
        raise NotServed("a cursor is served for SELECT only")
    usual = _CURSOR.match(sql)
    start = usual.end() if usual else next(token for token in parsing.scan(sql) if token.token == pb.FOR).end
    # Blanks keep the locations in the tree right.
    return Declare(node.portalname, Select(" " * start + sql.encode()[start:].decode(), node.query))


def _fetch(node: tree.FetchStmt) -> Fetch | Rewind:
    cursor, count = str(node.portalname), int(node.how_many or 0)
    if node.direction == pb.FETCH_FORWARD and count > 0:
        return Fetch(cursor, None if count == _ALL else count, bool(node.ismove))
    if node.direction == pb.FETCH_BACKWARD and count == _ALL and node.ismove:
        return Rewind(cursor)
    raise NotServed("cursors move forward only", hint="MOVE BACKWARD ALL starts again")


_TRANSACTION: dict[int, Statement] = {
    pb.TRANS_STMT_BEGIN: Begin("BEGIN"),
    pb.TRANS_STMT_START: Begin("START TRANSACTION"),
    pb.TRANS_STMT_COMMIT: End("COMMIT"),
    pb.TRANS_STMT_ROLLBACK: End("ROLLBACK"),
}
_SAVEPOINTS: dict[int, str] = {
    pb.TRANS_STMT_SAVEPOINT: "SAVEPOINT",
    pb.TRANS_STMT_RELEASE: "RELEASE",
    pb.TRANS_STMT_ROLLBACK_TO: "ROLLBACK",
}


def _transaction(node: tree.TransactionStmt) -> Statement:
    if node.kind in _SAVEPOINTS:
        return Savepoint(_SAVEPOINTS[node.kind], str(node.savepoint_name))
    statement = _TRANSACTION.get(node.kind)
    if statement is None:
        raise NotServed("the lake server has no two-phase commit: it never holds a change")
    if isinstance(statement, Begin):
        words = {str(part.sval) for part in tree.walk(node) if isinstance(part, tree.String)}
        return replace(statement, is_serializable="serializable" in words)
    return statement


def _set(node: tree.VariableSetStmt) -> SetVariable:
    name = str(node.name or "all").lower()
    if node.kind != pb.VAR_SET_VALUE or not node.args:
        return SetVariable(name, None)
    return SetVariable(name, ",".join(_setting(argument) for argument in node.args))


def _setting(node: tree.Node) -> str:
    value = node.val if isinstance(node, tree.A_Const) else None
    match value:
        case tree.String():
            return str(value.sval)
        case tree.Integer():
            return str(value.ival)
        case _:
            raise NotServed("the setting's value is not a plain constant")
