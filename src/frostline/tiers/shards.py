"""Shards: parts of heap partitions and overlays, read at a moment.

By psycopg what Postgres can say itself, through DuckDB the rows, which Python never touches: to be written or sent on,
or, of an overlay, as the table `marks`, without which lake files are read.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from frostline.catalog.connect import Connection, first_line, only_row
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, ducksql, schema, store
from frostline.model import laketypes
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column, StoredTable, TierKey
from frostline.model.tiers import TierKind, to_text
from frostline.relation import names
from frostline.tiers import target
from frostline.tiers.target import Reader, Target

_ASK = "from postgres_query('pg', {query})"
_TYPED = "select {columns} from postgres_query('pg', {query})"
_COLUMN = "frostline_{number}::{type} as {name}"
_MARKS = "create temp table marks as {query}"
_MARKED = "exists (select 1 from marks as m where {same_key})"
_POLICIES = re.compile(r"query would be affected by row-level security policy for table (\".*\")")
_LOST = re.compile(r"snapshot \".*\" does not exist|invalid snapshot identifier")
_NO_TABLE = re.compile(r'(relation|schema) ".*" does not exist')

Named: TypeAlias = Iterable[tuple[str, Column]]
"""Columns with their names on our side."""
Sent: TypeAlias = Callable[[Column], sql.Composable]
"""The expression that Postgres sends for a column."""


@dataclass(frozen=True)
class Shard:
    """A part of a target that one task reads."""

    target: Target
    range: Range = EVERYTHING
    """Of tier values; everything where there is no tier key."""
    first_block: int | None = None
    """None for "from the beginning"."""
    last_block: int | None = None
    """Inclusive. None for "to the end", which the last shard of a target must say: the heap may have grown."""
    only_live: bool = False
    """The target is an overlay, and its rows that are gone are left out."""


def condition(tier: TierKey | None, shard: Shard) -> sql.Composed:
    """Which rows of the target belong to the shard.

    None of another table that has got its name: `target.check_again` tells of it, afterwards.
    """
    return sql.SQL(" and ").join(_conditions(tier, shard))


def _conditions(tier: TierKey | None, shard: Shard) -> Iterator[sql.Composable]:
    yield sql.SQL("tableoid = {}::oid").format(sql.Literal(shard.target.oid))
    if tier is not None:
        key, type_name = sql.Identifier(tier.name), names.trusted(tier.kind.value)
        low, high = ends(tier.kind, shard.range)
        if low > tier.kind.lowest:
            yield sql.SQL("{} >= {}::{}").format(key, sql.Literal(to_text(tier.kind, low)), type_name)
        if high < tier.kind.highest:
            yield sql.SQL("{} <= {}::{}").format(key, sql.Literal(to_text(tier.kind, high)), type_name)
    if shard.first_block is not None:
        yield sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({shard.first_block},0)"))
    if shard.last_block is not None:
        yield sql.SQL("ctid < {}::tid").format(sql.Literal(f"({shard.last_block + 1},0)"))
    if shard.only_live:
        yield sql.SQL("frostline_live")


def ends(kind: TierKind, within: Range) -> tuple[int, int]:
    """The smallest and the largest value of a range, as literals of the type can be: one further may be none.

    Nothing lies between minus infinity and the first day of the calendar.
    """
    low = kind.lowest if within.lower is None else within.lower
    last = kind.highest if within.upper is None else within.upper - 1
    return low, kind.lowest if last < kind.earliest else last


def plain(column: Column) -> sql.Composable:
    """The column as the lake wants it: as it is, or as text."""
    return sql.SQL("{}::text" if column.encoding.as_text else "{}").format(sql.Identifier(column.name))


def rows_query(
    tier: TierKey | None, shard: Shard, columns: Iterable[Column], sent: Sent = plain, *, marks: bool = False
) -> sql.Composed:
    """Read the shard's rows; the columns are named frostline_1, ... so that no two differ by case only.

    With `marks`, of an overlay, whether each is live comes last.
    """
    chosen = [
        sql.SQL("{} as {}").format(sent(column), sql.Identifier(f"frostline_{number}"))
        for number, column in enumerate(columns, 1)
    ]
    return sql.SQL("select {} from only {} where {}").format(
        sql.SQL(", ").join([*chosen, *([sql.SQL("frostline_live")] if marks else [])]),
        names.identifier(shard.target.name),
        condition(tier, shard),
    )


def in_duck(tier: TierKey | None, shard: Shard, named: Named, sent: Sent = plain, *, marks: bool = False) -> str:
    """The same to DuckDB, after `attach`: the columns under these names, in the types of the lake."""
    chosen = list(named)
    query = rows_query(tier, shard, [column for _, column in chosen], sent, marks=marks)
    typed = [
        _COLUMN.format(
            number=number, type=laketypes.duck_type(column.encoding.lake_type), name=ducksql.identifier(name)
        )
        for number, (name, column) in enumerate(chosen, 1)
    ]
    columns = ", ".join([*typed, *(["frostline_live"] if marks else [])])
    return _TYPED.format(columns=columns, query=ducksql.literal(query.as_string()))


@contextmanager
def session(reader: Reader, read: Target) -> Generator[Connection]:
    """A session of Postgres that sees the moment, and the target as it was."""
    try:
        with psycopg.connect(
            reader.moment.dsn, autocommit=True, application_name=f"frostline {reader.purpose}"
        ) as connection:
            connection.execute("begin isolation level repeatable read read only")
            connection.execute(target.join(reader, read))
            ask = _asked(connection)
            target.check(ask, reader, read)
            yield connection
            target.check_again(ask, reader, read)
    except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue) as error:
        raise target.gone(reader) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise target.another(reader, read) from error
    except psycopg.Error as error:
        hint = "frostline status; then run the command again"
        raise UnavailableError(f"cannot read {read.name}: {first_line(error)}", hint=hint) from error


def _asked(connection: psycopg.Connection[tuple[Any, ...]]) -> target.Ask:
    return lambda query: only_row(connection.execute(query))


def attach(connection: duckdb.DuckDBPyConnection, reader: Reader, read: Target) -> None:
    """Attach Postgres as `pg`, and begin a transaction there that sees the moment, and the target as it was."""
    conninfo = make_conninfo(reader.moment.dsn, application_name=f"frostline {reader.purpose}")
    duck.begin_in_postgres(connection, conninfo, target.join(reader, read).as_string())
    target.check(_asked_in_duck(connection), reader, read)


def check_again(connection: duckdb.DuckDBPyConnection, reader: Reader, read: Target) -> None:
    """When the rows were read: ConflictError when the target's name means another table by now."""
    target.check_again(_asked_in_duck(connection), reader, read)


