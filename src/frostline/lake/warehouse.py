"""Is the warehouse this database's? A marker in it says so, and whoever writes, deletes or empties looks for it first.

A folder that is not mounted is empty, and would take every file that is written to it. docs/design/warehouse.md has the
reasons. A job looks when it begins, before each file that a task writes, and before it publishes.
"""

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import psycopg

from frostline import logs
from frostline.catalog import lake_states, warehouses
from frostline.catalog.connect import Connection
from frostline.errors import UnavailableError, UsageError
from frostline.lake import paths, store

FOLDER = "~frostline"
"""At the warehouse's root. No schema's folder is called so: `paths` writes no ~ into those."""
_log = logging.getLogger(__name__)
_FROM_BACKUP = "bring it back from a copy of the warehouse; frostline undo TABLE needs no file of partitions in grace"
_HINT = "mount it, or set warehouse as it was; then run the command again"


@dataclass(frozen=True)
class Marker:
    """The file that shows a warehouse to be a database's. Several databases may have theirs in one warehouse."""

    place: str
    identity: str

    @property
    def folder(self) -> str:
        """Where the markers of all databases are."""
        return f"{self.place}/{FOLDER}"

    @property
    def name(self) -> str:
        """The identity is in the name, so nothing has to be read to know it."""
        return f"{self.identity}.json"


_in_use: ContextVar[Marker | None] = ContextVar("frostline_marker", default=None)


def is_there(marker: Marker) -> bool:
    """Whether the warehouse has the marker. UnavailableError when it cannot be asked."""
    with store.reachable(f"use the warehouse {marker.place}"):
        return marker.name in paths.names_in(marker.folder)


def put(marker: Marker) -> None:
    """Write the marker. Harmless to repeat."""
    location = f"{marker.folder}/{marker.name}"
    text = {"identity": marker.identity, "note": "Frostline: the files of the database with this identity are here"}
    with store.reachable(f"write into the warehouse {marker.place}"):
        paths.make_parent(location)
        with paths.file_io(location).new_output(location).create(overwrite=True) as file:
            file.write(json.dumps(text).encode() + b"\n")


def remove(marker: Marker) -> None:
    """Delete the marker of a database that is gone. One that is not gone refuses to write and delete from then on."""
    with store.reachable(f"write into the warehouse {marker.place}"):
        paths.delete(f"{marker.folder}/{marker.name}")


def refuse_unless_there(marker: Marker) -> None:
    """UnavailableError when the warehouse is not there, or is not this database's."""
    if is_there(marker):
        return
    with store.reachable(f"use the warehouse {marker.place}"):
        if not paths.names_in(marker.place, or_say_why=True):
            seen = "is empty: it is not mounted, or it is not this database's"
        else:
            seen = f"is not this database's: it has no marker {FOLDER}/{marker.name}"
    raise UnavailableError(f"warehouse {marker.place} {seen}; nothing was changed", hint=_HINT)


def of(connection: Connection, warehouse: str) -> Marker:
    """The marker that the warehouse of the settings must have; UsageError when this database's is another one."""
    place, known = paths.warehouse_location(warehouse), warehouses.find(connection)
    if known is None:
        raise UsageError("this database has no warehouse yet", hint=f"frostline init --warehouse {warehouse!r}")
    if known.location != place:
        raise UsageError(f"this database's warehouse is {known.location}, not {place}", hint="set warehouse as it was")
    return Marker(place, known.identity)


def require(connection: Connection, warehouse: str) -> Marker:
    """The marker, which is there; an error that says what is wrong when it is not."""
    marker = of(connection, warehouse)
    refuse_unless_there(marker)
    return marker


def expect(connection: Connection, warehouse: str) -> None:
    """When a process begins: require it, but let an object store pass that may answer again in a moment."""
    try:
        require(connection, warehouse)
    except UnavailableError as error:
        if not store.may_pass(error):
            raise
        _log.warning("%s", logs.fields(stage="start", warning=str(error)))


@contextmanager
def guarded(connection: Connection, warehouse: str) -> Generator[Marker]:
    """For a job: the warehouse is this database's when the block begins, and `check` looks again inside of it.

    So a file that is missing was deleted, and the error says so.
    """
    marker = require(connection, warehouse)
    with used(marker):
        try:
            yield marker
        except UnavailableError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            refuse_unless_there(marker)
            raise UnavailableError(str(error.args[0]), hint=deleted(connection)) from error


def deleted(connection: Connection) -> str:
    """What to do about a file that is missing in a warehouse that is there."""
    try:
        is_copy = lake_states.is_copy(connection)
    except psycopg.Error:
        is_copy = False
    if is_copy:
        return "the database that this one was restored or promoted from may have expired it: " + _FROM_BACKUP
    return "the warehouse is there, and the file is not: " + _FROM_BACKUP


@contextmanager
def used(marker: Marker | None) -> Generator[Marker | None]:
    """What `check` looks for in the block; None for nothing."""
    token = _in_use.set(marker)
    try:
        yield marker
    finally:
        _in_use.reset(token)


def in_use() -> Marker | None:
    """What `check` looks for, to be handed to a task."""
    return _in_use.get()


def check() -> None:
    """Refuse to go on when the warehouse went away since the job began."""
    marker = _in_use.get()
    if marker is not None:
        refuse_unless_there(marker)


def prepare(location: str) -> None:
    """Before a data file is written: look, then make its folder, in stores that have folders."""
    check()
    paths.make_parent(location)
