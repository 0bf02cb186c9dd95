"""Others may read the Iceberg catalog and keep tables of their own in it; the pointers of Frostline's are Frostline's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc
from pyiceberg.catalog.sql import SqlCatalog
from tests.fixtures.lake import Lake
from tests.fixtures.other_engines import reader
from tests.fixtures.outsider import identifier, lake_table, outsider, row
from tests.fixtures.quick import first, some
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events
from tests.fixtures.waiting import until

from frostline.catalog import pointers
from frostline.model import snapshot as rules
from frostline.pipeline import expire, snapshot, snapshot_drop
from frostline.pipeline.snapshot_plan import Request

pytestmark = pytest.mark.spark

POINTERS = "select table_namespace, table_name, metadata_location from frostline.iceberg_tables order by 1, 2"
MOVE = "update frostline.iceberg_tables set metadata_location = 'theirs' where table_name like 'events%%'"
WAITING = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Two months of rows in the lake only."""
    make_archived_events(lake, months=2, rows_a_month=20)
    return lake


DEEDS: dict[str, Callable[[SqlCatalog, Lake], Any]] = {
    "delete": lambda catalog, lake: lake_table(catalog, lake).delete("id < 10"),
    "append": lambda catalog, lake: lake_table(catalog, lake).append(row(1_000_001)),
    "overwrite": lambda catalog, lake: lake_table(catalog, lake).overwrite(row(1_000_001)),
    "drop": lambda catalog, lake: catalog.drop_table(identifier(lake)),
    "purge": lambda catalog, lake: catalog.purge_table(identifier(lake)),
    "rename": lambda catalog, lake: catalog.rename_table(identifier(lake), ("public", "mine")),
}


@pytest.mark.parametrize("deed", some(DEEDS, "append"))
def test_pyiceberg_cannot_commit_to_a_managed_table(cold: Lake, deed: str) -> None:
    before, files = rows(cold.catalog, POINTERS), cold.data_files()
    with (
        outsider(cold.dsn, past_the_guard=False) as catalog,
        pytest.raises(sqlalchemy.exc.DBAPIError, match=r"only Frostline commits to the Iceberg table public\.events_"),
    ):
        DEEDS[deed](catalog, cold)
    assert rows(cold.catalog, POINTERS) == before
    assert set(files) <= set(cold.data_files())
    assert cold.value("select count(*) from events") == 40
    assert cold.archive()[0].error is None


@pytest.mark.slow
def test_a_name_of_ours_cannot_be_taken_before_the_first_archive(lake: Lake) -> None:
    make_events(lake.catalog, "public.events", months=2)
    lake.add(hot="1 month")
    with outsider(lake.dsn, past_the_guard=False) as catalog:
        catalog.create_namespace_if_not_exists("public")
        with pytest.raises(Exception, match="only Frostline commits"):
            catalog.create_table(identifier(lake), row(1).schema, location=f"file://{lake.warehouse}/theirs")
        assert not catalog.list_tables("public")


@pytest.mark.slow
@pytest.mark.parametrize("name", first(2, ["events", "x" + "ä" * 30, "e" * 62, "日" * 20, "e.v'$", "e_7"]))
def test_postgres_and_python_give_the_lake_half_one_name(lake: Lake, name: str) -> None:
    make_events(lake.catalog, f'public."{name}"', months=0)
    table = lake.add(f'public."{name}"')
    assert rows(lake.catalog, "select table_namespace, table_name, metadata_location from frostline.own_pointer") == [
        ("public", table.internal, None)
    ]


def test_tables_of_others_are_their_own(cold: Lake) -> None:
    with outsider(cold.dsn, past_the_guard=False) as catalog:
        theirs = catalog.create_table(("public", "theirs_1"), row(1).schema, location=f"file://{cold.warehouse}/theirs")
        theirs.append(row(1))
        theirs.delete("id = 1")
        catalog.rename_table(("public", "theirs_1"), ("public", "still_theirs"))
        catalog.drop_table(("public", "still_theirs"))
    assert len(rows(cold.catalog, POINTERS)) == 1


STATEMENTS = (
    MOVE,
    "delete from frostline.iceberg_tables",
    "truncate frostline.iceberg_tables",
    "update frostline.iceberg_tables set table_name = 'mine'",
    "update frostline.iceberg_tables set table_namespace = 'mine'",
    "update frostline.iceberg_tables set catalog_name = 'mine'",
    "update frostline.iceberg_tables set metadata_location = null",
    "begin; set constraints all immediate; update frostline.iceberg_tables set metadata_location = 'theirs'; commit",
)


@pytest.mark.parametrize("statement", first(1, STATEMENTS))
def test_no_statement_moves_a_pointer_of_ours(cold: Lake, statement: str) -> None:
    before = rows(cold.catalog, POINTERS)
    with cold.connect() as connection, pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        run(connection, statement.replace("%%", "%"))
    assert refused.value.diag.message_hint
    assert rows(cold.catalog, POINTERS) == before


