"""Which database and which object store a call means."""

import os
from pathlib import Path

from frostline import settings
from frostline.lake import objectstore
from frostline.lake.filecheck import Checks
from frostline.lake.objectstore import Access
from frostline.settings import Settings

_UNIMPORTANT = {"dsn": "-", "warehouse": "."}
_DSN, _HOME = f"{settings.ENV_PREFIX}DSN", f"{settings.ENV_PREFIX}HOME"


def dsn_of(dsn: str | None, home: str | Path | None) -> str:
    """The connection string: what is given, else of the home, else of the environment."""
    if dsn is not None:
        return dsn
    if home is None and _HOME not in os.environ and _DSN in os.environ:
        return os.environ[_DSN]
    return settings.load(_folder(home)).dsn


def settings_for(home: str | Path | None, dsn: str, warehouse: str) -> Settings:
    """What holds for a job on this database and this warehouse, and its object store is reached."""
    use_the_store(home)
    return settings.load(_folder(home), {"dsn": dsn, "warehouse": warehouse})


def use_the_store(home: str | Path | None) -> None:
    """Reach the object store as the home's settings say, or the environment, unless this process does already."""
    if objectstore.in_use() is None:
        objectstore.use(Access.of(settings.load(_folder(home), _UNIMPORTANT)))


def checks(home: str | Path | None) -> Checks | None:
    """What the home's settings say about comparing files, or the environment."""
    said = settings.load(_folder(home), _UNIMPORTANT).lake_checksums
    return None if said is None else Checks(said)


def _folder(home: str | Path | None) -> Path | None:
    chosen = os.environ.get(_HOME) if home is None else home
    return None if chosen is None else Path(chosen).expanduser()
