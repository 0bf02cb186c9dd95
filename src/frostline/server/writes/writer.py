"""Does what INSERT, UPDATE and DELETE on lake tables say, inside a session's transaction.

Rows travel as the texts that Postgres prints. What finds its rows by a condition is run by DuckDB where it is a plain
DELETE whose condition means the same there, and else by Postgres, on temporary tables with the candidate rows: then
casts, RETURNING and conditions are Postgres' own.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
from psycopg import sql

from frostline.errors import UsageError
from frostline.lake import ducksql, lake_rows
from frostline.lake.ducktext import printed_value
from frostline.model.lake_tables import REMOTE, RowId
from frostline.server.engine import Engine
from frostline.server.fallback import ROW, PostgresAnswer
from frostline.server.portals import Portal
from frostline.server.protocol import rows as wire
from frostline.server.protocol.backend import TEXT_OID, ResultColumn
from frostline.server.protocol.parameters import Many
from frostline.server.queries import Backend, Params, Running
from frostline.server.session_state import decoded_column
from frostline.server.shapes import Shapes
from frostline.server.translate import duck, statements
from frostline.server.translate.changes import (
    Change,
    ChangeRows,
    DeleteRow,
    Insert,
    InsertBatch,
    Request,
    UpdateRow,
)
from frostline.server.translate.operands import whole_number
from frostline.server.translate.plan import candidates
from frostline.server.translate.scope import UnknownColumn
from frostline.server.writes import requests
from frostline.server.writes.shared import Lake
from frostline.server.writes.transaction import LakeTransaction, Row, SeenInTransaction, TableChanges

_READ_AT_ONCE = 5_000
"""Rows that are looked up by their places in one query."""


class WrongParameters(UsageError):
    """The statement wants other parameters than it was given."""

    sqlstate = "08P01"


@dataclass(frozen=True)
class Done:
    """What a change has done."""

    count: int
    returned: Sequence[Row] = ()


class Writer:
    """Lake tables in one session: what it reads and changes of them. Not for several threads."""

    def __init__(self, shared: Backend, lake: Lake) -> None:
        self._shared = shared
        self.transaction = LakeTransaction(lake, lambda table, wanted: rows_at(shared.engine, table, wanted))

    def backend(self) -> Backend:
        """What answers queries with lake tables in them, as the transaction sees them."""
        return replace(self._shared, tables=SeenInTransaction(self._shared.tables, self.transaction), shapes=Shapes())

    def perform(self, change: Change, params: Params, running: Running) -> Done:
        """Do it. Nothing of it is seen outside of the transaction before its commit."""
        if isinstance(change, Request):
            return self._define(change, params)
        changes = self.transaction.changes(change.table_id)
        changes.require_format()
        match change:
            case Insert() | InsertBatch():
                changes.require_columns(change.schema)
                return _insert(changes, change, params)
            case _:
                changes.require_rows()
                return self._change(changes, change, params, running)

    def _change(
        self, changes: TableChanges, change: UpdateRow | DeleteRow | ChangeRows, params: Params, running: Running
    ) -> Done:
        match change:
            case UpdateRow():
                return self._update(changes, change, params)
            case DeleteRow():
                return self._delete(changes, change, params)
            case ChangeRows():
                return self._change_rows(changes, change, params, running)

    def _define(self, change: Request, params: Params) -> Done:
        number = whole_number(_parameter(params, change.table_id) or "")
        if number is None:
            raise WrongParameters("a request is for a lake table by its number")
        self.transaction.define(number, requests.parse(_parameter(params, change.text) or ""))
        return Done(1)

    def _update(self, changes: TableChanges, change: UpdateRow, params: Params) -> Done:
        row_id = RowId.parse(_parameter(params, change.row) or "")
        if row_id is None or not changes.remove(row_id):
            return Done(0)
        places = {_place(changes, name): number for name, number in zip(change.columns, change.values, strict=True)}
        values = {place: _parameter(params, number) for place, number in places.items()}
        if not change.returning:
            changes.unit().updates[row_id] = values
            return Done(1)
        old = rows_at(self._shared.engine, changes, [row_id])[row_id]
        new = [values.get(place, value) for place, value in enumerate(old)]
        changes.insert([new])
        return Done(1, _returned(changes, change.returning, [new]))

    def _delete(self, changes: TableChanges, change: DeleteRow, params: Params) -> Done:
        row_id = RowId.parse(_parameter(params, change.row) or "")
        if row_id is None or not changes.remove(row_id):
            return Done(0)
        if not change.returning:
            return Done(1)
        old = rows_at(self._shared.engine, changes, [row_id])[row_id]
        return Done(1, _returned(changes, change.returning, [old]))

    def _change_rows(self, changes: TableChanges, change: ChangeRows, params: Params, running: Running) -> Done:
        self.transaction.to_read(changes.id)
        if change.is_plain_delete:
            return self._delete_found(changes, change, params, running)
        backend = self.backend()
        plan = candidates(change.sql, change.node, params, backend.tables)
        answer = PostgresAnswer(backend.load, self._shared.postgres_dsn)
        running(answer)
        try:
            matches = answer.change(plan, _appended(changes, change))
        finally:
            running(None)
        return _applied(changes, change, list(_texts(matches)))

    def _delete_found(self, changes: TableChanges, change: ChangeRows, params: Params, running: Running) -> Done:
        """The condition is that of a query: the same text with other words before it."""
        (query,) = statements.parse(change.as_query())
        assert isinstance(query, statements.Select)
        portal = replace(self.backend(), prints=False).open(query, params, running)
        running(portal)
        try:
            wanted = [text for batch in portal.read(None) for text in _column(batch)]
        finally:
            running(None)
            portal.close()
        return Done(sum(changes.remove(row_id) for text in wanted if (row_id := RowId.parse(text or ""))))


def rows_at(engine: Engine, changes: TableChanges, wanted: Collection[RowId]) -> Mapping[RowId, Row]:
    """Rows of files by their places, whether they are gone or not, as texts."""
    rows = dict[RowId, Row]()
    ordered = sorted(wanted)
    for start in range(0, len(ordered), _READ_AT_ONCE):
        some = ordered[start : start + _READ_AT_ONCE]
        paths = sorted({changes.path(row_id.file) for row_id in some})
        relation = lake_rows.relation({duck.name(column): column for column in changes.columns}, paths, ())
        places = ", ".join(
            f"({ducksql.literal(lake_rows.local(changes.path(row.file)))}, {row.position})" for row in some
        )
        values = duck.listed(printed_value(duck.column(col), col.encoding.lake_type) for col in changes.columns)
        same = "w.path = filename and w.place = file_row_number"
        joined = f"{relation} as r join (values {places}) as w(path, place) on {same}"
        reading = engine.run(duck.select(f"filename, file_row_number::varchar, {values}", joined), files=paths)
        try:
            for batch in reading:
                for path, position, *row in _texts(batch):
                    rows[RowId(changes.number(str(path)), int(position or 0))] = row
        finally:
            reading.close()
    return rows


def _insert(changes: TableChanges, change: Insert | InsertBatch, params: Params) -> Done:
    places = [_place(changes, name) for name in change.columns]
    if isinstance(change, InsertBatch) and change.given is not None:
        return _insert_columns(changes, change, places, change.given)
    rows = list(_placed(places, len(changes.columns), _given(change, params)))
    changes.insert(rows)
    return Done(len(rows), _returned(changes, change.returning, rows))


def _insert_columns(changes: TableChanges, change: InsertBatch, places: Sequence[int], given: Many) -> Done:
    _require_parameters(change, len(given))
    columns = dict(zip(places, map(decoded_column, given.columns(len(places))), strict=True))
    nothing = pa.nulls(change.count, pa.string())
    changes.insert_batch([columns.get(place, nothing) for place in range(len(changes.columns))])
    return Done(change.count)


def _require_parameters(change: InsertBatch, count: int) -> None:
    wanted = change.count * len(change.columns)
    if count != wanted:
        raise WrongParameters(f"the statement wants {wanted} parameters and got {count}")


def _given(change: Insert | InsertBatch, params: Params) -> Iterator[Row]:
    if isinstance(change, Insert):
        yield from ([_parameter(params, number) for number in row] for row in change.rows)
        return
    _require_parameters(change, len(params))
    width = len(change.columns)
    yield from (params[place : place + width] for place in range(0, len(params), width))


def _placed(places: Sequence[int], width: int, rows: Iterator[Row]) -> Iterator[Row]:
    """The values at the places of their columns; columns that are not named have NULL."""
    if list(places) == list(range(width)):
        yield from rows
        return
    for row in rows:
        full: list[str | None] = [None] * width
        for place, value in zip(places, row, strict=True):
            full[place] = value
        yield full


def _parameter(params: Params, number: int | None) -> str | None:
    if number is None:
        return None
    if number >= len(params):
        raise WrongParameters(f"there is no parameter ${number + 1}")
    return params[number]


def _place(changes: TableChanges, name: str) -> int:
    for place, column in enumerate(changes.columns):
        if column.name == name:
            return place
    raise UnknownColumn(f"column {name!r} does not exist")


def _returned(changes: TableChanges, names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    places = [_place(changes, name) if name else None for name in names]
    return [[None if place is None else row[place] for place in places] for row in rows] if names else []


def _appended(changes: TableChanges, change: ChangeRows) -> str:
    """What the statement is to return as well: which row it was, and its new version."""
    relation = change.node.relation
    alias = str(relation.alias.aliasname if relation and relation.alias else relation.relname if relation else "")
    names = [ROW, *(column.name for column in changes.columns)] if change.is_update else [ROW]
    listed = ", ".join(sql.Identifier(alias, name).as_string(None) for name in names)
    return f"{',' if change.returning else ' RETURNING'} {listed}"


def _applied(changes: TableChanges, change: ChangeRows, matches: Sequence[Row]) -> Done:
    shown, returned = len(change.returning), list[Row]()
    rows = list[Row]()
    for row in matches:
        row_id = RowId.parse(row[shown] or "")
        if row_id is not None and changes.remove(row_id):
            returned.append(row[:shown])
            rows.append(row[shown + 1 :])
    if change.is_update:
        changes.insert(rows)
    return Done(len(rows), returned if shown else ())


def _column(batch: object) -> Sequence[str | None]:
    assert isinstance(batch, pa.RecordBatch)
    return [row[0] for row in _texts(batch)]


def _texts(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch of texts."""
    columns: list[list[str | None]] = [column.cast(pa.string()).to_pylist() for column in cast(Any, batch).columns]
    return zip(*columns, strict=True)


def returned_columns(change: Change) -> tuple[ResultColumn, ...]:
    """What RETURNING gives; all of it is text, which postgres_fdw reads by the types of its own columns."""
    return tuple(ResultColumn(name or "?column?", TEXT_OID) for name in change.returning)


class Returned:
    """The rows that a change returns. It is made when they are asked for."""

    def __init__(self, perform: Callable[[], Done], width: int) -> None:
        self._perform, self._width = perform, width

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        done = self._perform()
        columns = [pa.array([row[place] for row in done.returned], pa.string()) for place in range(self._width)]
        yield wire.batch(columns)

    def interrupt(self) -> None:
        """Nothing runs that could be stopped."""

    def close(self) -> None:
        """Nothing is held."""


def names_lake_tables(text: str) -> bool:
    """Whether a query may have lake tables in it."""
    return REMOTE.search(text) is not None


def portal(change: Change, perform: Callable[[], Done]) -> Portal | None:
    """The result of a change with RETURNING; None for one without."""
    columns = returned_columns(change)
    return Portal(columns, lambda: Returned(perform, len(columns))) if columns else None
