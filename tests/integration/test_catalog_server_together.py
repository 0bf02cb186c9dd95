"""Postgres, PyIceberg and DuckDB write one lake table at the same time, each in its own way, and none loses a row."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyiceberg.types import IntegerType
from tests.fixtures.catalogserver import Served, serving
from tests.fixtures.lake import Lake
from tests.fixtures.other_engines import attached

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables, lake_verify

Rows = dict[int, int]
"""What a writer has left in the table: the value of `n` by id."""
STEPS, TRIES = 10, 300
LOST = (CommitFailedException, ValidationException)
"""What PyIceberg raises for a commit that came too late: as the server says, or as it sees itself when it tries again."""


pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")


@pytest.fixture
def rest(lake: Lake) -> Iterator[Served]:
    """A catalog server over a lake with one table, cut by what its writers are called."""
    columns = ("id bigint", "writer text", "n integer")
    lake_tables.create(lake.catalog, lake.settings, Name("public", "shared"), columns, Layout(["writer"]))
    with serving(lake.dsn, lake.settings.warehouse) as running:
        yield running


def tried(deed: Callable[[], object], refused: Callable[[Exception], bool], again: Callable[[], object]) -> None:
    """Do it, and again while somebody else was faster. Any other error is one."""
    for _ in range(TRIES):
        try:
            deed()
        except Exception as error:
            if not refused(error):
                raise
            again()
        else:
            return
    raise AssertionError("somebody else was always faster")


def in_postgres(lake: Lake, writer: int) -> Rows:
    """INSERT, UPDATE and DELETE, some of them together in a transaction."""
    mine, choose = Rows(), random.Random(writer)
    with lake.connect() as session:
        for step in range(STEPS):
            ids = range(1000 * writer + 10 * step, 1000 * writer + 10 * step + 3)
            changed = choose.choice(list(mine)) if mine else -1
            gone = choose.choice([key for key in mine if key != changed] or [-1])

            def write(ids: range = ids, changed: int = changed, gone: int = gone) -> None:
                with session.transaction():
                    session.execute(
                        "insert into public.shared (id, writer, n) select unnest(%s::int[]), %s, 0",
                        (list(ids), str(writer % 2)),
                    )
                    session.execute("update public.shared set n = n + 1 where id = %s", (changed,))
                    session.execute("delete from public.shared where id = %s", (gone,))

            tried(write, lambda error: isinstance(error, psycopg.errors.SerializationFailure), lambda: None)
            mine.update(dict.fromkeys(ids, 0))
            if changed > 0:
                mine[changed] += 1
            mine.pop(gone, None)
    return mine


def in_pyiceberg(rest: Served) -> Rows:
    """Appends, deletes that write files anew, overwrites, and columns that come and go."""
    table, mine = rest.client(write=True).load_table("public.shared"), Rows()

    def commit(deed: Callable[[Table], object]) -> None:
        tried(lambda: deed(table), lambda error: isinstance(error, LOST), table.refresh)

    for step in range(STEPS):
        ids = range(100_000 + 10 * step, 100_000 + 10 * step + 3)
        commit(lambda table, ids=ids: table.append(_arrow(table, dict.fromkeys(ids, 0))))
        mine.update(dict.fromkeys(ids, 0))
        if step % 3 == 1:
            commit(lambda table, gone=ids[0] - 10: table.delete(f"id == {gone}"))
            mine.pop(ids[0] - 10)
        if step % 3 == 2:
            commit(lambda table, key=ids[1]: table.overwrite(_arrow(table, {key: 7}), overwrite_filter=f"id == {key}"))
            mine[ids[1]] = 7
        if step in (4, 7):
            commit(_with_another_column)
    return mine


def _with_another_column(table: Table) -> None:
    """Or without it, if it is there."""
    with table.update_schema() as update:
        if "more" in table.schema().column_names:
            update.delete_column("more")
        else:
            update.add_column("more", IntegerType())


def _arrow(table: Table, rows: Rows) -> pa.Table:
    schema = table.schema().as_arrow()
    return pa.Table.from_pylist([{"id": key, "writer": "0", "n": n} for key, n in rows.items()], schema)


def in_duckdb(rest: Served) -> Rows:
    """INSERT, UPDATE and DELETE, in transactions of its own, and a column that comes and goes."""
    mine = Rows()
    with attached(rest) as engine:
        for step in range(STEPS):
            ids = range(200_000 + 10 * step, 200_000 + 10 * step + 3)
            values = ", ".join(f"({key}, '1', 0)" for key in ids)
            statements = [f"insert into lake.public.shared (id, writer, n) values {values}"]
            if step % 2:
                statements.append(f"delete from lake.public.shared where id = {ids[0] - 10}")
                statements.append(f"update lake.public.shared set n = 3 where id = {ids[1] - 10}")
            if step in (3, 6):
                change = "add column extra integer" if step == 3 else "drop column extra"
                statements.append(f"alter table lake.public.shared {change}")
            for statement in statements:
                tried(lambda statement=statement: engine.execute(statement), _is_lost, lambda: None)
            mine.update(dict.fromkeys(ids, 0))
            if step % 2:
                mine.pop(ids[0] - 10)
                mine[ids[1] - 10] = 3
            engine.execute("select count(*) from lake.public.shared").fetchall()
    return mine


def _is_lost(error: Exception) -> bool:
    return isinstance(error, duckdb.Error) and "CommitFailedException" in str(error)


def test_each_engine_writes_while_the_others_do_and_all_of_it_is_there(lake: Lake, rest: Served) -> None:
    with ThreadPoolExecutor(4) as pool:
        writers = [
            pool.submit(in_postgres, lake, 1),
            pool.submit(in_postgres, lake, 2),
            pool.submit(in_pyiceberg, rest),
            pool.submit(in_duckdb, rest),
        ]
        expected = sorted(row for writer in writers for row in writer.result().items())
    query = "select id, n from {}shared order by id"
    with lake.connect() as session:
        assert session.execute(query.format("public.").encode()).fetchall() == expected
    read: Any = rest.client().load_table("public.shared").scan().to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True)) == expected
    with attached(rest) as engine:
        assert engine.execute(query.format("lake.public.")).fetchall() == expected
    pointer = catalog.load(lake.catalog, Pointer("public", "shared"))
    assert lake_verify.run(lake.catalog, pointer, history=True).faults == ()
