"""Queries that DuckDB might answer differently: the candidate rows go to Postgres, and Postgres answers.

Every lake table of the query becomes a temporary table with the same column types and collations, filled with
COPY from DuckDB. The query then runs there unchanged but for the names of the tables. It runs read-only, with
no function that could see or change anything but its arguments, in a transaction that is rolled back.
"""

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
from postgast import pg_query_pb2 as pb
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import first_line
from frostline.errors import UnavailableError
from frostline.model.lake_tables import ROW_COLUMN
from frostline.relation import names
from frostline.server.engine import Rows
from frostline.server.own_session import OwnSessionFailed, explained
from frostline.server.protocol.backend import ResultColumn
from frostline.server.protocol.rows import batch, content
from frostline.server.translate import parsing
from frostline.server.translate.plan import PostgresPlan, Scan
from frostline.server.translate.scope import SNAPSHOT_COLUMN
from frostline.server.translate.statements import NotServed

_statement = sqlfiles.statements(__name__, "fallback")
_CURSOR = sql.Identifier("frostline_answer")
_FETCH_ROWS = 2_000
ROW = "frostline_row"
"""The column of a temporary table that knows a lake table's rows."""
_CONNECT_TIMEOUT_S = 5
# The query was parsed and checked here; Postgres must take it for the same, whatever its own settings say.
_SETTINGS = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3 "
    "-c bytea_output=hex -c search_path=pg_catalog -c client_min_messages=error "
    "-c standard_conforming_strings=on -c array_nulls=on -c transform_null_equals=off "
    # Its defaults for transactions and its time limits are meant for others: the client has its own, and cancels.
    "-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off "
    "-c default_transaction_deferrable=off -c statement_timeout=0 -c lock_timeout=0 "
    "-c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
)
_HAS_TRANSACTION_TIMEOUT = 170_000
_COMMENTS = (pb.C_COMMENT, pb.SQL_COMMENT)


class PostgresAnswer:
    """The result of a query that Postgres finishes. Connected from creation to `close`."""

    def __init__(self, candidates: Callable[[Scan], Rows], dsn: str | None) -> None:
        """`candidates` gives the rows of a scan as lines of COPY."""
        self._connection = connected(dsn)
        self._candidates = candidates
        self._loading: Rows | None = None
        self._interrupted = False
        self.columns: tuple[ResultColumn, ...] = ()

    def open(self, plan: PostgresPlan) -> None:
        """Load the candidate rows and start the query; afterwards `columns` is known."""
        try:
            with self._explained():
                self.columns = self._open(plan)
        except BaseException:
            self.close()
            raise

    def _open(self, plan: PostgresPlan) -> tuple[ResultColumn, ...]:
        cursor = self._loaded(plan)
        query = sql.SQL("declare {} no scroll cursor for ").format(_CURSOR).as_string(self._connection)
        cursor.execute((query + with_temporary_tables(plan)).encode(), plan.params)
        self._cursor = cursor
        self._fetch(0)
        return self._described()

    def change(self, plan: PostgresPlan, returning: str) -> pa.RecordBatch:
        """Run an UPDATE or DELETE on the temporary tables, and give what it returns, which this is added to."""
        try:
            with self._explained():
                cursor = self._loaded(plan)
                cursor.execute((with_temporary_tables(plan) + returning).encode(), plan.params)
                return _batch(cursor)
        finally:
            self.close()

    def _loaded(self, plan: PostgresPlan) -> psycopg.RawCursor:
        cursor = psycopg.RawCursor(self._connection)
        if self._connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
            cursor.execute("set local transaction_timeout = 0")
        refuse_volatile(cursor, plan.functions)
        for position, scan in enumerate(plan.scans):
            self._load(cursor, sql.Identifier("pg_temp", f"frostline_{position}"), scan)
        cursor.execute("set transaction read only")
        return cursor

    def _load(self, cursor: psycopg.RawCursor, name: sql.Identifier, scan: Scan) -> None:
        try:
            cursor.execute(_create(name, scan))
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise UnavailableError(
                "this query needs a temporary table, and the lake server's own Postgres is a standby",
                hint="let FROSTLINE_DSN of frostline serve name the primary",
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise OwnSessionFailed(
                f"this query needs a temporary table, which the lake server's role may not make: {first_line(error)}",
                hint="grant temporary on the database to the role of FROSTLINE_DSN of frostline serve",
            ) from error
        self._loading = self._candidates(scan)
        try:
            with cursor.copy(sql.SQL("copy {} from stdin").format(name)) as copy:
                for lines in self._loading:
                    copy.write(memoryview(content(lines.column(0))))
        finally:
            self._loading.close()
            self._loading = None

    def _fetch(self, rows: int) -> pa.RecordBatch:
        statement = sql.SQL("fetch {} from {}").format(sql.Literal(rows), _CURSOR)
        self._cursor.execute(statement)
        return _batch(self._cursor)

    def _described(self) -> tuple[ResultColumn, ...]:
        description = self._cursor.description or ()
        return tuple(ResultColumn(column.name, column.type_code) for column in description)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._explained():
                fetched = self._fetch(_FETCH_ROWS)
            if fetched.num_rows == 0:
                return
            yield fetched

    def interrupt(self) -> None:
        """Make the running read fail; may be called from another thread."""
        self._interrupted = True
        loading = self._loading
        if loading is not None:
            loading.interrupt()
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CONNECT_TIMEOUT_S)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise explained(error, self._connection, was_cancelled=self._interrupted) from error

    def close(self) -> None:
        """Roll back, which takes the temporary tables away."""
        self._connection.close()


