"""What all requests share: connections to Postgres, metadata files, and what clients are told of the store."""

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from frostline.catalog import lake_files, namespaces, tokens
from frostline.catalog.connect import Connection, connect
from frostline.catalog.namespaces import Entry
from frostline.catalog.pointers import Pointer
from frostline.catalog.tokens import Caller
from frostline.errors import UnavailableError
from frostline.lake import damage, expected, objectstore, paths, store
from frostline.server.rest import answers
from frostline.settings import Settings

_IDLE = 8
_SHELF_BYTES = 64 << 20
_MOST_OF_IT = 8
_TRIES = 3


class Shelf:
    """Metadata files that were read lately. A file of that name never changes, so what is here is never old."""

    def __init__(self, room_bytes: int = _SHELF_BYTES) -> None:
        self._room_bytes, self._used_bytes = room_bytes, 0
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, location: str) -> bytes | None:
        """The file, if it is here."""
        with self._lock:
            content = self._files.get(location)
            if content is not None:
                self._files.move_to_end(location)
            return content

    def put(self, location: str, content: bytes) -> None:
        """Keep a file, unless it would take most of the room. Those that nobody has asked for lately go."""
        if len(content) > self._room_bytes // _MOST_OF_IT:
            return
        with self._lock:
            self._used_bytes += len(content) - len(self._files.pop(location, b""))
            self._files[location] = content
            while self._used_bytes > self._room_bytes:
                self._used_bytes -= len(self._files.popitem(last=False)[1])


@dataclass
class Service:
    """One catalog server's share of everything."""

    settings: Settings
    shelf: Shelf = field(default_factory=Shelf)
    _idle: list[Connection] = field(default_factory=list[Connection])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def identified(self, token: str) -> Generator[tuple[Connection, Caller]]:
        """A connection, and who the token belongs to; refused when it belongs to nobody."""
        connection, caller = self._asked(token)
        try:
            if caller is None:
                raise answers.Refused(
                    401,
                    "NotAuthorizedException",
                    "the token is not known, or not valid any more",
                    {"WWW-Authenticate": "Bearer"},
                )
            yield connection, caller
        finally:
            self._give_back(connection)

    def _asked(self, token: str) -> tuple[Connection, Caller | None]:
        """A connection that was idle may be dead without anybody knowing: the first question finds out."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            try:
                return connection, tokens.find(connection, token)
            except psycopg.OperationalError:
                connection.close()
        connection = connect(self.settings.dsn, purpose="catalog server")
        try:
            return connection, tokens.find(connection, token)
        except BaseException:
            connection.close()
            raise

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            is_good = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
            if is_good and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Give all connections back to Postgres."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def metadata(self, connection: Connection, location: str) -> bytes:
        """A metadata file, compared with its checksum if the catalog has one. FileNotFoundError when it is gone."""
        content = self.shelf.get(location)
        if content is None:
            expected.add(lake_files.checksums(connection, [location]))
            with paths.open_input(location) as file:
                content = bytes(file.read())
            if not expected.is_met(location, content):
                raise damage.wrong_checksum(f"metadata {location}")
            if location.endswith(".gz.metadata.json") or content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            self.shelf.put(location, content)
        return content

    def current(self, connection: Connection, caller: Caller, pointer: Pointer) -> tuple[Entry, bytes] | None:
        """A table that the caller may read, and its metadata; None when there is no such table.

        An expiry may delete the metadata file between two looks: then the pointer has moved on, and is followed.
        """
        lost: OSError | None = None
        for _ in range(_TRIES):
            entry = readable(connection, caller, pointer)
            if entry is None:
                return None
            try:
                with store.reachable(f"read {entry.metadata_location}"):
                    return entry, self.metadata(connection, entry.metadata_location)
            except UnavailableError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                lost = error.__cause__
        assert lost is not None
        raise store.unreadable(f"metadata of {'.'.join(pointer)}", lost)

    def store_options(self) -> dict[str, str]:
        """Where an object store is; nothing in it is a secret."""
        if not objectstore.holds(paths.warehouse_location(self.settings.warehouse)):
            return {}
        access = objectstore.current()
        options = {"s3.region": access.region, "client.region": access.region}
        if access.endpoint:
            options |= {"s3.endpoint": access.endpoint, "s3.path-style-access": str(access.path_style).lower()}
        return options

    def keys(self, caller: Caller, entry: Entry) -> dict[str, str]:
        """The keys of the object store that this caller is given for a table, where any are configured for that."""
        said = self.settings
        if caller.may_write and entry.kind == "lake" and entry.is_writable:
            pair = said.rest_write_access_key, said.rest_write_secret_key
        else:
            pair = said.rest_read_access_key, said.rest_read_secret_key
        options = self.store_options()
        if not options or pair[0] is None or pair[1] is None:
            return {}
        secret = {"s3.access-key-id": pair[0].get_secret_value(), "s3.secret-access-key": pair[1].get_secret_value()}
        return {**options, **secret}


def readable(connection: Connection, caller: Caller, pointer: Pointer) -> Entry | None:
    """What the catalog has under that name; None when there is nothing, refused when the caller may not read it."""
    entry = namespaces.table(connection, pointer, caller.role_name)
    if entry is not None and not entry.is_readable:
        raise answers.forbidden(
            f"role {caller.role_name} may not read all rows of {entry.belongs_to}, which {'.'.join(pointer)} has: "
            "it needs SELECT on the table, and no row security that applies to it"
        )
    return entry


def with_refs_only(content: bytes) -> bytes:
    """Metadata without the lake snapshots that no branch and no tag names."""
    metadata = json.loads(content)
    refs: Mapping[str, Mapping[str, int]] = metadata.get("refs") or {}
    named = {ref["snapshot-id"] for ref in refs.values()} | {metadata.get("current-snapshot-id")}
    snapshots: list[dict[str, Any]] = metadata.get("snapshots") or []
    metadata["snapshots"] = [snapshot for snapshot in snapshots if snapshot["snapshot-id"] in named]
    return json.dumps(metadata).encode()
