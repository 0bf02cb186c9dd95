"""Lake tables whose columns, partitions and files another engine has changed, as Postgres sees them."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, IntegerType, LongType
from tests.fixtures.catalogserver import NUMBERS, Served, numbers, serving
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import value

from frostline.catalog import lake_tables as catalog
from frostline.catalog import lake_upkeep
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import UsageError
from frostline.lake import lake_commit, lake_table
from frostline.lake.lake_commit import Added
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_expire, lake_tables

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")


@pytest.fixture
def rest(lake: Lake) -> Iterator[Served]:
    """A catalog server over the lake."""
    with serving(lake.dsn, lake.settings.warehouse) as running:
        yield running


@pytest.fixture
def psql(lake: Lake) -> Iterator[psycopg.Connection]:
    """A session, with a lake table `t` in which five rows are."""
    columns = ("id bigint not null", "a int", "b text", "p numeric(6,2)", "f real")
    lake_tables.create(lake.catalog, lake.settings, Name("public", "t"), columns, Layout(["bucket(2, id)"], ["id"]))
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        connection.execute("insert into t select i, i, 'b' || i, i, i from generate_series(1, 5) i")
        yield connection


@pytest.fixture
def table(rest: Served, psql: psycopg.Connection) -> Table:
    """The same table as PyIceberg has it."""
    del psql
    return rest.client(write=True).load_table("public.t")


def rows(session: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return session.execute(query.encode()).fetchall()


def pointer(lake: Lake, name: str = "t") -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", name))


def evolve(table: Table, change: Callable[[UpdateSchema], object]) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        change(update)


def sync(lake: Lake) -> int:
    return len(lake_tables.sync(lake.catalog, pointer(lake), dry_run=False))


def foreign(lake: Lake, name: str, columns: str = "id bigint, word text") -> None:
    """A foreign table for a lake table that another engine has made."""
    options = f"schema_name 'lake', table_name 'lake_{pointer(lake, name).id}'"
    lake.catalog.execute(
        f"create foreign table public.{name} ({columns}) server frostline_lake options ({options})".encode()
    )


def test_a_column_that_was_added_is_no_hindrance_and_is_there_after_sync(
    lake: Lake, psql: psycopg.Connection, table: Table
) -> None:
    evolve(table, lambda update: update.add_column("more", IntegerType()))
    psql.execute("insert into t (id, b) values (6, 'six')")
    assert rows(psql, "select * from t where id > 4 order by id") == [
        (5, 5, "b5", 5, 5.0),
        (6, None, "six", None, None),
    ]
    assert sync(lake) == 2, "a column, and for which columns it is made"
    psql.execute("insert into t (id, more) values (7, 70)")
    assert rows(psql, "select id, more from t where id > 5 order by id") == [(6, None), (7, 70)]
    assert sync(lake) == 0


def test_names_that_mean_other_columns_by_now_are_refused_until_sync(
    lake: Lake, psql: psycopg.Connection, table: Table
) -> None:
    """Two exchange their names: by names alone, each would silently show the other one's values."""
    psql.execute("create view kept as select id, b, a from t")
    psql.execute("alter foreign table t alter a set default 7")
    evolve(table, lambda update: update.add_column("c", IntegerType()))
    sync(lake)
    psql.execute("update t set c = 10 * a")
    for old, new in (("a", "aside"), ("c", "a"), ("aside", "c"), ("b", "words")):
        evolve(table.refresh(), lambda update, old=old, new=new: update.rename_column(old, new))
    for statement in (
        "select id from t",
        "update t set a = 1 where id = 1",
        "delete from t",
        "insert into t (id) values (9)",
        "update t set a = 1 where random() < 2",
    ):
        with pytest.raises(psycopg.Error, match="column a is called c") as refused:
            psql.execute(statement.encode())
        assert "frostline lake sync public.t" in str(refused.value)
    assert sync(lake)
    assert rows(psql, "select id, a, c, words from t where id = 2") == [(2, 20, 2, "b2")]
    assert rows(psql, "select * from kept where id = 2") == [(2, "b2", 2)], "views follow the columns"
    psql.execute("insert into t (id) values (9)")
    assert rows(psql, "select a, c from t where id = 9") == [(None, 7)], "and so do defaults"


