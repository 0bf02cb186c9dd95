"""A snapshot on a real REST catalog: the copies are there for whoever asks it."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table
from tests.fixtures import copies
from tests.fixtures.lake import Lake, running_on
from tests.fixtures.proxy import answers, proxied
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run, value

from frostline.catalog import snapshot_versions
from frostline.errors import ConflictError, OutcomeUnknown, UsageError
from frostline.lake import objectstore, paths, rest, snapshots, transaction
from frostline.lake.objectstore import Access
from frostline.model.names import Name
from frostline.pipeline import snapshot_drop, snapshot_targets
from frostline.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NO_PATH = b'{"error": {"message": "Path not found", "type": "NotFound", "code": 404}}'
_STATES = "select version, state, atomic from frostline.snapshot order by 1"


@pytest.fixture(scope="module")
def bucket(seaweed: Seaweed) -> str:
    """One for all: the store has room for few."""
    return seaweed.new_table_bucket()


@pytest.fixture
def outside(database: str, seaweed: Seaweed, bucket: str, request: pytest.FixtureRequest) -> Iterator[Lake]:
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
    with objectstore.used(access), running_on(database, f"s3://{bucket}", request, **more) as lake:
        run(
            lake.catalog, "create table public.one as select i as id, 'row ' || i as note from generate_series(1, 20) i"
        )
        run(lake.catalog, "create table public.two as select 1 as id")
        settings = lake.settings
        yield lake
        _forget(settings)


def _forget(settings: Settings) -> None:
    with rest.opened(settings) as catalog:
        rest.drop(catalog, [("nightly", "public", name) for name in ("one", "two", "three")])


def asked(lake: Lake, table: str) -> list[Any] | None:
    """The rows that the catalog's table has, in order."""
    with rest.opened(lake.settings) as catalog:
        found = rest.load(catalog, ("nightly", "public", table))
        return None if found is None else sorted(found.scan().to_arrow()["id"].to_pylist())


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


def test_a_table_that_somebody_else_committed_to_is_a_conflict(outside: Lake) -> None:
    copies.create(outside, "public.*")
    with rest.opened(outside.settings) as catalog:
        found = rest.load(catalog, ("nightly", "public", "two"))
        assert found
        found.append(found.scan().to_arrow())
    with pytest.raises(ConflictError, match=r"nightly\.public\.two in the catalog was committed to by somebody else"):
        copies.create(outside, "public.*")
    assert rows(outside.catalog, _STATES)[-1][1] == "failed"


@pytest.mark.parametrize(
    ("arrived", "ago", "state"), [(True, "0", "published"), (False, "2 hours", "failed"), (False, "0", "unknown")]
)
def test_an_unknown_outcome_is_looked_up_by_the_next_run(
    outside: Lake, monkeypatch: pytest.MonkeyPatch, arrived: bool, ago: str, state: str
) -> None:
    commit_all = transaction.commit_all

    def lost(*arguments: Any, **options: Any) -> None:
        if arrived:
            commit_all(*arguments, **options)
        raise OutcomeUnknown("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_targets.transaction, "commit_all", lost)
        with pytest.raises(OutcomeUnknown):
            copies.create(outside, "public.*")
    assert rows(outside.catalog, _STATES)[0][1] == "unknown"
    run(outside.catalog, "update frostline.snapshot set told_at = told_at - %s::interval", (ago,))
    copies.create(outside, "public.*")
    assert [row[1] for row in rows(outside.catalog, _STATES)] == [state, "published"]
    assert asked(outside, "two") == [1]
    assert len(snapshot_versions.versions(outside.catalog)) == 1 + arrived


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
def in_bucket(outside: Lake, seaweed: Seaweed) -> Lake:
    """The same tables with the built-in catalog, and the files in an object store."""
    warehouse = f"s3://{seaweed.new_bucket()}/lake"
    outside.settings = outside.settings.model_copy(update={"catalog_uri": None, "warehouse": warehouse})
    return outside


def ids(metadata_location: str) -> list[Any]:
    metadata = snapshots.read_metadata(metadata_location)
    table = Table(("copy",), metadata, metadata_location, paths.file_io(metadata_location), NoopCatalog("none"))
    return table.scan().to_arrow()["id"].to_pylist()


def test_copies_of_the_built_in_catalog_lie_in_an_object_store(in_bucket: Lake, seaweed: Seaweed) -> None:
    bucket = in_bucket.settings.warehouse.split("/")[2]
    copies.create(in_bucket, "public.*")
    run(in_bucket.catalog, "delete from public.one where id > 3")
    copies.create(in_bucket, "public.*", incremental=True)
    there = copies.shown(in_bucket)
    found = {name.table: ids(one.metadata_location) for name, one in there.items()}
    assert (found, there[Name("public", "two")].reused) == ({"one": [1, 2, 3], "two": [1]}, True)
    snapshot_drop.drop(in_bucket.catalog, in_bucket.settings, "nightly", keep=1)
    assert len([one for one in seaweed.objects(bucket) if one.endswith(".parquet")]) == 2
    snapshot_drop.drop(in_bucket.catalog, in_bucket.settings, "nightly")
    assert seaweed.objects(bucket) == []