def _asked_in_duck(connection: duckdb.DuckDBPyConnection) -> target.Ask:
    def ask(query: sql.Composed) -> tuple[Any, ...]:
        row = connection.execute(_ASK.format(query=ducksql.literal(query.as_string()))).fetchone()
        assert row is not None
        return row

    return ask


@contextmanager
def marks_loaded(
    table: StoredTable, reader: Reader, shard: Shard, memory_limit: str
) -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with a shard of the overlay, all columns of it, in the table `marks`."""
    with duck.borrowed(memory_limit) as connection:
        try:
            named = zip(schema.parquet_names(table), table.columns, strict=True)
            load_marks(connection, table.tier, reader, shard, named)
        except duckdb.Error as error:
            raise failure(error, reader, shard.target, f"export of {shard.target.name}") from None
        # Row groups can then be limited by size. The rows' own order is not lost: one thread writes them.
        connection.execute("set preserve_insertion_order = false")
        yield connection


def load_marks(
    connection: duckdb.DuckDBPyConnection, tier: TierKey | None, reader: Reader, shard: Shard, named: Named
) -> None:
    """Make the table `marks`, in a transaction that sees the moment: these columns, and whether each mark is live."""
    attach(connection, reader, shard.target)
    connection.execute(_MARKS.format(query=in_duck(tier, shard, named, marks=True)))
    check_again(connection, reader, shard.target)


def is_marked(key: Iterable[str]) -> str:
    """That `marks` has the key of a row `f` of a lake file; the columns of the key as they are called in both."""
    pairs = (f"m.{name} = f.{name}" for name in map(ducksql.identifier, key))
    return _MARKED.format(same_key=" and ".join(pairs))


def failure(error: duckdb.Error, reader: Reader, read: Target | None, doing: str) -> FrostlineError:
    """What a DuckDB error means, without the connection string that its message may show."""
    message, trouble = str(error), store.trouble(error)
    if trouble:
        return UnavailableError(f"{doing} failed: {trouble.reason}", hint=trouble.hint)
    reason = duck.postgres_reason(message)
    if _LOST.match(reason):
        return target.gone(reader)
    if read is not None and _NO_TABLE.match(reason):
        return target.another(reader, read)
    if policies := _POLICIES.search(reason):
        return policies_apply(policies[1])
    if "Conversion Error" in message:  # which shows the value
        reason = "a value is not of its column's type"
    return UnavailableError(f"{doing} failed: {reason}", hint=reader.again)


def policies_apply(relation: str) -> UsageError:
    """What is said where policies would hide rows."""
    return UsageError(
        f"row security of {relation} applies to this role, and lake files have none",
        hint="read as a role that may see every row: the table's owner, or one with BYPASSRLS",
    )