@pytest.mark.slow
def test_a_role_that_may_write_the_catalog_may_not_write_ours(cold: Lake) -> None:
    with role(cold.dsn, "writer") as dsn:
        run(cold.catalog, "grant usage on schema frostline to writer")
        run(cold.catalog, "grant select, insert, update, delete on frostline.iceberg_tables to writer")
        with psycopg.connect(dsn, autocommit=True) as connection:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="only Frostline commits"):
                run(connection, "update frostline.iceberg_tables set metadata_location = 'theirs'")
            run(connection, "insert into frostline.iceberg_tables values ('frostline', 'public', 'own', 'there')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                run(connection, "select * from frostline.own_pointer")


@pytest.mark.slow
def test_a_role_with_the_rights_of_the_guide_only_reads(cold: Lake) -> None:
    with reader(cold.dsn) as dsn, outsider(dsn, past_the_guard=False) as catalog:
        assert lake_table(catalog, cold).scan().count() == 40
        with pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied"):
            lake_table(catalog, cold).delete("id < 10")
    assert cold.archive()[0].error is None


@pytest.mark.slow
def test_a_transaction_that_puts_the_pointer_back_is_fine(cold: Lake) -> None:
    before = rows(cold.catalog, POINTERS)
    with cold.connect() as connection, connection.transaction():
        run(connection, MOVE)
        run(connection, "update frostline.iceberg_tables set metadata_location = %s", [before[0][2]])
    assert rows(cold.catalog, POINTERS) == before


@pytest.mark.parametrize("level", first(1, ["read committed", "repeatable read", "serializable"]))
def test_an_open_transaction_of_an_outsider_does_not_win_over_a_publish(cold: Lake, level: str) -> None:
    """The publish waits for the row, the other's commit is refused, and the publish goes on."""
    run(cold.catalog, "update public.events set status = 'changed' where id = 7")
    with cold.connect() as other, ThreadPoolExecutor(1) as pool:
        run(other, f"begin isolation level {level}")
        run(other, MOVE.replace("%%", "%"))
        folding = pool.submit(cold.fold)
        until(lambda: bool(cold.value(WAITING)))
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            run(other, "commit")
        (result,) = folding.result()
    assert (result.error, result.taken) == (None, 1)


@pytest.mark.slow
def test_a_transaction_from_before_a_publish_does_not_win_either(cold: Lake) -> None:
    run(cold.catalog, "update public.events set status = 'changed' where id = 7")
    with cold.connect() as other:
        run(other, "begin isolation level repeatable read")
        assert value(other, "select count(*) from frostline.iceberg_tables") == 1
        assert cold.fold()[0].error is None
        with pytest.raises(psycopg.errors.SerializationFailure):
            run(other, MOVE.replace("%%", "%"))


@pytest.mark.slow
def test_copies_of_a_snapshot_are_kept_too(cold: Lake) -> None:
    run(cold.catalog, "create table public.orders as select i as id from generate_series(1, 10) i")
    request = Request("nightly", tuple(rules.parse_patterns(["public.orders"])))

    def create() -> None:
        snapshot.create(cold.catalog, cold.session, cold.settings, request, lambda *_: None)

    create()
    copy = ("nightly", "public", "orders")
    with outsider(cold.dsn, past_the_guard=False) as catalog:
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="belongs to snapshot nightly"):
            catalog.load_table(copy).delete("id < 5")
        run(cold.catalog, "delete from public.orders where id = 1")
        create()
        assert catalog.load_table(copy).scan().count() == 9
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="belongs to snapshot nightly"):
            catalog.drop_table(copy)
        snapshot_drop.drop(cold.catalog, cold.settings, "nightly", version=2)
        assert catalog.load_table(copy).scan().count() == 10
        snapshot_drop.drop(cold.catalog, cold.settings, "nightly")
        assert len(rows(cold.catalog, POINTERS)) == 1


@pytest.mark.slow
def test_a_table_that_is_no_longer_managed_belongs_to_whoever_wants_it(cold: Lake) -> None:
    from frostline.relation import removal

    table = cold.table()
    removal.remove(cold.catalog, table.name, keep_lake=True)
    with outsider(cold.dsn, past_the_guard=False) as catalog:
        theirs = catalog.load_table((table.name.schema, table.internal))
        theirs.delete("id < 10")
        catalog.drop_table((table.name.schema, table.internal))
    assert rows(cold.catalog, POINTERS) == []


def test_every_commit_of_ours_passes_it(cold: Lake) -> None:
    """Each leaves the pointer where the seam is."""
    for work in (
        cold.fold,
        cold.compact,
        cold.archive,
        lambda: expire.run(cold.catalog, cold.settings, [cold.table()]),
    ):
        run(cold.catalog, "update public.events set amount = coalesce(amount, 0) + 1 where id = 7")
        assert [result.error for result in work()] == [None]
        assert not pointers.standing(cold.catalog, cold.table()).is_foreign
    cold.thaw(first="2024-01-01")
    assert not pointers.standing(cold.catalog, cold.table()).is_foreign