def test_types_that_became_wider_and_columns_that_are_gone_are_followed(
    lake: Lake, psql: psycopg.Connection, table: Table
) -> None:
    for column, wider in (("a", LongType()), ("p", DecimalType(10, 2)), ("f", DoubleType())):
        evolve(table.refresh(), lambda update, column=column, wider=wider: update.update_column(column, wider))
    with pytest.raises(psycopg.Error, match="column a was int and is long"):
        psql.execute("select id from t")
    sync(lake)
    psql.execute("update t set a = 5000000000, p = 12345678.91, f = 0.1 where id = 2")
    assert rows(psql, "select id from t where f = 0.1 or f = 3 order by id") == [(2,), (3,)]
    assert rows(psql, "select sum(a), sum(p) from t") == [(5_000_000_013, Decimal("12345691.91"))]
    psql.execute("create view kept as select b from t")
    evolve(table.refresh(), lambda update: update.delete_column("b"))
    with pytest.raises(psycopg.Error, match="column b is gone"):
        psql.execute("select id from t")
    with pytest.raises(UsageError, match="other objects depend on it"):
        sync(lake)
    psql.execute("drop view kept")
    sync(lake)
    assert rows(psql, "select * from t where id = 1") == [(1, 1, 1, 1.0)]
    evolve(table.refresh(), lambda update: update.add_column("b", IntegerType()))
    sync(lake)
    assert rows(psql, "select b from t where id = 1") == [(None,)], "a column of an old name is a new one"


def test_a_foreign_table_that_does_not_say_its_columns_is_refused_when_a_type_was_changed(
    lake: Lake, psql: psycopg.Connection, table: Table
) -> None:
    """As those are that were made before foreign tables said so."""
    psql.execute("alter foreign table t options (set schema_name 'lake')")
    evolve(table, lambda update: update.rename_column("b", "words"))
    with pytest.raises(psycopg.errors.UndefinedColumn):
        psql.execute("select b from t")
    evolve(table, lambda update: update.update_column("a", LongType()))
    with pytest.raises(psycopg.Error, match="column a was integer and is long"):
        psql.execute("select id from t")
    psql.execute("alter foreign table t options (drop schema_name)")
    with pytest.raises(psycopg.Error, match="column a was integer and is long"):
        psql.execute("insert into t (id) values (6)")
    sync(lake)
    assert rows(psql, "select a, words from t where id = 1") == [(1, "b1")]
    psql.execute("alter foreign table t options (set schema_name 'schema_77')")
    with pytest.raises(psycopg.Error, match="the lake table has forgotten"):
        psql.execute("select id from t")


def test_a_column_with_a_name_of_its_own_in_postgres_keeps_it(
    lake: Lake, psql: psycopg.Connection, table: Table
) -> None:
    psql.execute("alter foreign table t rename b to mine")
    psql.execute("alter foreign table t alter mine options (add column_name 'b')")
    evolve(table, lambda update: update.rename_column("b", "words"))
    sync(lake)
    assert rows(psql, "select mine from t where id = 1") == [("b1",)]


def test_new_partitions_and_another_order_are_followed_at_once(psql: psycopg.Connection, table: Table) -> None:
    with table.update_spec() as spec:
        spec.remove_field(table.spec().fields[0].name)
        spec.add_field("a", BucketTransform(3), "a_bucket")
    with table.update_sort_order() as order:
        order.desc("p", IdentityTransform())
    psql.execute("insert into t (id, a) values (6, 6), (7, null)")
    psql.execute("delete from t where id in (1, 6)")
    psql.execute("update t set a = 40 where id in (4, 7)")
    assert rows(psql, "select id, a from t order by id") == [(2, 2), (3, 3), (4, 40), (5, 5), (7, 40)]
    changed = table.refresh().scan(row_filter="a = 40").to_arrow()
    assert sorted(cast(list[int], changed["id"].to_pylist())) == [4, 7]


def test_rows_without_a_column_that_became_not_null_meanwhile_are_not_committed(
    psql: psycopg.Connection, table: Table
) -> None:
    psql.execute("begin; insert into t (id) values (6)")
    evolve(table, lambda update: update.add_column("must", IntegerType(), required=True))
    with pytest.raises(psycopg.errors.SerializationFailure):
        psql.execute("commit")
    with pytest.raises(psycopg.errors.NotNullViolation):
        psql.execute("insert into t (id) values (6)")
    psql.execute("begin; delete from t where id = 5")
    evolve(table, lambda update: update.add_column("may", IntegerType()))
    psql.execute("commit")
    assert rows(psql, "select count(*) from t") == [(4,)]


def test_pyiceberg_and_postgres_write_one_table_and_read_the_same(psql: psycopg.Connection, table: Table) -> None:
    schema = table.schema().as_arrow()

    def given(*ids: int) -> pa.Table:
        filled = [{"id": number, "a": -number, "b": "py", "p": None, "f": float("nan")} for number in ids]
        return pa.Table.from_pylist(filled, schema=schema)

    table.append(given(6, 7, 8))
    first = table.metadata.current_snapshot_id
    psql.execute("update t set a = a * 10 where id in (5, 6)")
    table.refresh().delete("id = 7")
    table.overwrite(given(8, 9), overwrite_filter="id = 8")
    psql.execute("delete from t where b = 'b1'")
    done = table.refresh().upsert(given(9, 10), join_cols=["id"])
    assert done.rows_inserted == 1
    psql.execute("insert into t (id) select max(id) + 1 from t")
    expected = [(2, 2), (3, 3), (4, 4), (5, 50), (6, -60), (8, -8), (9, -9), (10, -10), (11, None)]
    assert rows(psql, "select id, a from t order by id") == expected
    read = table.refresh().scan(selected_fields=("id", "a")).to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["a"]) for row in read] == expected
    assert len(table.scan(snapshot_id=first).to_arrow()) == 8, "the past is as it was"
    psql.execute("begin; update t set a = 1 where id = 9")
    table.delete("id = 9")
    with pytest.raises(psycopg.errors.SerializationFailure):
        psql.execute("commit")
    psql.execute("begin; insert into t (id) values (12)")
    table.append(given(13))
    psql.execute("commit")
    assert rows(psql, "select array_agg(id order by id) from t where id > 8") == [([10, 11, 12, 13],)]


