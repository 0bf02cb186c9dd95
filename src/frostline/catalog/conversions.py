"""Conversions of unpartitioned tables: how far each has come, and what Postgres' catalogs say about its table."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from frostline import sqlfiles
from frostline.catalog import facts as catalog_facts
from frostline.catalog.connect import Connection, fetch
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import ConflictError
from frostline.model.conversion import Conversion, ConversionFacts, State
from frostline.model.names import Name

_statement = sqlfiles.statements(__name__, "queries/conversion")

_TAKE_TIMEOUT_MS = 5_000
"""Postgres notices a dead client within moments, unless it is in a long statement."""


@dataclass(frozen=True)
class Running:
    """A conversion that is not at its end."""

    id: int
    name: Name
    original: int
    """The oid of the table that is converted; after the swap, of the old one."""
    tier_key: str
    partition_interval: str
    keep_old: bool
    shape: str
    state: State
    position: tuple[str, ...] | None
    """The last key that was copied, as text."""
    rows: int
    filled_xid: str | None


@contextmanager
def exclusive(connection: Connection, name: Name) -> Generator[None]:
    """Nobody else converts this table meanwhile; ConflictError when somebody does."""
    try:
        with connection.transaction():
            set_lock_timeout(connection, _TAKE_TIMEOUT_MS)
            _rows(connection, "exclusive", name=str(name))
    except psycopg.errors.LockNotAvailable:
        raise ConflictError(f"another session is converting {name}", hint="wait for it, or end it") from None
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # whose session is gone has lost the lock with it
            _rows(connection, "unlock", name=str(name))


def find(connection: Connection, name: Name) -> Running | None:
    """The conversion of the table of that name that is under way."""

    def running(*, state: str, position: list[str] | None, **others: Any) -> Running:
        key = None if position is None else tuple(position)
        return Running(name=name, state=State(state), position=key, **others)

    values = {"schema": name.schema, "table": name.table}
    return next(iter(fetch(connection, running, _statement("running"), values)), None)


def start(connection: Connection, request: Conversion, original: int) -> Running:
    """Write down that the table is being converted, in the transaction that makes its shadow."""
    values = {
        "schema": request.name.schema,
        "table": request.name.table,
        "original": original,
        "tier_key": request.tier_key,
    }
    looks = shape(connection, original)
    _rows(
        connection,
        "start",
        **values,
        partition_interval=request.partition_interval,
        keep_old=request.keep_old,
        shape=looks,
    )
    running = find(connection, request.name)
    assert running is not None
    return running


def move(connection: Connection, running: Running, state: State) -> None:
    """Write down what was done."""
    connection.execute(_statement("move"), {"id": running.id, "state": state.value})


def copied(connection: Connection, running: Running, position: Sequence[str], rows: int) -> None:
    """Write down, in the transaction that copied them, that rows up to this key are in the shadow."""
    values = {"id": running.id, "position": list(position), "rows": rows}
    connection.execute(_statement("copied"), values)


def filled(connection: Connection, running: Running) -> None:
    """Write down that all rows are in the shadow."""
    connection.execute(_statement("filled"), {"id": running.id})


def shape(connection: Connection, oid: int) -> str:
    """What the table looks like, in one value to compare."""
    return _rows(connection, "shape", oid=oid)[0][0]


def facts(connection: Connection, name: Name, tier_key: str) -> ConversionFacts:
    """All facts about the table of that name. Reads the system catalogs only."""
    heap = catalog_facts.read(connection, name)
    oid = heap.oid
    key = _rows(connection, "plain_key", oid=oid)
    return ConversionFacts(
        heap=heap,
        tier_key=tier_key,
        is_inherited=_rows(connection, "is_inherited", oid=oid)[0][0],
        has_plain_key=bool(key) and key[0][2],
        unique_elsewhere=_texts(connection, "unique_elsewhere", oid=oid, tier_key=tier_key),
        unfit_constraints=tuple(
            (constraint, fault) for constraint, fault in _rows(connection, "unfit_constraints", oid=oid)
        ),
        unfit_triggers=_texts(connection, "unfit_triggers", oid=oid),
        replicated_by=_texts(connection, "replicated_by", oid=oid),
        has_identity_index=_rows(connection, "identity_index", oid=oid)[0][0],
        has_hidden_rows=_rows(connection, "hidden_rows", oid=oid)[0][0],
        owner_may=_rows(connection, "owner_may", oid=oid)[0][0],
        holders=_texts(connection, "holders", oid=oid),
        key_holders=_texts(connection, "key_holders", oid=oid),
    )


def key_name(connection: Connection, oid: int) -> str:
    """What the table's primary key is called."""
    return _rows(connection, "plain_key", oid=oid)[0][0]


def _texts(connection: Connection, query: str, **values: Any) -> tuple[str, ...]:
    return tuple(text for (text,) in _rows(connection, query, **values))


def _rows(connection: Connection, query: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(_statement(query), values).fetchall()
