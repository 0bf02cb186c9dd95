"""DuckDB SQL that reads the Parquet files of one scan, matched by Iceberg field id."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from frostline.lake import damage, ducksql, ducktext
from frostline.model.range import overlapping
from frostline.model.tables import Column, LakeFile, Table
from frostline.server.lake_tables import LakeTables
from frostline.server.meter import Meter
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
    named = (f"{output} as c{position}" for position, output in enumerate(plan.outputs))
    source, files = candidates(plan.scan, tables, meter)
    # A result without columns still has rows, and DuckDB wants at least one expression.
    return Question(duck.select(duck.listed(named) or "null", source, plan.tail), files)


def copy_lines(scan: Scan, tables: LakeTables, meter: Meter) -> Question:
    """The candidate rows in Postgres' COPY text format, one varchar with its newline a row."""
    values = (ducktext.copied_value(duck.column(column), column.encoding.lake_type) for column in scan.columns)
    snapshot = ducksql.literal(str(scan.source.snapshot))
    fields = " || chr(9) || ".join((*values, snapshot))
    source, files = candidates(scan, tables, meter)
    return Question(duck.select(f"{fields} || chr(10)", source), files)


def files_of(scan: Scan, tables: LakeTables, meter: Meter) -> list[LakeFile]:
    """The files that can hold a row of the scan."""
    if scan.source.snapshot is None:
        return []
    every = tables.files(scan.source.table.id, scan.source.snapshot)
    wanted = overlapping(every, scan.range)
    meter.planned(len(wanted), len(every) - len(wanted))
    return wanted


def candidates(scan: Scan, tables: LakeTables, meter: Meter) -> tuple[str, tuple[LakeFile, ...]]:
    """The scan as a relation in FROM, with its conditions, and its files."""
    files, sampled = drawn(files_of(scan, tables, meter), scan.sample)
    if not files:
        return nothing(scan), ()
    asked = (condition for condition in scan.conditions if not _is_certain(condition, scan, files))
    conditions = (*_range(scan, files), *asked, *sampled)
    columns = {duck.name(column): column for column in (*scan.columns, _tier_column(scan.source.table))}
    relation = ducksql.read_parquet((_literal(file) for file in files), columns.items())
    return f"({duck.select('*', relation, ' where ' + duck.all_of(conditions))})", tuple(files)


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
