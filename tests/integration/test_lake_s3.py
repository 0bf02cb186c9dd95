"""Lake tables in an object store, from psql: everything that such a table lives through, and a store that goes away."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.lake_past import ROWS, expired, forget, needed, pointer, swept
from tests.fixtures.s3 import access
from tests.fixtures.seaweed import Seaweed
from tests.fixtures.statements import rows, run, value
from tests.fixtures.waiting import until

from frostline.catalog import lake_tables as catalog
from frostline.lake import objectstore, warehouse
from frostline.pipeline import lake_compact, lake_verify, sweep
from frostline.pipeline.sweep import Request

CREATE = """
select frostline.create_lake_table('public', 'readings',
    '[{"name": "id", "type": "bigint", "not_null": true}, {"name": "kind", "type": "text"}, {"name": "value", "type": "float8"}]',
    partition => '{kind}', sort => '{id}')"""
MANY = "insert into {t} select n, case n % 2 when 0 then 'even' else 'a/b c%ü' end, n / 7.0 from generate_series(1, 2000) n"
CHANGES = (
    "insert into {t} values (3001, 'odd', 'NaN'), (3002, null, '-0')",
    "insert into {t} values (3003, 'even', null)",
    "update {t} set value = value + 1 where id % 100 = 7",
    "update {t} set kind = 'other' where id between 500 and 505",
    "delete from {t} where id % 50 = 3",
)


class Twins:
    """A lake table and a plain one, to which the same is done."""

    def __init__(self, lake: Lake, psql: psycopg.Connection) -> None:
        self.lake, self.psql = lake, psql

    def make(self) -> None:
        run(self.psql, CREATE)
        run(self.psql, "create table plain (id bigint not null, kind text, value float8)")
        self.both(MANY, *CHANGES)

    def both(self, *statements: str) -> None:
        for statement in statements:
            counts = [run(self.psql, statement.replace("{t}", name)).rowcount for name in ("readings", "plain")]
            assert counts[0] == counts[1] > 0, statement

    def compare(self) -> None:
        """Read every file of the lake anew."""
        forget()
        assert rows(self.psql, ROWS) == rows(self.psql, ROWS.replace("public.readings", "plain"))


@pytest.fixture
def twins(s3_lake: Lake) -> Iterator[Twins]:
    """Not yet made."""
    with s3_lake.connect() as psql:
        yield Twins(s3_lake, psql)


def stored(lake: Lake, store: Seaweed) -> set[str]:
    """All files of the warehouse but its marker, as the store itself lists them."""
    bucket = lake.settings.warehouse.split("/")[2]
    return {f"s3://{bucket}/{key}" for key in store.objects(bucket) if warehouse.FOLDER not in key.split("/")}


def needed_there(lake: Lake, store: Seaweed) -> set[str]:
    """As PyIceberg reads them, by its own way to the store."""
    keys = {"s3.endpoint": store.s3_endpoint, "s3.region": store.region}
    return needed(lake, {**keys, "s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key})


def test_a_lake_table_lives_its_whole_life_in_a_bucket(
    twins: Twins, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = twins.lake
    twins.make()
    twins.compare()
    (merged,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert (merged.error, merged.changed) == (None, True)
    twins.compare()
    twins.both(*CHANGES[2:4], "delete from {t} where id % 50 = 4")
    run(lake.catalog, "update frostline.former_lake_state set replaced_at = replaced_at - interval '10 days'")
    before = stored(lake, seaweed)
    assert expired(lake).snapshots > 0
    assert needed_there(lake, seaweed) == stored(lake, seaweed)
    assert stored(lake, seaweed) - {pointer(lake).metadata_location} < before
    twins.compare()
    _garbage_is_swept(twins, seaweed, monkeypatch)
    assert lake_verify.run(lake.catalog, pointer(lake), history=True).faults == ()
    run(twins.psql, "select frostline.drop_lake_table('public', 'readings', purge => true)")
    assert (catalog.listed(lake.catalog), catalog.dropped(lake.catalog)) == ([], [])
    assert stored(lake, seaweed) == set()


def _garbage_is_swept(twins: Twins, store: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = twins.lake
    orphan = f"{pointer(lake).location}/data/kind=a%2Fb+c/nobody's.parquet"
    with store.filesystem().open_output_stream(orphan.removeprefix("s3://")) as file:
        file.write(b"nobody needs this")
    assert swept(lake).orphans == (), "it is too young"
    monkeypatch.setattr(sweep, "_LEAST_AGE", timedelta(0))  # no store lets a file be made old
    until(lambda: swept(lake, Request(older_than="0", dry_run=True)).orphans)  # the store counts whole seconds
    done = swept(lake, Request(older_than="0"))
    assert ([each.location for each in done.orphans], done.unknown) == ([orphan], ())
    assert orphan not in stored(lake, store)
    assert needed_there(lake, store) <= stored(lake, store)
    twins.compare()


def test_what_is_rolled_back_leaves_no_file_in_the_bucket(twins: Twins, seaweed: Seaweed) -> None:
    psql, lake = twins.psql, twins.lake
    run(psql, "begin")
    run(psql, CREATE)
    run(psql, MANY.replace("{t}", "readings"))
    assert value(psql, "select count(*) from readings") == 2000
    run(psql, "rollback")
    assert stored(lake, seaweed) == set()
    twins.make()
    before = stored(lake, seaweed)
    run(psql, "begin")
    twins.both(CHANGES[0])
    run(psql, "savepoint here")
    run(psql, MANY.replace("{t}", "readings"))
    run(psql, "delete from readings where id % 3 = 0")
    assert value(psql, "select count(*) from readings") > 2000
    assert len(stored(lake, seaweed)) > len(before) + 2, "there are files to be deleted"
    run(psql, "rollback to here")
    twins.compare()
    run(psql, "rollback")
    assert stored(lake, seaweed) == before
    twins.compare()


def test_rows_are_copied_into_a_bucket_and_read_by_cursors(twins: Twins) -> None:
    twins.make()
    psql = twins.psql
    for name in ("readings", "plain"):
        with psql.cursor() as cursor, cursor.copy(f"copy {name} from stdin".encode()) as copy:
            for number in range(4000, 9000):
                copy.write_row((number, f"kind {number % 3}", number / 3))
    with psql.transaction():
        run(psql, f"declare all_of_it cursor for {ROWS}")
        first = rows(psql, "fetch 1000 from all_of_it")
        twins.both("delete from {t} where id > 1500")
        rest = rows(psql, "fetch all from all_of_it")
    twins.compare()
    assert len(first) + len(rest) > 6000, "what was deleted since is in it"


@pytest.mark.slow
def test_a_store_that_goes_away_in_a_transaction_fails_it_and_loses_nothing(
    mortal_lake: Lake, own_seaweed: Seaweed
) -> None:
    with mortal_lake.connect() as psql, objectstore.used(access(own_seaweed, timeout_s=1)):
        twins = Twins(mortal_lake, psql)
        twins.make()
        run(psql, "begin")
        run(psql, MANY.replace("{t}", "readings"))
        run(psql, "insert into plain values (9999)")
        own_seaweed.stop()
        with pytest.raises(psycopg.Error, match="the object store does not answer"):
            run(psql, "commit")
        own_seaweed.start()
        twins.compare()
        twins.both(*CHANGES[:4])
        twins.compare()
