"""Password files of libpq, so that passwords need not be where others see them.

From one the embedded Postgres takes the lake server's password: no dump has it. From the other, clients take that of
the embedded Postgres: nothing has to print it.
"""

import os
import tempfile
from pathlib import Path

from frostline.errors import UsageError
from frostline.relation.foreign_server import DATABASE
from frostline.runtime.postgres import HOST, USER, Postgres
from frostline.runtime.programs import give
from frostline.settings import Settings


def write(settings: Settings) -> None:
    """Write the file, for the user that runs Postgres only. It appears complete or not at all."""
    assert settings.lake_passfile
    if settings.lake_password is None:
        raise UsageError(
            "lake_password is not set", hint="set it in frostline.toml; any word that nobody knows will do"
        )
    password = settings.lake_password.get_secret_value()
    text = line(settings.lake_host, settings.lake_port, DATABASE, settings.lake_user, password)
    draft = _drafted(Path(settings.lake_passfile), text)
    give(draft)
    draft.replace(settings.lake_passfile)


def write_for_clients(file: Path, server: Postgres) -> None:
    """Write the superuser's password, for our own user only. It appears complete or not at all."""
    _drafted(file, line(HOST, server.port, "*", USER, server.password)).replace(file)


def _drafted(file: Path, text: str) -> Path:
    """The text in a new file of mode 0600, without which libpq does not read it, beside the one it will be."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fsync(draft.fileno())
    return Path(draft.name)


def line(host: str, port: int, database: str, user: str, password: str) -> str:
    """One line of a password file; `*` is any database."""
    return ":".join(map(_escaped, (host, str(port), database, user, password))) + "\n"


def _escaped(field: str) -> str:
    return field.replace("\\", "\\\\").replace(":", "\\:")
