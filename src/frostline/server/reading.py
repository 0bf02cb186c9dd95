"""DuckDB SQL that reads the Parquet files of one scan, matched by Iceberg field id."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from frostline.lake import damage, duckfiles, ducksql, ducktext, lake_rows
from frostline.model.lake_tables import ROW_COLUMN, LakeTable, tid_sql
from frostline.model.range import Range, overlapping
from frostline.model.tables import Column, LakeFile
from frostline.model.tiers import BY_TYPNAME, TierKind
from frostline.server.extracts import Lookup, is_sortable
from frostline.server.meter import Meter
from frostline.server.printed import Ledger
from frostline.server.segments import Segment, placed, segments
from frostline.server.served_tables import ServedTables
from frostline.server.translate import duck
from frostline.server.translate.plan import DuckPlan, Scan, nothing
from frostline.server.translate.sampling import drawn

_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Question:
    """A query for DuckDB, and the files that it reads."""

    sql: str
    files: tuple[LakeFile, ...]
    new_files: int = 0
    """How many of them no other question of the same query has read."""
    lookup: Lookup | None = None
    """What it is, if others that differ in a constant may follow."""


@dataclass(frozen=True)
class Chosen:
    """The files that can hold a row of a scan, and how many cannot."""

    files: list[LakeFile]
    passed_over: int


def choose(scan: Scan, tables: ServedTables) -> Chosen:
    """Choose them by what is known of each file. That takes a while where there are thousands: once a query."""
    if scan.source.snapshot is None:
        return Chosen([], 0)
    all_files = tables.files(scan.source.remote, scan.source.snapshot)
    files = overlapping(all_files, scan.range)
    if scan.wants:
        files = [file for file in files if all(want.may_be_in(file) for want in scan.wants)]
    return Chosen(files, len(all_files) - len(files))


def answer(plan: DuckPlan, chosen: Chosen, meter: Meter) -> Question:
    """The whole query: every output is text."""
    return _candidates(plan.scan, chosen, meter, lambda source: _query(plan, source, plan.tail))


def _query(plan: DuckPlan, source: str, tail: str) -> str:
    # A result without columns still has rows, and DuckDB wants at least one expression.
    return duck.select(duck.listed(_named(plan)) or "null", source, tail)


def _named(plan: DuckPlan) -> Iterator[str]:
    return (f"{output} as c{position}" for position, output in enumerate(plan.outputs))


def in_order(plan: DuckPlan, chosen: Chosen, meter: Meter) -> Callable[[], Iterator[Segment]] | None:
    """The segments of a query that is answered file by file; None for any other, and where there is one file only."""
    if plan.ordered is None:
        return None
    column, table = plan.ordered.column, plan.scan.source.table
    is_tier_key = table.tier is not None and column.name == table.tier.name
    by_bounds = placed(chosen.files, column.field_id, is_tier_key=is_tier_key)
    if by_bounds is None or len(by_bounds) < 2:
        return None
    meter.pruned(chosen.passed_over)
    is_limited = plan.ordered.limit is not None or plan.ordered.extreme
    return partial(segments, by_bounds, downward=plan.ordered.downward, is_limited=is_limited)


def answer_of(plan: DuckPlan, part: Segment, most: int | None) -> Question:
    """The query for one segment, and of its rows so many at most."""
    assert plan.ordered is not None
    column = plan.ordered.column
    kind = BY_TYPNAME[column.pg_type.name]
    cut = () if part.is_whole else (ducktext.within(duck.column(column), kind, part.range),)
    tail = plan.ordered.clause + ("" if most is None else f" limit {most}")
    return _question(plan.scan, part.files, cut, lambda source: _query(plan, source, tail), part.new_files)


def looked_up(plan: DuckPlan, by: Sequence[Column], equal: Sequence[str], chosen: Chosen, meter: Meter) -> Question:
    """The query with further conditions, which want one value of each of these columns."""
    scan = _with_columns(plan.scan, by)
    wanted = replace(scan, conditions=(*scan.conditions, *equal), looked_up=(*by, *scan.looked_up))
    return answer(replace(plan, scan=wanted), chosen, meter)


def sorted_by(plan: DuckPlan, by: Sequence[Column], chosen: Chosen) -> Ledger | None:
    """All rows of the query that have a value in each of these columns; None where there is no file to read."""
    names = [duck.column(column) for column in by]
    known = duck.all_of(f"{name} is not null" for name in names)
    tail = f" where {known} order by {duck.listed(names)}"
    files, rows = tuple(chosen.files), sum(file.rows for file in chosen.files)

    def query(source: str) -> str:
        return duck.select(duck.listed((*names, *_named(plan))), source, tail)

    question = _question(_with_columns(plan.scan, by), files, (), query, len(files)) if files else None
    return question and Ledger(question.sql, len(names), len(plan.outputs), rows)


def _with_columns(scan: Scan, columns: Sequence[Column]) -> Scan:
    """Reads these too."""
    needed = {column.name for column in (*scan.columns, *columns)}
    return replace(scan, columns=tuple(column for column in scan.source.table.columns if column.name in needed))


def copy_lines(scan: Scan, tables: ServedTables, meter: Meter) -> Question:
    """The candidate rows in Postgres' COPY text format, one varchar with its newline a row."""
    values = (ducktext.copied_value(duck.column(column), column.encoding.lake_type) for column in scan.columns)
    snapshot = ducksql.literal(str(scan.source.snapshot))
    fields = " || chr(9) || ".join((*values, snapshot))
    query = partial(duck.select, f"{fields} || chr(10)")
    return _candidates(scan, choose(scan, tables), meter, query)


