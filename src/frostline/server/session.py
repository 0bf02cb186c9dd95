"""One client's session after login: messages in, answer bytes out. Waits for nothing but the engine."""

import logging
import threading
from collections.abc import Iterator

from frostline.errors import FrostlineError, UsageError
from frostline.server import answers
from frostline.server.execution import Bytes, Execution
from frostline.server.portals import Interruptible, Portal
from frostline.server.protocol import backend, rows
from frostline.server.protocol.frontend import (
    Bind,
    Close,
    Describe,
    Execute,
    Flush,
    Later,
    Parse,
    ProtocolError,
    Query,
    Sync,
)
from frostline.server.queries import Backend, Params
from frostline.server.session_state import MAX_NAMED, NoSuchThing, Prepared, Savepoints, given, with_types
from frostline.server.translate import changes, statements
from frostline.server.translate.statements import NotServed, Statement
from frostline.server.writes.definitions import Mark
from frostline.server.writes.writer import Done, Writer, names_lake_tables

_log = logging.getLogger(__name__)


class FailedTransaction(UsageError):
    """Nothing but the end of the transaction is accepted after an error in it."""

    sqlstate = "25P02"


class Session:
    """State of one client: transaction, cursors, prepared statements, portals."""

    def __init__(self, shared: Backend) -> None:
        self._shared = shared
        self._status = "I"
        self._is_serializable = False
        self._cursors: dict[str, Portal] = {}
        self._savepoints = Savepoints()
        self._prepared = Prepared()
        self._portals: dict[str, Execution] = {}
        self._skipping = False
        self._lock = threading.Lock()
        self._running: Interruptible | None = None
        self._writer = None if shared.lake is None else Writer(shared, shared.lake)

    def receive(self, message: Later) -> Iterator[Bytes]:
        """Answer one message. Errors become answers; only a broken protocol raises."""
        if isinstance(message, Sync):
            self._skipping = False
            yield backend.ready(self._status)
            return
        if self._skipping:
            return
        try:
            yield from self._answer(message)
        except FrostlineError as error:
            self._skipping = not isinstance(message, Query)
            yield self._failed(error)
        if isinstance(message, Query):
            yield backend.ready(self._status)

    def _failed(self, error: FrostlineError) -> bytes:
        if self._writer is not None:
            error = self._writer.transaction.explained(error)
        if self._status == "T":
            self._status = "E"
        _log.warning("query failed sqlstate=%s error=%r", error.sqlstate, error.message)
        return backend.error(error.sqlstate, error.message, error.hint)

    def _answer(self, message: Later) -> Iterator[Bytes]:
        match message:
            case Query():
                yield from self._query(message.sql)
            case Parse():
                yield self._parse(message)
            case Bind():
                yield self._bind(message)
            case Describe():
                yield from self._describe(message)
            case Execute():
                yield from self._execute(message)
            case Close():
                yield self._close(message)
            case Flush():
                return
            case _:
                raise ProtocolError(f"unexpected {type(message).__name__}")

    def _query(self, sql: str) -> Iterator[Bytes]:
        parsed = self._parsed(sql)
        if not parsed:
            yield backend.EMPTY_QUERY
        for statement in parsed:
            execution = Execution(self, statement, ())
            try:
                yield from execution.run(None, describe=True)
            finally:
                execution.close()

    def _parsed(self, sql: str) -> list[Statement]:
        with self._shared.meter.refusals():
            return statements.parse(sql)

    def _parse(self, message: Parse) -> bytes:
        parsed = self._parsed(message.sql)
        if any(message.types):
            parsed = self._parsed(with_types(message.sql, message.types))
        if len(parsed) > 1:
            raise statements.SyntaxRefused("cannot insert multiple commands into a prepared statement")
        self._prepared.keep(message.name, message.sql, parsed)
        return backend.PARSE_COMPLETE

    def _bind(self, message: Bind) -> bytes:
        if any(message.parameter_formats) or any(message.result_formats):
            raise NotServed("the lake server speaks text format only", hint="ask for text parameters and results")
        parsed = self._prepared.get(message.statement)
        self._forget(message.portal)
        if len(self._portals) >= MAX_NAMED:
            raise NotServed(f"more than {MAX_NAMED} portals in one session")
        if parsed:
            self._portals[message.portal] = Execution(self, *given(parsed[0], message.values))
        return backend.BIND_COMPLETE

    def _forget(self, portal: str) -> None:
        execution = self._portals.pop(portal, None)
        if execution is not None:
            execution.close()

    def _describe(self, message: Describe) -> Iterator[Bytes]:
        if message.kind == "P":
            yield self._portal_description(message.name)
            return
        parsed = self._prepared.get(message.name)
        count = max((statements.parameter_count(statement) for statement in parsed), default=0)
        yield backend.parameter_description(count)
        yield self._described(parsed, count)

    def _portal_description(self, name: str) -> bytes:
        """Cursors are portals too: clients ask for their columns under the cursor's name."""
        if name in self._portals:
            return self._portals[name].description()
        if name == "":
            return backend.NO_DATA
        return backend.row_description(self.cursor(name).columns)

    def _described(self, parsed: list[Statement], count: int) -> bytes:
        if not parsed:
            return backend.NO_DATA
        described = Execution(self, parsed[0], (None,) * count)
        try:
            return described.description()
        finally:
            described.close()

    def _execute(self, message: Execute) -> Iterator[Bytes]:
        execution = self._portals.get(message.portal)
        if execution is None:
            yield backend.EMPTY_QUERY
            return
        yield from execution.run(message.max_rows or None, describe=False)

    def _close(self, message: Close) -> bytes:
        if message.kind == "S":
            self._prepared.close(message.name)
        else:
            self._forget(message.name)
        return backend.CLOSE_COMPLETE

    def select(self, statement: statements.Select, params: Params) -> Portal:
        """Open a query."""
        if self._writer is None or not names_lake_tables(statement.sql):
            return self._shared.open(statement, params, self._run)
        if self._status == "I":
            self._writer.transaction.rollback()  # each query by itself reads what is there by then
        return self._writer.backend().open(statement, params, self._run)

    def write(self, statement: statements.Write, params: Params) -> Done:
        """Change rows of a lake table."""
        if self._writer is None:
            raise NotServed("this lake server has no lake tables")
        if self._status == "I":
            raise NotServed("lake tables are changed in transactions only", hint="START TRANSACTION")
        if self._is_serializable:  # postgres_fdw commits here first, and Postgres may refuse its own commit with 40001
            raise NotServed(
                "lake tables are not changed at SERIALIZABLE: Postgres may refuse that after the lake has committed",
                hint="begin isolation level repeatable read",
            )
        return self._writer.perform(statement.change, params, self._run)

    def _run(self, running: Interruptible | None) -> None:
        with self._lock:
            self._running = running

    def cursor(self, name: str) -> Portal:
        """The open cursor of that name."""
        if name not in self._cursors:
            raise NoSuchThing(f"cursor {name!r} does not exist")
        return self._cursors[name]

    def refuse_in_failed(self, statement: Statement) -> None:
        """After an error only the end of the transaction, or of the savepoint, is accepted."""
        ends = isinstance(statement, statements.End) or (
            isinstance(statement, statements.Savepoint) and statement.heals
        )
        if self._status == "E" and not ends:
            raise FailedTransaction("current transaction is aborted, commands ignored until end of transaction block")

    def command(self, statement: Statement, params: Params) -> str:
        """Do a statement that has no result; answers its command tag."""
        match statement:
            case statements.Begin():
                self._status, self._is_serializable = "T", statement.is_serializable
                return statement.tag
            case statements.End():
                return self._end(statement)
            case statements.Savepoint():
                self._savepoint(statement)
                return statement.tag
            case statements.Write():
                return changes.tag(statement.change, self.write(statement, params).count)
            case statements.SetVariable():
                answers.check_setting(statement.name, statement.value)
                return "SET" if statement.value is not None else "RESET"
            case _:
                return self._cursor_command(statement, params)

    def _cursor_command(self, statement: Statement, params: Params) -> str:
        match statement:
            case statements.Declare():
                if len(self._cursors) >= MAX_NAMED:
                    raise NotServed(f"more than {MAX_NAMED} cursors in one session")
                self._close_cursor(statement.cursor)
                self._cursors[statement.cursor] = self.select(statement.query, params)
                return "DECLARE CURSOR"
            case statements.Rewind():
                self.cursor(statement.cursor).rewind()
                return "MOVE 0"
            case statements.CloseCursor():
                return self._close_cursors(statement.cursor)
            case statements.Deallocate():
                self._prepared.deallocate(statement.name)
                return "DEALLOCATE ALL" if statement.name is None else "DEALLOCATE"
            case _:
                self.close()
                return "DISCARD ALL"

    def _savepoint(self, statement: statements.Savepoint) -> None:
        """Going back to one closes the cursors that were opened since, which postgres_fdw relies on."""
        if statement.tag == "SAVEPOINT":
            mark = self._writer.transaction.mark() if self._writer else Mark()
            self._savepoints.set(statement.name, self._cursors, mark)
        elif statement.heals:
            kept, mark = self._savepoints.back(statement.name)
            for cursor in self._cursors.keys() - kept:
                self._close_cursor(cursor)
            if self._writer is not None:
                self._writer.transaction.back_to(mark)
            self._status = "T"
        else:
            self._savepoints.release(statement.name)

    def _end(self, statement: statements.End) -> str:
        tag = "ROLLBACK" if self._status == "E" else statement.tag
        self._status = "I"
        self._savepoints.clear()
        self._close_cursors(None)
        if self._writer is not None:
            (self._writer.transaction.commit if tag == "COMMIT" else self._writer.transaction.rollback)()
        return tag

    def _close_cursors(self, name: str | None) -> str:
        if name is not None:
            self.cursor(name)
        for cursor in [name] if name is not None else list(self._cursors):
            self._close_cursor(cursor)
        return "CLOSE CURSOR ALL" if name is None else "CLOSE CURSOR"

    def _close_cursor(self, name: str) -> None:
        portal = self._cursors.pop(name, None)
        if portal is not None:
            portal.close()

    def sent(self, portal: Portal, count: int | None) -> Iterator[tuple[int, memoryview]]:
        """The next rows of a portal as (rows, bytes to send); a cancel request reaches it meanwhile."""
        self._run(portal)
        try:
            for batch in portal.read(count):
                for position, chunk in enumerate(rows.encode(batch)):
                    yield (batch.num_rows if position == 0 else 0), memoryview(chunk)
        finally:
            self._run(None)

    def count_sent(self, rows: int, size_bytes: int) -> None:
        """Count what went to the client."""
        self._shared.meter.sent(rows, size_bytes)

    def cancel(self) -> None:
        """Stop the running query; called from another thread."""
        with self._lock:
            running = self._running
        if running is not None:
            running.interrupt()

    def close(self) -> None:
        """Give everything back."""
        for portal in list(self._portals):
            self._forget(portal)
        self._close_cursors(None)
        self._prepared.deallocate(None)
        if self._writer is not None and self._status == "I":
            self._writer.transaction.rollback()

    def end(self) -> None:
        """The client is gone, and with it what it has not committed."""
        self.close()
        if self._writer is not None:
            self._writer.transaction.rollback()