def test_files_are_the_same_however_an_engine_spells_where_they_are(lake: Lake, rest: Served) -> None:
    """Hadoop's libraries write file:/ for file:///: rows of such files were never found again."""
    client = rest.client(write=True)
    client.create_namespace("public")
    made = client.create_table("public.spelled", NUMBERS)
    made.append(numbers(1, 2, 3, 4))
    state = lake_table.state(pointer(lake, "spelled").metadata_location)
    (known,) = state.data.values()
    file = DataFile.from_args(
        content=known.content,
        file_path=known.file_path.replace("file:///", "file:/"),
        file_format="PARQUET",
        partition=known.partition,
        record_count=4,
        file_size_in_bytes=known.file_size_in_bytes,
    )
    file.spec_id = 0
    empty = lake_table.state(client.load_table("public.spelled").metadata.metadata_log[0].metadata_file)
    staged = lake_commit.stage(pointer(lake, "spelled").id, empty, Added(data=[file]))
    lake.catalog.execute(
        "update frostline.iceberg_tables set metadata_location = %s where table_name = 'spelled'",
        [staged.move.location],
    )
    foreign(lake, "spelled")
    with psycopg.connect(lake.dsn, autocommit=True) as psql:
        assert psql.execute("delete from spelled where id = 1").rowcount == 1
        assert psql.execute("update spelled set word = 'z' where id = 2 and random() < 2").rowcount == 1
        expected = [(2, "z"), (3, "new"), (4, "new")]
        assert rows(psql, "select * from spelled order by id") == expected
        read = client.load_table("public.spelled").scan().to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["word"]) for row in read] == expected


def test_files_that_cannot_be_read_by_ids_or_are_of_an_old_format_are_not_guessed_at(
    lake: Lake, rest: Served, tmp_path: Path
) -> None:
    client = rest.client(write=True)
    client.create_namespace("public")
    named = client.create_table("public.named", NUMBERS)
    place = Path(named.location().removeprefix("file://")) / "data" / "given.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(numbers(1), place)
    named.add_files([f"file://{place}"])
    client.create_table("public.old", NUMBERS, properties={"format-version": "1"}).append(numbers(1, 2))
    for name in ("named", "old"):
        foreign(lake, name)
    with psycopg.connect(lake.dsn, autocommit=True) as psql:
        with pytest.raises(psycopg.Error, match="without field ids"):
            psql.execute("select * from named")
        assert rows(psql, "select id from old order by id") == [(1,), (2,)]
        for statement in ("insert into old values (3)", "delete from old where id = 1", "update old set word = 'x'"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="read and not written"):
                psql.execute(statement.encode())
        old = next(table for table in catalog.listed(lake.catalog) if table.table == "old")
        lake.catalog.execute("update frostline.former_lake_state set replaced_at = replaced_at - interval '9 days'")
        expired = lake_expire.expire_table(lake.catalog, lake.settings, old)
        assert (expired.files, expired.waiting) == (0, (lake_expire.READ_ONLY,))
        due = [known.expirable for known in lake_upkeep.survey(lake.catalog) if known.id == old.id]
        assert due == [0], "the worker does not come by for it"
        with client.load_table("public.old").transaction() as transaction:
            transaction.upgrade_table_version(2)
        psql.execute("delete from old where id = 1")
        assert rows(psql, "select id from old") == [(2,)]


def test_the_command_line_shows_what_is_out_of_line_and_mends_it(
    lake: Lake, psql: psycopg.Connection, table: Table, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    evolve(table, lambda update: update.rename_column("b", "words"))
    evolve(table, lambda update: update.add_column("more", LongType()))
    assert "public.t" in command("lake", "show", "t").stdout
    planned = command("lake", "sync", "t", "--dry-run")
    assert 'rename column "b"' in planned.stdout
    with pytest.raises(psycopg.Error, match="frostline lake sync"):
        psql.execute("select 1 from t")
    assert command("lake", "sync", "t").exit_code == 0
    assert command("lake", "sync", "t", "--output", "json").stdout.strip() == "[]"
    assert rows(psql, "select words, more from t where id = 1") == [("b1", None)]
    assert value(lake.catalog, "select count(*) from pg_attribute where attname like 'frostline_column%'") == 0
