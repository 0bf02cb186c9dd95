"""A snapshot on a real REST catalog: the copies are there for whoever asks it."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table
from tests.fixtures import copies, killed
from tests.fixtures.lake import Lake, running_on
from tests.fixtures.proxy import Answered, Asked, Forward, answers, proxied
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import snapshot_versions
from frostline.errors import ConflictError, CorruptionError, OutcomeUnknown, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import objectstore, paths, rest, snapshots, transaction, warehouse
from frostline.lake.lake_table import Layout
from frostline.lake.objectstore import Access
from frostline.model.names import Name
from frostline.pipeline import lake_tables, snapshot_destinations, snapshot_drop
from frostline.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NO_PATH = b'{"error": {"message": "Path not found", "type": "NotFound", "code": 404}}'
_STATES = "select version, state, atomic from frostline.snapshot order by 1"


@pytest.fixture(scope="module")
def bucket(seaweed: Seaweed) -> str:
    """One for all: the store has room for few."""
    return seaweed.new_table_bucket()


@pytest.fixture(scope="module")
def warehouses(seaweed: Seaweed) -> str:
    """A bucket of files: one of tables has no room for anything else."""
    return f"s3://{seaweed.new_bucket()}"


@pytest.fixture
def outside(
    database: str, seaweed: Seaweed, bucket: str, warehouses: str, request: pytest.FixtureRequest
) -> Iterator[Lake]:
    """A lake whose copies go to the REST catalog, with two tables."""
    keys = {"s3_access_key": seaweed.access_key, "s3_secret_key": seaweed.secret_key, "s3_region": seaweed.region}
    catalog = {
        "catalog_uri": seaweed.iceberg_uri,
        "catalog_warehouse": f"s3://{bucket}",
        "catalog_credential": SecretStr(f"{seaweed.access_key}:{seaweed.secret_key}"),
    }
    access = Access(
        seaweed.access_key, seaweed.secret_key, region=seaweed.region, endpoint=seaweed.s3_endpoint, path_style=True
    )
    more: dict[str, Any] = {**keys, **catalog, "s3_endpoint": seaweed.s3_endpoint}
    with objectstore.used(access), running_on(database, f"{warehouses}/{uuid4()}", request, **more) as lake:
        run(
            lake.catalog, "create table public.one as select i as id, 'row ' || i as note from generate_series(1, 20) i"
        )
        run(lake.catalog, "create table public.two as select 1 as id")
        settings = lake.settings
        yield lake
        _forget(settings)


def _forget(settings: Settings) -> None:
    with rest.opened(settings) as catalog:
        rest.drop(catalog, [("nightly", "public", name) for name in ("one", "two", "events", "log")])


def asked(lake: Lake, table: str) -> list[Any] | None:
    """The rows that the catalog's table has, in order."""
    with rest.opened(lake.settings) as catalog:
        loaded = rest.load(catalog, ("nightly", "public", table))
        return None if loaded is None else sorted(loaded.scan().to_arrow()["id"].to_pylist())


@pytest.mark.quick
def test_versions_are_made_shown_and_dropped(outside: Lake) -> None:
    result = copies.create(outside, "public.*")
    assert (asked(outside, "one"), asked(outside, "two")) == (list(range(1, 21)), [1])
    run(
        outside.catalog,
        "delete from public.one where id > 3; alter table public.two add more text; drop table public.two",
    )
    run(outside.catalog, "create table public.two (more text, id int); insert into public.two values ('x', 7)")
    again = copies.create(outside, "public.*", incremental=True)
    assert (asked(outside, "one"), asked(outside, "two")) == ([1, 2, 3], [7])
    assert (result.version, again.version) == (1, 2)
    assert copies.create(outside, "public.*", incremental=True).tables[0].reused
    assert value(outside.catalog, "select count(*) from frostline.iceberg_tables") == 0
    with pytest.raises(UsageError, match="cannot go back to an older one"):
        snapshot_drop.drop(outside.catalog, outside.settings, "nightly", version=3)
    assert snapshot_drop.drop(outside.catalog, outside.settings, "nightly", version=1).versions == (1,)
    assert asked(outside, "one") == [1, 2, 3]
    assert snapshot_drop.drop(outside.catalog, outside.settings, "nightly").versions == (2, 3)
    assert asked(outside, "one") is None