def refuse_volatile(cursor: psycopg.RawCursor, functions: Collection[str]) -> None:
    """NotServed when one of these functions could see or change anything but its arguments."""
    volatile = cursor.execute(_statement("volatile"), [sorted(functions)]).fetchall()
    if volatile:
        raise NotServed(f"function {volatile[0][0]} is not served by the lake server", hint="run it in Postgres")


def connected(dsn: str | None) -> psycopg.Connection:
    """A session of the lake server's own in Postgres, in which every text means what it was checked to mean."""
    if dsn is None:
        raise NotServed("this query needs Postgres, and the lake server has no connection to it")
    try:
        return psycopg.connect(
            dsn,
            connect_timeout=_CONNECT_TIMEOUT_S,
            options=_SETTINGS,
            client_encoding="utf8",
            application_name="frostline lake server",
        )
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"the lake server cannot reach Postgres: {first_line(error)}", hint="frostline status"
        ) from error


def _create(name: sql.Identifier, scan: Scan) -> sql.Composed:
    columns = [
        _column(ROW if column is ROW_COLUMN else column.name, column.pg_type.formatted, column.collation_name)
        for column in scan.columns
    ]
    columns.append(_column(SNAPSHOT_COLUMN, "bigint", None))
    return sql.SQL("create temporary table {} ({}) on commit drop").format(name, sql.SQL(", ").join(columns))


def _column(name: str, formatted: str, collation: str | None) -> sql.Composed:
    # Type and collation come quoted from the catalog (format_type, regcollation), never from a client.
    return sql.SQL("{} {}{}").format(
        sql.Identifier(name), names.trusted(formatted), names.trusted(f" collate {collation}" if collation else "")
    )


def with_temporary_tables(plan: PostgresPlan) -> str:
    """The query with the names of its lake tables replaced, every other character kept.

    A row of a lake table is known by a column of the temporary table, which has a `ctid` of its own.
    """
    tokens = [token for token in parsing.scan(plan.sql) if token.token not in _COMMENTS]
    text = plan.sql.encode()
    others = dict[tuple[int, int], str]()
    for position, scan in enumerate(plan.scans):
        first = next(index for index, token in enumerate(tokens) if token.start == scan.source.location)
        name = f"pg_temp.frostline_{position}"
        if not scan.source.aliased:
            name += f' as "{scan.source.alias.replace(chr(34), chr(34) * 2)}"'
        others[scan.source.location, tokens[first + 2].end] = name
    if any(ROW_COLUMN in scan.columns for scan in plan.scans):
        rows = [token for token in tokens if text[token.start : token.end] == ROW_COLUMN.name.encode()]
        others |= {(token.start, token.end): ROW for token in rows}
    for (start, end), name in sorted(others.items(), reverse=True):
        text = text[:start] + name.encode() + text[end:]
    return text.decode()


def _batch(cursor: psycopg.RawCursor) -> pa.RecordBatch:
    """The rows of the last FETCH, as text, untouched by psycopg's adaptation."""
    result = cursor.pgresult
    assert result is not None
    values = [
        pa.array([result.get_value(row, column) for row in range(result.ntuples)], pa.binary())
        for column in range(result.nfields)
    ]
    columns = values or [pa.nulls(result.ntuples, pa.binary())]
    return batch(columns)
