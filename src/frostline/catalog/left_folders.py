"""Folders of tables that are not managed any more, until their files are deleted: docs/design/leaving.md."""

from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/left_folder")


@dataclass(frozen=True)
class LeftFolder:
    """The folder of a table that was given back."""

    location: str
    xid: str
    """The transaction that gave the table back."""
    is_pinned: bool
    is_needed: bool
    """A lake of ours is in it again."""


def leave(connection: Connection, table: Table, location: str) -> None:
    """In the transaction that forgets the table, before its rows go: its folder is to be deleted."""
    connection.execute(_statement("keep_pins_out"), {"table_id": table.id})
    connection.execute(_statement("leave"), {"table_id": table.id, "location": location})


def list_all(connection: Connection) -> list[LeftFolder]:
    """All that are left. Who may read them is asked after this."""
    connection.execute(_statement("adopt_xids"))
    return fetch(connection, LeftFolder, _statement("list_all"))


def own_jobs(connection: Connection, folder: LeftFolder) -> frozenset[int]:
    """The jobs of the table whose files may be deleted: not those of a database that this one was restored from."""
    rows = connection.execute(_statement("own_jobs"), {"location": folder.location}).fetchall()
    return frozenset(job_id for (job_id,) in rows)


def forget(connection: Connection, folder: LeftFolder, *, with_jobs: bool) -> None:
    """Nothing is to be deleted there any more. The history of its jobs goes too, unless files of them stay."""
    connection.execute(_statement("forget"), {"location": folder.location, "with_jobs": with_jobs})