def test_a_lake_table_goes_to_the_catalog_in_versions_too(outside: Lake) -> None:
    lake_tables.create(outside.catalog, outside.settings, Name("public", "log"), ["id int", "note text"], Layout())
    run(outside.catalog, "insert into public.log select i, 'row ' || i from generate_series(1, 9) i")
    run(outside.catalog, "delete from public.log where id > 4")
    copies.create(outside, "public.*")
    assert (asked(outside, "log"), asked(outside, "two")) == ([1, 2, 3, 4], [1])
    assert all(table.reused for table in copies.create(outside, "public.*", incremental=True).tables)
    run(outside.catalog, "insert into public.log values (5, 'more')")
    again = copies.create(outside, "public.*", incremental=True)
    assert {table.name.table: table.reused for table in again.tables} == {"log": False, "one": True, "two": True}
    assert asked(outside, "log") == [1, 2, 3, 4, 5]


def test_a_table_that_somebody_else_committed_to_is_a_conflict(outside: Lake) -> None:
    copies.create(outside, "public.*")
    with rest.opened(outside.settings) as catalog:
        loaded = rest.load(catalog, ("nightly", "public", "two"))
        assert loaded
        loaded.append(loaded.scan().to_arrow())
    with pytest.raises(ConflictError, match=r"nightly\.public\.two in the catalog was committed to by somebody else"):
        copies.create(outside, "public.*")
    assert rows(outside.catalog, _STATES)[-1][1] == "failed"


def test_a_rival_commit_in_the_last_moment_is_told_with_a_way_out_that_works(outside: Lake) -> None:
    copies.create(outside, "public.*")
    commit_all = transaction.commit_all

    def late(catalog: rest.Catalog, changes: Any, **options: Any) -> Any:
        loaded = rest.load(catalog, ("nightly", "public", "two"))
        assert loaded
        loaded.append(loaded.scan().to_arrow())
        return commit_all(catalog, changes, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_destinations.transaction, "commit_all", late)
        with pytest.raises(ConflictError, match=r"nightly\.public\.two in the catalog was committed to") as refused:
            copies.create(outside, "public.*")
    assert refused.value.hint
    assert "run the command again" not in refused.value.hint  # it would be refused, for the same reason
    with rest.opened(outside.settings) as catalog:
        rest.drop(catalog, [("nightly", "public", "two")])
    copies.create(outside, "public.*")
    assert (asked(outside, "one"), asked(outside, "two")) == (list(range(1, 21)), [1])


def test_after_a_rival_commit_that_is_no_version_the_same_command_works(outside: Lake) -> None:
    copies.create(outside, "public.*")
    commit_all = transaction.commit_all

    def late(catalog: rest.Catalog, changes: Any, **options: Any) -> Any:
        loaded = rest.load(catalog, ("nightly", "public", "two"))
        assert loaded
        with loaded.transaction() as theirs:
            theirs.set_properties(owner="them")
        return commit_all(catalog, changes, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_destinations.transaction, "commit_all", late)
        with suppress(ConflictError):  # a catalog may find that the two do not touch each other
            copies.create(outside, "public.*")
    copies.create(outside, "public.*")
    assert asked(outside, "two") == [1]


@contextmanager
def losing(error: BaseException, *, arrives: bool) -> Generator[None]:
    """The commit ends with this error, and is done or not."""
    commit_all = transaction.commit_all

    def lost(*arguments: Any, **options: Any) -> None:
        if arrives:
            commit_all(*arguments, **options)
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_destinations.transaction, "commit_all", lost)
        with pytest.raises(type(error), match=str(error)):
            yield


