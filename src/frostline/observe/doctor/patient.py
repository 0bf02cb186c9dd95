"""What a check is given, the settings and one connection as far as they can be had, and what it says."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from psycopg import sql

from frostline import sqlfiles
from frostline.catalog import tables
from frostline.catalog.connect import Connection, connect
from frostline.model.tables import Table
from frostline.settings import Settings


class State(StrEnum):
    """How bad it is. Only a fault makes the doctor's exit code 1."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Verdict:
    """What a check says."""

    state: State
    detail: str
    hint: str | None = None
    """What to do about it, if possible a command to run."""


@dataclass(frozen=True)
class Finding:
    """What a check said, under its name."""

    name: str
    state: State
    detail: str
    hint: str | None = None


class Unknowable(Exception):
    """A check cannot look, because something that it needs is missing. The text says what."""


def ok(detail: str) -> Verdict:
    """It is as it should be."""
    return Verdict(State.OK, detail)


def warning(detail: str, hint: str) -> Verdict:
    """It works, and will do harm some day."""
    return Verdict(State.WARNING, detail, hint)


def fault(detail: str, hint: str) -> Verdict:
    """Something does not work."""
    return Verdict(State.FAULT, detail, hint)


statement = sqlfiles.statements(__name__, "doctor")
"""One of the doctor's own statements."""


@dataclass
class Patient:
    """One set-up. What is missing raises Unknowable for whoever asks for it, so the other checks go on."""

    load: Callable[[], Settings]
    home: Path | None = None
    has_catalog: bool = False
    time_limit: str = "0"
    """What `statement_timeout` is for the role, before the doctor sets its own."""
    is_asking: bool = field(default=False, init=False)
    """Whether the check that runs has asked for the connection."""
    _settings: Settings | None = field(default=None, init=False)
    _connection: Connection | None = field(default=None, init=False)

    def read_settings(self) -> Settings:
        """Read the settings, for all that follow; raises what is wrong with them."""
        self._settings = self.load()
        return self._settings

    def connect(self) -> Connection:
        """Connect to Postgres, for all that follow; raises UnavailableError."""
        self._connection = connect(self.settings.dsn, purpose="doctor")
        return self._connection

    @property
    def settings(self) -> Settings:
        """The settings."""
        if self._settings is None:
            raise Unknowable("needs the settings")
        return self._settings

    @property
    def postgres(self) -> Connection:
        """The connection."""
        if self._connection is None or self._connection.closed:
            raise Unknowable("needs Postgres")
        self.is_asking = True
        return self._connection

    @property
    def tables(self) -> list[Table]:
        """The managed tables."""
        connection = self.postgres
        if not self.has_catalog:
            raise Unknowable("needs the catalog")
        return tables.list_all(connection)

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """What Postgres answers to one of the doctor's own statements."""
        return self.postgres.execute(statement(query), values).fetchall()

    def row(self, query: str, **values: Any) -> tuple[Any, ...]:
        """The same, where the answer is one row."""
        (row,) = self.rows(query, **values)
        return row

    def quoted(self, name: str) -> str:
        """A name as SQL wants it."""
        return sql.Identifier(name).as_string(self.postgres)

    def command(self, words: str) -> str:
        """A command line of ours for this set-up."""
        home = f" --home {shlex.quote(str(self.home))}" if self.home else ""
        return f"frostline {words}{home}"

    def psql(self, text: str) -> str:
        """A command line that runs a statement."""
        return f"{self.command('psql')} -c {shlex.quote(text)}"

    def let_go(self) -> None:
        """After a check that did not come back: if it waits for Postgres, the others do without."""
        if self.is_asking:
            self._connection = None

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
