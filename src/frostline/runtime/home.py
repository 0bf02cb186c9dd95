"""The home directory of `frostline up`: its lock, its settings file, and the ports written there."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from frostline.errors import ConflictError, UsageError
from frostline.runtime.postgres import Postgres, check_port, new_password, port_from
from frostline.settings import FILE_NAME, read_file, write_file

DATABASE = "frostline"
_LOCK = "frostline.lock"
_PASSFILE = "lake.pgpass"
CLIENT_PASSFILE = "postgres.pgpass"
_PG_PORT = 15432
_LAKE_PORT = 15433
"""Below the range that systems hand out to outgoing connections, so they are still free at the next start."""


@dataclass(frozen=True)
class Home:
    """A locked home directory whose settings file is complete."""

    directory: Path
    values: dict[str, Any]
    warehouse_was_named: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """What the environment must not override: this home's own Postgres, and what was asked for."""
        asked_for = ("warehouse",) if self.warehouse_was_named else ()
        written = ("rest_port",) if "rest_port" in self.values else ()
        return {key: self.values[key] for key in ("dsn", "lake_port", "lake_passfile", *written, *asked_for)}

    @property
    def client_passfile(self) -> Path:
        """Where clients find the password of the embedded Postgres."""
        return self.directory / CLIENT_PASSFILE

    @property
    def client_dsn(self) -> str:
        """The connection string to show: it names the file that has the password."""
        return f"{self.postgres.address(DATABASE)}?passfile={quote(str(self.client_passfile))}"

    @property
    def postgres(self) -> Postgres:
        """The server of this home."""
        return _postgres(self.directory, self.values)


@contextmanager
def prepare(
    directory: Path,
    *,
    pg_port: int | None,
    lake_port: int | None,
    rest_port: int | None = None,
    warehouse: str | None = None,
) -> Generator[Home]:
    """Make the home at the first time, lock it for the block, and write its settings when they change.

    Refusals come before anything is written.
    """
    _check(directory)
    file = directory / FILE_NAME
    if not file.exists():
        _placed(directory, {}, warehouse)
        _values(directory, {}, pg_port, lake_port, rest_port)  # what is wrong is said before the directory is made
    with _locked(directory):
        old = read_file(file) if file.exists() else {}
        if old:
            _postgres(directory, old).stop()  # left over from a `frostline up` that was killed
        new = _values(directory, old, pg_port, lake_port, rest_port) | _placed(directory, old, warehouse)
        if new != old:
            write_file(file, new)
        yield Home(directory, new, warehouse is not None)


def _check(directory: Path) -> None:
    try:
        entries = {entry.name for entry in directory.iterdir()} if directory.exists() else set[str]()
    except OSError as error:
        raise UsageError(
            f"cannot use {str(directory)!r} as home: {error.strerror}", hint="name another --home"
        ) from None
    if entries - {_LOCK} and FILE_NAME not in entries:
        hint = "name a new or an empty directory"
        raise UsageError(f"{str(directory)!r} has files but no {FILE_NAME}, so it is not a home", hint=hint)
    if FILE_NAME in entries and not read_file(directory / FILE_NAME).get("embedded"):
        hint = f"run only the lake server: frostline serve --home {directory}"
        raise UsageError(f"{str(directory / FILE_NAME)!r} names a Postgres that is not embedded", hint=hint)


@contextmanager
def _locked(directory: Path) -> Generator[None]:
    """Hold the lock of the directory. The system lets it go when the process ends, however it ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        raise UsageError(
            f"cannot use {str(directory)!r} as home: {error.strerror}", hint="name another --home"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            message = f"{str(directory)!r} is in use by process {file.read().strip()}"
            raise ConflictError(message, hint="stop that one, or name another --home") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _values(
    directory: Path, old: dict[str, Any], pg_port: int | None, lake_port: int | None, rest_port: int | None
) -> dict[str, Any]:
    new = old or {
        "embedded": True,
        "dsn": _dsn(directory, port_from(_PG_PORT) if pg_port is None else pg_port, new_password()),
        "warehouse": str(directory / "warehouse"),
        "lake_password": new_password(),
    }
    if pg_port is not None:
        new = {**new, "dsn": _dsn(directory, pg_port, _password(new["dsn"]))}
    taken = _port(new["dsn"])
    chosen = lake_port or old.get("lake_port") or port_from(_LAKE_PORT, but=taken)
    if chosen == taken:
        raise UsageError(f"port {taken} is wanted by both servers", hint="choose another: --lake-port N")
    check_port(taken, option="--pg-port")
    check_port(chosen, option="--lake-port")
    if rest_port in (taken, chosen):
        raise UsageError(f"port {rest_port} is wanted by two servers", hint="choose another: --rest-port N")
    if rest_port is not None:
        check_port(rest_port, option="--rest-port")
        new = {**new, "rest_port": rest_port}
    return {**new, "lake_port": chosen, "lake_passfile": str(directory / _PASSFILE)}


def _placed(directory: Path, old: dict[str, Any], warehouse: str | None) -> dict[str, str]:
    """The warehouse that was named. A home keeps the one it has: its tables' files are there."""
    from frostline.lake.paths import warehouse_location  # noqa: PLC0415  (Iceberg is slow to load)

    if warehouse is None:
        return {}
    place = warehouse_location(warehouse)
    has = old.get("warehouse")
    if has and warehouse_location(has) != place:
        hint = f"leave --warehouse out, or name another --home than {directory}"
        raise UsageError(f"this home has its warehouse at {has}, not at {place}", hint=hint)
    return {} if has else {"warehouse": place.removeprefix("file://")}


def _postgres(directory: Path, values: dict[str, Any]) -> Postgres:
    return Postgres(directory / "postgres", _port(values["dsn"]), _password(values["dsn"]))


def _dsn(directory: Path, port: int, password: str) -> str:
    return Postgres(directory / "postgres", port, password).dsn(DATABASE)


def _port(dsn: str) -> int:
    return int(conninfo_to_dict(dsn)["port"] or 0)


def _password(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["password"])
