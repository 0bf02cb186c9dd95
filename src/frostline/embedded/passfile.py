"""The password file from which the embedded Postgres takes the lake server's password: so no dump of it has one."""

import os
import tempfile
from pathlib import Path

from frostline.embedded.programs import give
from frostline.errors import UsageError
from frostline.settings import Settings

DATABASE = "lake"
"""What the foreign server asks for; the lake server has no other."""


def write(settings: Settings) -> None:
    """Write the file, for the user that runs Postgres only. It appears complete or not at all."""
    assert settings.lake_passfile
    if settings.lake_password is None:
        raise UsageError(
            "lake_password is not set", hint="set it in frostline.toml; any word that nobody knows will do"
        )
    file, password = Path(settings.lake_passfile), settings.lake_password.get_secret_value()
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as draft:
        draft.write(line(settings.lake_host, settings.lake_port, settings.lake_user, password))
        draft.flush()
        os.fsync(draft.fileno())
    give(Path(draft.name))  # a temporary file is made with mode 0600, without which libpq does not read it
    Path(draft.name).replace(file)


def line(host: str, port: int, user: str, password: str) -> str:
    """One line of a password file."""
    return ":".join(map(_escaped, (host, str(port), DATABASE, user, password))) + "\n"


def _escaped(field: str) -> str:
    return field.replace("\\", "\\\\").replace(":", "\\:")