def test_only_a_refusal_is_a_failure_and_an_unknown_outcome_is_looked_up_by_the_next_run(
    outside: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states() -> list[str]:
        return [row[1] for row in rows(outside.catalog, _STATES)]

    with losing(CorruptionError("other numbers"), arrives=True):
        copies.create(outside, "public.*")
    assert states() == ["unknown"]
    with losing(OutcomeUnknown("the answer was lost"), arrives=False):
        copies.create(outside, "public.*")
    assert states() == ["published", "unknown"]
    run(outside.catalog, "update frostline.snapshot set told_at = told_at - interval '2 hours'")
    in_another_warehouse_nothing_is_done(outside)
    with losing(OutcomeUnknown("the answer was lost"), arrives=False):
        copies.create(outside, "public.*")
    assert states() == ["published", "failed", "unknown"]
    with losing(ConflictError("somebody was faster"), arrives=False):
        copies.create(outside, "public.*")
    assert states() == ["published", "failed", "unknown", "failed"]
    assert snapshot_drop.drop(outside.catalog, outside.settings, "nightly", keep=1).versions == ()
    copies.create(outside, "public.*")
    assert states() == ["published", "failed", "unknown", "failed", "published"]
    assert asked(outside, "two") == [1]
    each_folder_is_listed_once(outside, monkeypatch)


def in_another_warehouse_nothing_is_done(lake: Lake) -> None:
    """A warehouse of a catalog is a catalog of its own."""
    settings = lake.settings.model_copy(update={"catalog_warehouse": "s3://elsewhere"})
    snapshot_destinations.settle(lake.catalog, settings, "nightly")
    assert rows(lake.catalog, _STATES)[-1][1] == "unknown"
    assert snapshot_versions.newest(lake.catalog, "nightly", snapshot_destinations.place(settings)) == {}
    with pytest.raises(UsageError, match=f"warehouse {lake.settings.catalog_warehouse}"):
        snapshot_drop.drop(lake.catalog, settings, "nightly")


def each_folder_is_listed_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs have written into it."""
    listed: list[str] = []
    entries = paths._entries  # pyright: ignore[reportPrivateUsage]

    def counted(folder: str, **how: Any) -> list[Any]:
        if not folder.endswith(warehouse.FOLDER):  # which every command looks for
            listed.append(folder)
        return entries(folder, **how)

    monkeypatch.setattr(paths, "_entries", counted)
    assert snapshot_drop.drop(lake.catalog, lake.settings, "nightly").versions == (1, 3, 5)
    assert len(listed) == len(set(listed)) == 4


def test_a_run_that_is_killed_after_the_commit_is_found_by_the_next(outside: Lake, seaweed: Seaweed) -> None:
    make_events(outside.catalog, "public.events")
    outside.add()
    secret = f"{seaweed.access_key}:{seaweed.secret_key}"
    settings = outside.settings.model_dump(include={"catalog_uri", "catalog_warehouse", "s3_endpoint", "s3_region"})
    keys = {"s3_access_key": seaweed.access_key, "s3_secret_key": seaweed.secret_key, "catalog_credential": secret}
    ended = killed.run(outside, "snapshot", failpoint=Failpoint.REST_COMMITTED, **settings, **keys)
    assert ended.returncode == killed.KILLED, ended.said
    assert (asked(outside, "two"), rows(outside.catalog, _STATES)[0][1]) == ([1], "unknown")
    copies.create(outside, "public.two")
    assert [row[1] for row in rows(outside.catalog, _STATES)] == ["published", "published"]


def test_a_commit_counts_as_done_where_only_its_successor_is_shown(outside: Lake) -> None:
    def newest_only(asked: Asked, forward: Forward) -> Answered:
        answer = forward(asked)
        if asked.method != "GET":
            return answer
        loaded = json.loads(answer.body)
        metadata = loaded["metadata"]
        shown = [
            snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] == metadata["current-snapshot-id"]
        ]
        loaded["metadata"] = {**metadata, "snapshots": shown, "snapshot-log": []}
        return Answered(answer.status, json.dumps(loaded).encode())

    with proxied(str(outside.settings.catalog_uri)) as proxy:
        outside.settings = outside.settings.model_copy(update={"catalog_uri": proxy.uri})
        with losing(KeyboardInterrupt("killed"), arrives=True):
            copies.create(outside, "public.two")
        with rest.opened(outside.settings) as catalog:
            kept = rest.load(catalog, ("nightly", "public", "two"))
            assert kept
            kept.append(kept.scan().to_arrow())
        proxy.fault, proxy.concerns = newest_only, "/tables/two"
        snapshot_destinations.settle(outside.catalog, outside.settings, "nightly")
    assert rows(outside.catalog, _STATES)[0][1] == "published"


def test_a_table_that_left_stays_until_the_last_version_that_has_it_is_dropped(outside: Lake) -> None:
    copies.create(outside, "public.*")
    run(outside.catalog, "drop table public.two")
    copies.create(outside, "public.*")
    assert asked(outside, "two") == [1]
    assert ids(copies.shown(outside, version=1)[Name("public", "two")].metadata_location) == [1]
    snapshot_drop.drop(outside.catalog, outside.settings, "nightly", keep=1)
    assert (asked(outside, "two"), len(asked(outside, "one") or ())) == (None, 20)


_OWN_VERSION = """
with version as (
    insert into frostline.snapshot (name, version, state, warehouse, catalog_uri, catalog_warehouse)
    select name, version + 1, state, warehouse, catalog_uri, catalog_warehouse from frostline.snapshot
    returning snapshot_id)
insert into frostline.snapshot_table
select (jsonb_populate_record(t, to_jsonb(v))).* from frostline.snapshot_table t, version v"""


def test_tables_of_another_databases_snapshot_are_neither_taken_nor_dropped(outside: Lake, another: Lake) -> None:
    copies.create(outside, "public.two")
    run(another.catalog, "create table public.two as select 500 as id")
    for restored in (False, True):
        if restored:
            copy_rows(outside, another)
        with pytest.raises(ConflictError, match=r"nightly\.public\.two .* is of another database's snapshot"):
            copies.create(another, "public.two")
    run(another.catalog, "delete from frostline.snapshot where state = 'failed'")
    run(another.catalog, _OWN_VERSION)
    number = value(another.catalog, "select snapshot_id from frostline.snapshot where version = 2")
    assert isinstance(number, int)
    assert 1 << 16 < number < 1 << 44
    assert snapshot_drop.drop(another.catalog, another.settings, "nightly").versions == (1, 2)
    assert asked(outside, "two") == [1]
    assert snapshot_drop.drop(outside.catalog, outside.settings, "nightly").versions == (1,)
    assert asked(outside, "two") is None


@pytest.fixture
def another(outside: Lake, shared_database: str, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Another database with the same settings."""
    with running_on(shared_database, f"{outside.settings.warehouse}_another", request) as lake:
        changed = {"dsn": shared_database, "warehouse": lake.settings.warehouse}
        lake.settings = outside.settings.model_copy(update=changed)
        yield lake


def copy_rows(source: Lake, target: Lake) -> None:
    """The other database has been restored from this one: it has the same versions."""
    run(target.catalog, "delete from frostline.snapshot")
    for table in ("frostline.snapshot", "frostline.snapshot_table"):
        with (
            source.catalog.cursor().copy(f"copy {table} to stdout") as out,
            target.catalog.cursor().copy(f"copy {table} from stdin") as into,
        ):
            for data in out:
                into.write(data)


def test_a_catalog_without_transactions_is_said_to_be_not_atomic_or_refused(outside: Lake) -> None:
    copies.create(outside, "public.*")
    run(outside.catalog, "insert into public.two values (2)")
    with proxied(str(outside.settings.catalog_uri)) as proxy:
        proxy.fault = answers(404, NO_PATH)
        outside.settings = outside.settings.model_copy(update={"catalog_uri": proxy.uri})
        with pytest.raises(UsageError, match="cannot commit many tables at once"):
            copies.create(outside, "public.*", require_atomic=True)
        assert asked(outside, "two") == [1]
        assert not copies.create(outside, "public.*").atomic
        assert asked(outside, "two") == [1, 2]


@pytest.fixture
def in_bucket(outside: Lake) -> Lake:
    """The same tables with the built-in catalog, and the files in an object store."""
    outside.settings = outside.settings.model_copy(update={"catalog_uri": None})
    return outside


def ids(metadata_location: str) -> list[Any]:
    metadata = snapshots.metadata_now(metadata_location)
    table = Table(("copy",), metadata, metadata_location, paths.file_io(metadata_location), NoopCatalog("none"))
    return table.scan().to_arrow()["id"].to_pylist()


def test_copies_of_the_built_in_catalog_lie_in_an_object_store(in_bucket: Lake, seaweed: Seaweed) -> None:
    bucket, prefix = in_bucket.settings.warehouse.removeprefix("s3://").split("/")
    copies.create(in_bucket, "public.*")
    run(in_bucket.catalog, "delete from public.one where id > 3")
    copies.create(in_bucket, "public.*", incremental=True)
    there = copies.shown(in_bucket)
    copied = {name.table: ids(copy.metadata_location) for name, copy in there.items()}
    assert (copied, there[Name("public", "two")].reused) == ({"one": [1, 2, 3], "two": [1]}, True)
    snapshot_drop.drop(in_bucket.catalog, in_bucket.settings, "nightly", keep=1)
    assert len([key for key in seaweed.objects(bucket, prefix) if key.endswith(".parquet")]) == 2
    snapshot_drop.drop(in_bucket.catalog, in_bucket.settings, "nightly")
    assert [key for key in seaweed.objects(bucket, prefix) if f"/{warehouse.FOLDER}/" not in key] == []
