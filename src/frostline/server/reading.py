"""DuckDB SQL that reads the Parquet files of one scan, matched by Iceberg field id."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from frostline.lake import damage, ducksql, ducktext
from frostline.model.range import overlapping
from frostline.model.tables import Column, LakeFile, Table
from frostline.model.tiers import BY_TYPNAME
from frostline.server.lake_tables import LakeTables
from frostline.server.meter import Meter
from frostline.server.segments import Segment, placed, segments
from frostline.server.translate import duck
from frostline.server.translate.plan import DuckPlan, Scan, nothing
from frostline.server.translate.sampling import drawn

_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Question:
    """A query for DuckDB, and the files that it reads."""

    sql: str
    files: tuple[LakeFile, ...]


def answer(plan: DuckPlan, tables: LakeTables, meter: Meter) -> Question:
    """The whole query: every output is text."""
    source, files = candidates(plan.scan, tables, meter)
    return Question(_query(plan, source, plan.tail), files)


def _query(plan: DuckPlan, source: str, tail: str) -> str:
    named = (f"{output} as c{position}" for position, output in enumerate(plan.outputs))
    # A result without columns still has rows, and DuckDB wants at least one expression.
    return duck.select(duck.listed(named) or "null", source, tail)


def in_order(plan: DuckPlan, tables: LakeTables, meter: Meter) -> Callable[[], Iterator[Segment]] | None:
    """The segments of a query that is answered file by file; None for any other, and where there is one file only."""
    if plan.ordered is None:
        return None
    found, passed_over = _chosen(plan.scan, tables)
    column, table = plan.ordered.column, plan.scan.source.table
    files = placed(found, column.field_id, is_tier_key=column.name == table.tier_key)
    if files is None or len(files) < 2:
        return None
    meter.planned(0, passed_over)
    is_limited = plan.ordered.limit is not None or plan.ordered.extreme
    return partial(segments, files, downward=plan.ordered.downward, is_limited=is_limited)


def answer_of(plan: DuckPlan, part: Segment, most: int | None, meter: Meter) -> Question:
    """The query for one segment, and of its rows so many at most."""
    assert plan.ordered is not None
    meter.planned(part.new_files, 0)
    column = plan.ordered.column
    kind = BY_TYPNAME[column.pg_type.name]
    cut = () if part.is_whole else (ducktext.within(duck.column(column), kind, part.range),)
    tail = plan.ordered.clause + ("" if most is None else f" limit {most}")
    return Question(_query(plan, _relation(plan.scan, part.files, cut), tail), part.files)


def copy_lines(scan: Scan, tables: LakeTables, meter: Meter) -> Question:
    """The candidate rows in Postgres' COPY text format, one varchar with its newline a row."""
    values = (ducktext.copied_value(duck.column(column), column.encoding.lake_type) for column in scan.columns)
    snapshot = ducksql.literal(str(scan.source.snapshot))
    fields = " || chr(9) || ".join((*values, snapshot))
    source, files = candidates(scan, tables, meter)
    return Question(duck.select(f"{fields} || chr(10)", source), files)


def _chosen(scan: Scan, tables: LakeTables) -> tuple[list[LakeFile], int]:
    """The files that can hold a row of the scan, and how many cannot."""
    if scan.source.snapshot is None:
        return [], 0
    every = tables.files(scan.source.table.id, scan.source.snapshot)
    found = overlapping(every, scan.range)
    if scan.wants:
        found = [file for file in found if all(want.may_be_in(file) for want in scan.wants)]
    return found, len(every) - len(found)


def candidates(scan: Scan, tables: LakeTables, meter: Meter) -> tuple[str, tuple[LakeFile, ...]]:
    """The scan as a relation in FROM, with its conditions, and its files."""
    found, passed_over = _chosen(scan, tables)
    meter.planned(len(found), passed_over)
    files, sampled = drawn(found, scan.sample)
    if not files:
        return nothing(scan), ()
    return _relation(scan, files, sampled), tuple(files)


def _relation(scan: Scan, files: Sequence[LakeFile], further: Iterable[str]) -> str:
    """The rows of these files for which the scan's conditions, and further ones, hold."""
    asked = (condition for condition in scan.conditions if not _is_certain(condition, scan, files))
    conditions = (*_range(scan, files), *asked, *further)
    columns = {duck.name(column): column for column in (*scan.columns, _tier_column(scan.source.table))}
    relation = ducksql.read_parquet((_literal(file) for file in files), columns.items())
    return f"({duck.select('*', relation, ' where ' + duck.all_of(conditions))})"


def _literal(file: LakeFile) -> str:
    """The file's name for DuckDB, which takes a name that is no file for a pattern, and would read others instead."""
    path = duck.local(file.path)
    if _PATTERN.search(path) and not Path(path).exists():
        raise damage.missing(path)
    return ducksql.literal(path)


def _range(scan: Scan, files: Sequence[LakeFile]) -> Iterator[str]:
    """The bounds of the foreign table, where the files reach beyond them."""
    table, remote = scan.source.table, scan.source.remote
    key = duck.column(_tier_column(table))
    if remote.lower is not None and any(file.lower < remote.lower for file in files):
        yield f"{key} >= {ducktext.tier_literal(table.tier_kind, remote.lower)}"
    if any(file.upper >= remote.upper for file in files):
        yield f"{key} < {ducktext.tier_literal(table.tier_kind, remote.upper)}"


def _is_certain(condition: str, scan: Scan, files: Sequence[LakeFile]) -> bool:
    """Whether all rows of the files fulfil it, so that the tier key need not be read for it."""
    certain = scan.certain.get(condition)
    return certain is not None and all(certain.covers(file.range) for file in files)


def _tier_column(table: Table) -> Column:
    return table.column(table.tier_key)
