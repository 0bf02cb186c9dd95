"""Rows of lake tables in DuckDB: which of them are gone."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline.lake import lake_rows
from frostline.model.tables import Column
from frostline.model.types import Collation, PgType, encoding

BIGINT = PgType("bigint", "int8", builtin=True)
COLUMN = Column("id", 1, 1, BIGINT, encoding(BIGINT, Collation.NONE), Collation.NONE, not_null=False)
FIELD = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three, whose order is not that of their names; each has 100 rows, of which the first is its number."""
    made = list[str]()
    for number, name in enumerate(("m", "z", "a")):
        path = tmp_path / f"{name}.parquet"
        ids = pa.array(range(100 * number, 100 * number + 100), pa.int64())
        pq.write_table(pa.Table.from_arrays([ids], schema=pa.schema([FIELD])), path, row_group_size=40)
        made.append(f"file://{path}")
    return made


def deletes(tmp_path: Path, name: str, gone: list[tuple[str, int]]) -> str:
    path = tmp_path / f"{name}.parquet"
    pq.write_table(pa.table({"file_path": [row[0] for row in gone], "pos": [row[1] for row in gone]}), path)
    return f"file://{path}"


def test_the_rows_that_delete_files_name_are_not_there_however_an_engine_has_spelled_the_file(
    tmp_path: Path, files: list[str]
) -> None:
    first, second, third = files
    gone = [
        deletes(tmp_path, "one", [(first, 0), (third, 99), ("file:///somewhere/else.parquet", 5)]),
        deletes(tmp_path, "two", [(second.replace("file:///", "file:/"), 50), (third, 99), (third, 7)]),
    ]
    relation = lake_rows.relation({"id": COLUMN}, files, gone)
    with duckdb.connect() as connection:
        read = {row[0] for row in connection.execute(f"select id from {relation}").fetchall()}
        last = connection.execute(
            f"select count(*), min(id), max(id) from {relation} where filename = '{third.removeprefix('file://')}'"
        ).fetchall()
    assert set(range(300)) - read == {0, 150, 207, 299}
    assert last == [(98, 200, 298)]


def test_duckdb_numbers_files_as_they_are_listed_also_when_it_passes_some_over(files: list[str]) -> None:
    """It is how deleted rows are found: another version must not do it in another way."""
    paths = [file.removeprefix("file://") for file in files]
    listed = ", ".join(f"'{path}'" for path in paths)
    query = f"select distinct filename, file_index from read_parquet([{listed}])"
    with duckdb.connect() as connection:
        assert set(connection.execute(query).fetchall()) == {(path, number) for number, path in enumerate(paths)}
        assert connection.execute(f"{query} where filename = '{paths[2]}'").fetchall() == [(paths[2], 2)]
        assert connection.execute(f"{query} where id between 120 and 130").fetchall() == [(paths[1], 1)]
