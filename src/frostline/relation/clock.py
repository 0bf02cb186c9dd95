"""Where a table is now: the time, or for integer tier keys the highest value that it has got so far."""

from collections.abc import Sequence

import psycopg
from psycopg import conninfo, sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, dsn_of, first_value
from frostline.model.names import Name
from frostline.model.partitions import Partition
from frostline.model.tables import Table
from frostline.model.tiers import TierKind, from_text
from frostline.relation import names

_statement = sqlfiles.statements(__name__, "clock")


def _text(connection: Connection, statement: sql.Composable) -> str | None:
    return first_value(connection.execute(sql.Composed([statement])))


def now(connection: Connection, table: Table, partitions: Sequence[Partition], floor: int) -> int:
    """The current tier value. Of a table of integers without rows it is where its first partition begins.

    A row in DEFAULT does not count, nor one in a partition without an upper end: a single wrong value would be taken
    for where the table is.
    """
    kind = table.tier_kind
    if kind.is_time:
        return time(connection, kind)
    newest = _newest(connection, table, partitions)
    if newest is not None:
        return newest
    lowest = min((partition.lower for partition in partitions if partition.lower is not None), default=0)
    return lowest if floor == kind.lowest else max(lowest, floor)


def _newest(connection: Connection, table: Table, partitions: Sequence[Partition]) -> int | None:
    """The highest value in the newest partition that has rows, DEFAULT aside."""
    lowest = table.tier_kind.lowest
    begun = [partition for partition in partitions if not partition.is_default and partition.upper is not None]
    for partition in sorted(
        begun, key=lambda partition: lowest if partition.lower is None else partition.lower, reverse=True
    ):
        highest = _highest(connection, table, partition.name)
        if highest is not None:
            return highest
    return None


def time(connection: Connection, kind: TierKind) -> int:
    """The current time, on the axis of this kind."""
    if kind is TierKind.TIMESTAMPTZ:
        return from_text(kind, _text(connection, _statement("now_timestamptz")) or "")
    return from_text(kind, _text(connection, _statement("now_time").format(kind=sql.SQL(kind.value))) or "")


def _highest(connection: Connection, table: Table, relation: Name) -> int | None:
    statement = _statement("highest").format(
        tier_key=sql.Identifier(table.tier_key), relation=names.identifier(relation)
    )
    text = _text(connection, statement)
    return None if text is None else int(text)


def before(connection: Connection, table: Table, period: str, partitions: Sequence[Partition] | None = None) -> int:
    """The tier value so long before now; of a table of integers without rows, the lowest that there is.

    For integers, now is the highest value of the whole heap, and if partitions are given, that of the newest of them
    that has rows. Archive asks for the first, since it can be undone. What removes rows for good asks for the second:
    one wrong value in DEFAULT must not do it.
    """
    kind = table.tier_kind
    if kind.is_time:
        parts = {"period": sql.Literal(period), "kind": sql.SQL(kind.value)}
        statement = _statement("before_timestamptz" if kind is TierKind.TIMESTAMPTZ else "before_time")
        return from_text(kind, _text(connection, statement.format(**parts)) or "")
    highest = _highest(connection, table, table.heap) if partitions is None else _newest(connection, table, partitions)
    return kind.lowest if highest is None else max(highest - int(period), kind.lowest)


def time_zone(connection: Connection) -> str | None:
    """The time zone that a session of ours would have if it did not ask for UTC; None when it is UTC.

    Asked in a session of its own: ours cannot tell any more. OperationalError when there is none to be had.
    """
    dsn = conninfo.make_conninfo(dsn_of(connection), options="", application_name="frostline time zone")
    with psycopg.connect(dsn, autocommit=True) as other:
        zone = other.info.parameter_status("TimeZone")
    return None if zone in (None, "UTC", "GMT", "Etc/UTC") else zone