def _candidates(scan: Scan, chosen: Chosen, meter: Meter, query: Callable[[str], str]) -> Question:
    """The query, of the scan as a relation in FROM with its conditions."""
    meter.pruned(chosen.passed_over)
    files, sampled = drawn(chosen.files, scan.sample)
    if not files:
        return Question(query(nothing(scan)), ())
    return _question(scan, tuple(files), sampled, query, len(files))


def _question(
    scan: Scan, files: tuple[LakeFile, ...], further: Iterable[str], query: Callable[[str], str], new_files: int
) -> Question:
    """The query, of the rows of these files for which the scan's conditions, and further ones, hold."""
    table = scan.source.table
    if isinstance(table, LakeTable):
        return _lake_question(scan, table, files, further, query)
    asked = (condition for condition in scan.conditions if not _is_certain(condition, scan, files))
    key = table.column(table.tier.name)
    bounds = tuple(_bounds(key, table.tier.kind, scan.source.remote.range, files))
    where = " where " + duck.all_of((*bounds, *asked, *further))
    columns = {duck.name(column): column for column in (*scan.columns, key)}
    relation = duckfiles.read_parquet((_literal(file) for file in files), columns.items())

    def on(relation: str) -> str:
        return query(f"({duck.select('*', relation, where)})")

    lookup, by = None, tuple(duck.column(column) for column in scan.looked_up if is_sortable(column))
    if by and scan.sample is None:
        needed = columns.values() if bounds or further else scan.columns
        rows, file_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        lookup = Lookup(relation, rows, file_bytes, tuple(needed), by, on)
    return Question(on(relation), files, new_files, lookup)


def _lake_question(
    scan: Scan, table: LakeTable, files: tuple[LakeFile, ...], further: Iterable[str], query: Callable[[str], str]
) -> Question:
    """The same of a lake table, whose rows may be gone by a file that says so."""
    columns = {duck.name(column): column for column in scan.columns if column is not ROW_COLUMN}
    # DuckDB wants at least one column, and any will do.
    columns = columns or {duck.name(table.columns[0]): table.columns[0]}
    relation = lake_rows.relation(columns, [file.path for file in files], table.deletes)
    where = " where " + duck.all_of((*scan.conditions, *further))
    if ROW_COLUMN not in scan.columns:
        return Question(query(f"({duck.select('*', relation, where)})"), files, len(files))
    numbers = ", ".join(f"({_literal(file)}, {table.numbers[file.path]})" for file in files)
    numbered = f"{relation} as r join (values {numbers}) as n(numbered_path, number) on n.numbered_path = r.filename"
    row_id = f"{tid_sql('number', 'file_row_number')} as {duck.column(ROW_COLUMN)}"
    return Question(query(f"({duck.select(f'r.*, {row_id}', numbered, where)})"), files, len(files))


def _literal(file: LakeFile) -> str:
    """The file's name for DuckDB, which takes a name that is no file for a pattern, and would read others instead."""
    path = lake_rows.local(file.path)
    if _PATTERN.search(path) and not Path(path).exists():
        raise damage.missing(path)
    return ducksql.literal(path)


def _bounds(key: Column, kind: TierKind, asked: Range, files: Sequence[LakeFile]) -> Iterator[str]:
    """The bounds of the foreign table, where the files reach beyond them."""
    name = duck.column(key)
    if asked.lower is not None and any(file.lower < asked.lower for file in files):
        yield f"{name} >= {ducktext.tier_literal(kind, asked.lower)}"
    if asked.upper is not None and any(file.upper >= asked.upper for file in files):
        yield f"{name} < {ducktext.tier_literal(kind, asked.upper)}"


def _is_certain(condition: str, scan: Scan, files: Sequence[LakeFile]) -> bool:
    """Whether all rows of the files fulfil it, so that the tier key need not be read for it."""
    certain = scan.certain.get(condition)
    return certain is not None and all(certain.covers(file.range) for file in files)
