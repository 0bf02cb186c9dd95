"""Many tables committed at once to Nessie, a catalog that numbers new tables in its own way."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fixtures import proxy as proxies
from tests.fixtures.lake import Lake
from tests.fixtures.proxy import proxied
from tests.fixtures.rest_tables import ONE, PLAIN, TWO, at, both, version, versions
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run

from frostline.errors import ConflictError
from frostline.lake import objectstore, rest, transaction
from frostline.lake.objectstore import Access
from frostline.lake.rest import Catalog
from frostline.model import snapshot as rules
from frostline.pipeline import snapshot
from frostline.pipeline.snapshot_plan import Request
from frostline.settings import Settings


@pytest.fixture
def settings(seaweed: Seaweed, nessie: str) -> Iterator[Settings]:
    access = Access(
        seaweed.access_key, seaweed.secret_key, region=seaweed.region, endpoint=seaweed.s3_endpoint, path_style=True
    )
    with objectstore.used(access):
        yield Settings(dsn="unused", warehouse="unused", catalog_uri=nessie)


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    with rest.opened(settings) as catalog:
        rest.ensure_namespaces(catalog, [ONE, TWO])
        rest.drop(catalog, [ONE, TWO])
        yield catalog


def test_new_tables_are_made_in_the_transaction_where_their_numbers_allow_it(catalog: Catalog) -> None:
    outcome = transaction.commit_all(
        catalog, [version(catalog, name, 2, PLAIN) for name in (ONE, TWO)], require_atomic=True
    )
    assert (outcome.atomic, outcome.created_first) == (True, ())
    assert versions(catalog) == at(2)


def test_tables_with_gaps_in_their_numbers_keep_them(catalog: Catalog) -> None:
    outcome = transaction.commit_all(catalog, both(catalog, 2))
    assert (outcome.atomic, outcome.created_first) == (True, (ONE, TWO))
    loaded = rest.load(catalog, ONE)
    assert loaded
    assert [field.field_id for field in loaded.schema().fields] == [3, 7]
    assert versions(catalog) == at(2)


def test_a_second_version_is_all_or_none(catalog: Catalog) -> None:
    transaction.commit_all(catalog, both(catalog, 1))
    changes = both(catalog, 2)
    transaction.commit_all(catalog, [version(catalog, TWO, 5)])
    with pytest.raises(ConflictError):
        transaction.commit_all(catalog, changes)
    assert versions(catalog) == (["version 1"], ["version 5"] * 5)
    assert transaction.commit_all(catalog, both(catalog, 3)).atomic
    assert versions(catalog) == at(3)


def test_a_lost_answer_is_found_out_by_looking(settings: Settings, catalog: Catalog) -> None:
    transaction.commit_all(catalog, both(catalog, 1))
    with proxied(str(settings.catalog_uri).removesuffix("/iceberg")) as proxy:
        changes = both(catalog, 2)
        proxy.fault = proxies.cut_after
        catalog.uri = f"{proxy.uri}/iceberg"  # Nessie tells its clients its own address, past any proxy
        transaction.commit_all(catalog, changes)
        assert any("transactions/commit" in asked.path and json.loads(asked.body) for asked in proxy.asked)
        assert versions(catalog) == at(2)


def test_a_snapshot_of_many_tables_is_one_commit_there(lake: Lake, settings: Settings, catalog: Catalog) -> None:
    run(lake.catalog, "create table public.whole (a integer, b text); insert into public.whole values (1, 'x')")
    run(lake.catalog, "create table public.gap (a integer, b text); alter table public.gap drop column a")
    run(lake.catalog, "insert into public.gap values ('y'), (null)")
    there = settings.model_copy(update={"dsn": lake.dsn, "warehouse": str(lake.warehouse)})
    request = Request("nightly", tuple(rules.parse_patterns(["public.*"])), require_atomic=True)
    for more in ("", "insert into public.whole values (2, 'z'); insert into public.gap values ('w')"):
        if more:
            run(lake.catalog, more)
        assert snapshot.create(lake.catalog, lake.session, there, request, lambda *_: None).atomic
        for name in ("whole", "gap"):
            copy = rest.load(catalog, ("nightly", "public", name))
            assert copy
            copied: Any = copy.scan().to_arrow()
            wanted = rows(lake.catalog, f"select * from public.{name}")
            assert sorted(map(str, (tuple(row.values()) for row in copied.to_pylist()))) == sorted(map(str, wanted))
