"""A statement with its parameters, ready to run: what a portal of the protocol is made of."""

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from frostline.server import answers
from frostline.server.portals import Portal
from frostline.server.protocol import backend
from frostline.server.queries import Params
from frostline.server.translate import changes, statements
from frostline.server.translate.statements import Statement
from frostline.server.writes import writer

if TYPE_CHECKING:
    from frostline.server.session import Session

_log = logging.getLogger(__name__)

Bytes = bytes | memoryview


class Execution:
    """A statement with its parameters, ready to run, possibly in several goes."""

    def __init__(self, session: "Session", statement: Statement, params: Params) -> None:
        self._session, self._statement, self._params = session, statement, params
        self._portal: Portal | None = None
        self._sent_rows = 0

    def _result(self) -> Portal | None:
        """The portal that this statement reads from, opened when first asked for."""
        match self._statement:
            case statements.Select():
                self._portal = self._portal or self._session.select(self._statement, self._params)
                return self._portal
            case statements.Write():
                statement = self._statement
                self._portal = self._portal or writer.portal(
                    statement.change, lambda: self._session.write(statement, self._params)
                )
                return self._portal
            case statements.Show():
                self._portal = self._portal or answers.show(self._statement.name)
                return self._portal
            case statements.Fetch():
                return self._session.cursor(self._statement.cursor)
            case _:
                return None

    def _returns_rows(self) -> bool:
        return not (isinstance(self._statement, statements.Fetch) and self._statement.move)

    def description(self) -> bytes:
        """RowDescription, or NoData for what returns no rows."""
        self._session.refuse_in_failed(self._statement)
        portal = self._result()
        return (
            backend.NO_DATA if portal is None or not self._returns_rows() else backend.row_description(portal.columns)
        )

    def run(self, max_rows: int | None, *, describe: bool) -> Iterator[Bytes]:
        """Run it; `describe` puts the columns in front, as the simple protocol wants them."""
        self._session.refuse_in_failed(self._statement)
        started = time.monotonic()
        portal = self._result()
        if portal is None:
            yield backend.command_complete(self._session.command(self._statement, self._params))
            return
        if describe and self._returns_rows():
            yield backend.row_description(portal.columns)
        yield from self._rows(portal, max_rows)
        _log.debug("answered rows=%d elapsed_ms=%.1f", self._sent_rows, (time.monotonic() - started) * 1000)

    def _rows(self, portal: Portal, max_rows: int | None) -> Iterator[Bytes]:
        fetch = self._statement if isinstance(self._statement, statements.Fetch) else None
        wanted = fetch.count if fetch else max_rows
        count = size_bytes = 0
        try:
            for number, chunk in self._session.sent(portal, wanted):
                count += number
                if self._returns_rows():
                    yield chunk
                    size_bytes += len(chunk)
        finally:
            self._session.count_sent(count if self._returns_rows() else 0, size_bytes)
        self._sent_rows += count
        if fetch is None and max_rows is not None and count == max_rows:
            yield backend.PORTAL_SUSPENDED
            return
        if fetch is None:
            portal.close()
        yield backend.command_complete(self._tag(count))

    def _tag(self, count: int) -> str:
        match self._statement:
            case statements.Fetch():
                return f"{'MOVE' if self._statement.move else 'FETCH'} {count}"
            case statements.Show():
                return "SHOW"
            case statements.Write():
                return changes.tag(self._statement.change, count)
            case _:
                return f"SELECT {self._sent_rows}"

    def close(self) -> None:
        """Give the result back, unless it is a cursor's."""
        if self._portal is not None:
            self._portal.close()
