"""The horizon: who may still see the database as it was before some transaction, on this server and on standbys."""

import logging

import psycopg

from frostline import logs, sqlfiles
from frostline.catalog.connect import Connection

_statement = sqlfiles.statements(__name__, "queries/horizon")

_SETTLING_S = 10
_log = logging.getLogger(__name__)


def older_snapshots(connection: Connection, xid: str) -> list[str]:
    """Who may still see the database as it was before that transaction: process ids, slots, prepared transactions."""
    return [who for (who,) in connection.execute(_statement("older_snapshots"), {"xid": xid}).fetchall()]


def settle_standbys(connection: Connection) -> bool:
    """End, on every standby, queries that see a frost line which nobody on this server sees any more.

    Outside a transaction. They end when the standby replays it, so whatever is done next finds them gone. It waits for
    those who have the seam's page in use, as an open cursor on a relation can; False if that takes too long, or if
    Postgres passes over the table because the role may not vacuum it.
    """
    warnings: list[str | None] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        warnings.append(notice.message_primary)

    connection.execute(_statement("limit_settling"), {"limit": f"{_SETTLING_S}s"})
    connection.add_notice_handler(hear)
    try:
        connection.execute(_statement("settle_standbys"))
    except psycopg.errors.QueryCanceled:
        return False
    finally:
        connection.remove_notice_handler(hear)
        connection.execute(_statement("end_limit"))
    for warning in warnings:
        _log.warning("%s", logs.fields(stage="settle", warning=warning))
    return not warnings
