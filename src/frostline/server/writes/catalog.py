"""Our own catalog as the lake server asks it for lake tables, and what it asks the Postgres that it belongs to."""

import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar, cast

import psycopg

from frostline.catalog import lake_tables
from frostline.catalog.connect import Connection, connect, first_line
from frostline.catalog.pointers import LakePointer
from frostline.errors import UnavailableError
from frostline.lake import lake_publish, warehouse
from frostline.lake.lake_publish import Outcome
from frostline.lake.lake_table import State
from frostline.relation import foreign_server, node_tables
from frostline.server.writes.catalogs import Stage

_TRIES = 5
"""Connections that may be lost one after the other, where nothing was changed yet."""
_PAUSE_S = 0.04
_Answer = TypeVar("_Answer")


class _Look(Generic[_Answer]):
    """A question that many ask at once. Each gets an answer from after its call; who waits shares the next one."""

    def __init__(self, question: Callable[[Connection], _Answer]) -> None:
        self.question = question
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self._answer: _Answer | None = None

    def wanted(self) -> int:
        """Which answer is new enough for somebody who comes now."""
        with self._lock:
            return self._begun + 1

    def answer(self, wanted: int, ask: Callable[[Callable[[Connection], _Answer]], _Answer]) -> _Answer:
        """That answer or a newer one. Not for two threads at once."""
        if self._done < wanted:
            with self._lock:
                self._begun += 1
                number = self._begun
            self._answer = ask(self.question)
            self._done = number
        return cast(_Answer, self._answer)


class Catalog:
    """Implements `LakeCatalog` by one connection for many threads, which is made anew when it was lost."""

    is_ours = True

    def __init__(self, dsn: str, purpose: str, place: str | None) -> None:
        self._dsn, self._purpose, self._place = dsn, purpose, place
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._cut, self._strangers = _Look(_cut), _Look(foreign_server.strangers)
        self._attached = _Look(_attached)

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """For this thread alone. What breaks in it is not used again."""
        with self._lock, self._opened() as connection:
            yield connection

    @contextmanager
    def _opened(self) -> Generator[Connection]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, purpose=self._purpose)
        try:
            yield self._connection
        except psycopg.Error:
            self._connection.close()
            raise

    def cut(self) -> Mapping[int, LakePointer]:
        """Where all lake tables are, by their ids, as of one moment after the call."""
        return self._shared(self._cut)

    def places(self, wanted: Collection[int]) -> Mapping[int, LakePointer]:  # noqa: ARG002
        """All of them: that is one statement, too."""
        return self.cut()

    def commit(self, stage: Stage) -> tuple[Outcome, Sequence[State] | None]:
        """Move all pointers in one transaction, again if somebody else was faster."""
        return lake_publish.commit(stage, self.connection, reconnects=True)

    def attached(self) -> frozenset[int]:
        """The lake tables that this Postgres has foreign tables of."""
        return self._shared(self._attached)

    def strangers(self) -> Sequence[tuple[str, str]]:
        """Who could have any lake table with what Postgres has given that role, and the command that ends it."""
        return self._shared(self._strangers)

    def _shared(self, look: _Look[_Answer]) -> _Answer:
        wanted = look.wanted()
        with self._lock:
            return look.answer(wanted, self._asked)

    def _asked(self, ask: Callable[[Connection], _Answer]) -> _Answer:
        """The answer to a question that changes nothing. Holds the lock."""
        for left in reversed(range(_TRIES)):
            try:
                with self._opened() as connection:
                    return ask(connection)
            except psycopg.Error as error:  # it may have been lost while nobody used it
                if not left:
                    raise UnavailableError(
                        f"the lake server cannot reach Postgres for {self._purpose}: {first_line(error)}",
                        hint="frostline status",
                    ) from error
                time.sleep(_PAUSE_S)
        raise AssertionError

    def require_warehouse(self, wanted: Collection[int] = ()) -> None:  # noqa: ARG002
        """UnavailableError when the warehouse is not there, or is another database's."""
        place = self._place
        if place is not None:
            with self._lock:
                marker = self._asked(lambda connection: warehouse.of(connection, place))
            warehouse.refuse_unless_there(marker)

    def close(self) -> None:
        """Give it back."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def _cut(connection: Connection) -> Mapping[int, LakePointer]:
    return {table.id: table for table in lake_tables.listed(connection)}


def _attached(connection: Connection) -> frozenset[int]:
    return frozenset(table.lake_table_id for table in node_tables.attached(connection))
