"""Small fixed answers: SET, SHOW, `select version()`, and what ANALYZE asks about a foreign table before it samples."""

import re
from collections.abc import Iterator, Sequence
from importlib import metadata

import pyarrow as pa

from frostline.model import lake_tables
from frostline.model.names import BadName, Name
from frostline.model.range import overlapping
from frostline.server.portals import Portal
from frostline.server.protocol import rows
from frostline.server.protocol.backend import ResultColumn
from frostline.server.served_tables import ServedTables
from frostline.server.translate.projection import TYPE_OIDS
from frostline.server.translate.scope import UnknownName
from frostline.server.translate.statements import NotServed

SERVER_VERSION = "15.0"
"""The oldest Postgres whose clients are served: clients adapt to what the server can do."""

SETTINGS = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "datestyle": "ISO, MDY",
    "timezone": "UTC",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
    "transaction_isolation": "repeatable read",
    "search_path": "pg_catalog",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}
_ACCEPTED: dict[str, tuple[str, ...]] = {
    "timezone": ("utc", "gmt", "etc/utc"),
    "datestyle": ("iso", "iso,mdy", "iso, mdy", "iso,dmy", "iso, dmy", "iso,ymd", "iso, ymd"),
    "intervalstyle": ("postgres",),
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1"),
    "bytea_output": ("hex",),
}
"""To these values: everything is in them anyway."""
_FREE = {
    "search_path",
    "extra_float_digits",
    "application_name",
    "client_min_messages",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "session characteristics",
}
"""To any value: they change nothing here."""
_PAGE_BYTES = 8192
_REGCLASS = r"(E'(?:[^'\\]|''|\\\\)+'|'(?:[^']|'')+')::pg_catalog\.regclass"
_SIZE = re.compile(rf"SELECT\s+pg_catalog\.pg_relation_size\({_REGCLASS}\)\s+/\s+\d+", re.IGNORECASE)
_TUPLES = re.compile(
    rf"SELECT\s+reltuples(,\s+relkind)?\s+FROM\s+pg_catalog\.pg_class\s+WHERE\s+oid\s+=\s+{_REGCLASS}",
    re.IGNORECASE,
)
_CONSTANTS = {
    "version()": ("version", f"PostgreSQL {SERVER_VERSION} (Frostline lake server)"),
    "pg_catalog.version()": ("version", f"PostgreSQL {SERVER_VERSION} (Frostline lake server)"),
    "1": ("?column?", "1"),
    "version from frostline.doctor": ("version", f"Frostline {metadata.version('frostline')}"),
}


class _Fixed:
    """A result that is there already."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield self._batch

    def interrupt(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""


def row(names: Sequence[str], values: Sequence[str], types: Sequence[str]) -> Portal:
    """A result of one row."""
    batch = rows.batch([pa.array([value], pa.string()) for value in values])
    columns = [ResultColumn(name, TYPE_OIDS[kind]) for name, kind in zip(names, types, strict=True)]
    return Portal(columns, lambda: _Fixed(batch))


def show(name: str) -> Portal:
    """SHOW name."""
    if name not in SETTINGS:
        raise NotServed(f"unrecognized setting {name!r}")
    return row([name], [SETTINGS[name]], ["text"])


def check_setting(name: str, value: str | None) -> None:
    """Raise NotServed unless setting this changes no answer."""
    if name in _FREE or value is None:
        return
    if value.lower() not in _ACCEPTED.get(name, ()):
        raise NotServed(f"the lake server cannot set {name} to {value!r}", hint="it answers in UTC, ISO and UTF8")


def fixed(sql: str, tables: ServedTables) -> Portal | None:
    """The answer to one of the few queries that are no query on a lake table; None for any other."""
    text = sql.strip().rstrip(";").strip()
    words = " ".join(text.split()).lower()
    constant = _CONSTANTS.get(words.removeprefix("select ")) if words.startswith("select ") else None
    if constant is not None:
        return row([constant[0]], [constant[1]], ["text" if constant[0] == "version" else "int4"])
    size, tuples = _SIZE.fullmatch(text), _TUPLES.fullmatch(text)
    if size is not None:
        return row(["?column?"], [str(_totals(size[1], tables)[1] // _PAGE_BYTES + 1)], ["int8"])
    if tuples is not None:
        total = str(float(_totals(tuples[2], tables)[0]))
        if tuples[1]:
            return row(["reltuples", "relkind"], [total, "r"], ["float4", "text"])
        return row(["reltuples"], [total], ["float4"])
    return None


def _unquoted(literal: str) -> str:
    """The text of a string constant as postgres_fdw writes it: with E in front, backslashes are doubled too."""
    text = literal[literal.index("'") + 1 : -1].replace("''", "'")
    return text.replace("\\\\", "\\") if literal[0] in "eE" else text


def _totals(regclass: str, tables: ServedTables) -> tuple[int, int]:
    """Rows and bytes of the files that the foreign table reads now."""
    try:
        asked = Name.parse(_unquoted(regclass)).table
        remote = lake_tables.remote(asked)
    except BadName:
        raise UnknownName(f"not a lake table: {regclass!r}") from None
    tables.resolve(remote)
    snapshot = tables.current_snapshot(remote)
    if snapshot is None:
        return 0, 0
    files = overlapping(tables.files(remote, snapshot), remote.range)
    return sum(file.rows for file in files), sum(file.size_bytes for file in files)
