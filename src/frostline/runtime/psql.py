"""Replaces this process by psql, connected to the database."""

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import psycopg
from psycopg.pq import Conninfo

from frostline import filemode
from frostline.errors import UsageError
from frostline.runtime.programs import embedded


def become_psql(dsn: str, arguments: Sequence[str]) -> NoReturn:
    """Run psql in place of this process. The password goes through the environment, where `ps` does not show it."""
    program = _program()
    filemode.give_back()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and psql would inherit that
    os.execve(program, [program, *arguments], {**os.environ, **connection_variables(dsn)})  # noqa: S606


def connection_variables(dsn: str) -> dict[str, str]:
    """The connection string as the variables that libpq reads."""
    try:
        options = Conninfo.parse(dsn.encode())
    except psycopg.OperationalError:
        hint = "use postgresql://user@host/database"
        raise UsageError("dsn is not a connection string", hint=hint) from None
    return {o.envvar.decode(): o.val.decode() for o in options if o.envvar and o.val is not None}


def _program() -> str:
    own = embedded().bin_dir / "psql"
    return str(own) if Path(own).exists() else shutil.which("psql") or str(own)
