"""Postgres, PyIceberg and DuckDB write one lake table at the same time, whoever has made it, and none loses a row."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from tests.fixtures.catalogserver import Served, serving
from tests.fixtures.lake import Lake
from tests.fixtures.other_engines import attached
from tests.fixtures.quick import some

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_register, lake_tables, lake_verify

Rows = dict[int, int]
"""What a writer has left in the table: the value of `n` by id."""
SHARED = Pointer("public", "shared")
STEPS, TRIES = 10, 300
LOST = (CommitFailedException, ValidationException)
"""What PyIceberg raises for a commit that came too late: as the server says, or as it sees itself when it tries again."""


pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")


@pytest.fixture
def rest(lake: Lake) -> Iterator[Served]:
    """A catalog server over an empty lake."""
    with serving(lake.dsn, lake.settings.warehouse) as running:
        yield running


def made_in_postgres(lake: Lake, rest: Served) -> None:
    """Cut by what its writers are called."""
    columns = ("id bigint", "writer text", "n integer")
    lake_tables.create(lake.catalog, lake.settings, Name(*SHARED), columns, Layout(["writer"]))


def made_in_pyiceberg(lake: Lake, rest: Served) -> None:
    """The same, and a foreign table for it."""
    client = rest.client(write=True)
    client.create_namespace(SHARED.namespace)
    columns = {"id": LongType(), "writer": StringType(), "n": IntegerType()}
    schema = Schema(*(NestedField(place, *column) for place, column in enumerate(columns.items(), 1)))
    cut = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="writer"))
    client.create_table(tuple(SHARED), schema, partition_spec=cut)
    lake_register.register(lake.catalog, lake.settings, SHARED, Name(*SHARED), None)


def made_in_duckdb(lake: Lake, rest: Served) -> None:
    """Not cut, and a foreign table for it."""
    with attached(rest) as engine:
        engine.execute("create schema lake.public")
        engine.execute("create table lake.public.shared (id bigint, writer varchar, n integer)")
    lake_register.register(lake.catalog, lake.settings, SHARED, Name(*SHARED), None)


MAKERS = (made_in_postgres, made_in_pyiceberg, made_in_duckdb)


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


@pytest.mark.parametrize("make", some(MAKERS, made_in_postgres, made_in_duckdb))
def test_each_engine_writes_while_the_others_do_and_all_of_it_is_there(
    lake: Lake, rest: Served, make: Callable[[Lake, Served], None]
) -> None:
    make(lake, rest)
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
    pointer = catalog.load(lake.catalog, SHARED)
    assert lake_verify.run(lake.catalog, pointer, history=True).faults == ()
