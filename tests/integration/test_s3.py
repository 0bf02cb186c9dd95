"""The warehouse is in an object store, a real one: everything that a table lives through, and every refusal."""

import json
import logging
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from pyiceberg.table import StaticTable
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.months import World
from tests.fixtures.s3 import PREFIX, access
from tests.fixtures.seaweed import SECRET_KEY, STRANGER_KEY, STRANGER_SECRET, Seaweed
from tests.fixtures.statements import rows, value
from tests.fixtures.states import count_with_duckdb, expired, location, needed, swept

from frostline.catalog import seams
from frostline.errors import FrostlineError, UnavailableError, UsageError
from frostline.lake import duck, objectstore, paths, snapshots, store
from frostline.lake.objectstore import Access
from frostline.model.tiers import to_text
from frostline.pipeline import sweep, verify
from frostline.pipeline.sweep import Request
from frostline.runtime.home import prepare
from frostline.server.engine import Engine
from frostline.settings import FILE_NAME, write_file

COLD = (
    "update public.{t} set status = 'cold ' || status where id % 7 = 0",
    "delete from public.{t} where id % 11 = 0",
)


@pytest.fixture
def world(s3_lake: Lake) -> Iterator[World]:
    """A table in the object store, and a plain one beside it."""
    made = World(s3_lake)
    yield made
    made.connection.close()


def bucket(lake: Lake) -> str:
    return lake.settings.warehouse.split("/")[2]


def found(lake: Lake, seaweed: Seaweed) -> set[str]:
    """All files of the warehouse, as the store itself lists them."""
    return {f"s3://{bucket(lake)}/{key}" for key in seaweed.objects(bucket(lake))}


@pytest.mark.spark
def test_a_table_lives_its_whole_life(
    world: World, seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = world.lake
    caplog.set_level(logging.DEBUG, "frostline")
    for _ in range(3):
        world.fill()
    world.archive()
    world.compare()
    assert PREFIX in next(iter(found(lake, seaweed)))
    for _ in range(2):  # a second fold reads what the first has written
        world.both(*COLD)
        (folded,) = lake.fold()
        assert (folded.error, folded.written_files > 0) == (None, True)
        world.compare()
    assert verify.run(lake.catalog, lake.table()).faults == ()
    world.fill()
    world.archive()
    (compacted,) = lake.compact()
    assert (compacted.error, compacted.changed) == (None, True)
    world.compare()
    _others_read_it(lake, seaweed, tmp_path)
    _old_files_go(world, seaweed, monkeypatch)
    _old_rows_go(world)
    _rows_come_back(world)
    assert SECRET_KEY not in caplog.text
    assert "stage=export" in caplog.text, "this test looks at the log"
    assert not [row for row in rows(lake.catalog, "select j::text from frostline.job j") if SECRET_KEY in row[0]]


def _others_read_it(lake: Lake, seaweed: Seaweed, tmp_path: Path) -> None:
    """PyIceberg and DuckDB's own reader, each by its own way to the store."""
    seam = seams.get(lake.catalog, lake.table())
    line = to_text(lake.table().tier_kind, seam.frost_line or 0)
    cold = value(lake.catalog, f"select count(*) from public.plain where ts < '{line}'")
    keys = {"s3.endpoint": seaweed.s3_endpoint, "s3.region": "us-east-1"}
    keys |= {"s3.access-key-id": seaweed.access_key, "s3.secret-access-key": seaweed.secret_key}
    read = StaticTable.from_metadata(location(lake), keys).scan().to_arrow()
    assert read.num_rows == cold
    assert count_with_duckdb(location(lake), tmp_path) == cold


def _old_files_go(world: World, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expire and sweep delete what is not needed, and nothing else."""
    lake = world.lake
    world.keep_states("0")
    before = found(lake, seaweed)
    assert expired(lake).files > 0
    after = found(lake, seaweed)
    assert needed(lake) <= after
    assert after - {location(lake)} < before
    (job_id,) = rows(lake.catalog, "select max(job_id) from frostline.job where kind = 'fold'")[0]
    orphan = paths.data_file(paths.table_location(lake.settings.warehouse, lake.table()), job_id)
    with seaweed.filesystem().open_output_stream(orphan.removeprefix("s3://")) as file:
        file.write(b"nobody needs this")
    assert swept(lake).orphans == ()
    looked = swept(lake, Request(older_than="0", dry_run=True))
    assert [listed_file.location for listed_file in looked.orphans] == [orphan]
    assert found(lake, seaweed) == after | {orphan}
    monkeypatch.setattr(sweep, "_LEAST_AGE", timedelta(0))  # no store lets a file be made old
    done = swept(lake, Request(older_than="0"))
    assert ([listed_file.location for listed_file in done.orphans], done.unknown) == ([orphan], ())
    assert found(lake, seaweed) == after
    world.compare()


def _old_rows_go(world: World) -> None:
    world.keep_from("1960-03-15 00:00+00")
    (retained,) = world.lake.retain()
    assert retained.error is None
    world.compare()


def _rows_come_back(world: World) -> None:
    thawed = world.lake.thaw(first="1960-04-01 00:00+00")
    assert thawed.rows > 0
    world.compare()
    assert verify.run(world.lake.catalog, world.lake.table()).faults == ()


@contextmanager
def borrowed(memory: str = "100MB") -> Generator[duckdb.DuckDBPyConnection]:
    """A DuckDB as the tasks use it."""
    with duck.borrowed(memory) as connection:
        connection.execute("begin")
        yield connection


def test_a_name_of_any_kind_has_its_files_in_the_store(seaweed: Seaweed) -> None:
    """What is written by one of the three ways is found by the others, whatever the name."""
    where = f"s3://{seaweed.new_bucket()}/{PREFIX}/a&b;c,d'e$f(g)!@h:i~j/%20%2E"
    with objectstore.used(access(seaweed)):
        with borrowed() as connection:
            connection.execute(f"copy (select 7 as a) to '{where.replace(chr(39), chr(39) * 2)}/data/d.parquet'")
        with paths.file_io(where).new_output(f"{where}/data/p.bin").create() as file:
            file.write(b"x")
        listed = {listed_file.location: listed_file.size_bytes for listed_file in paths.stored(where)}
        assert listed.keys() == {f"{where}/data/d.parquet", f"{where}/data/p.bin"}
        assert listed[f"{where}/data/p.bin"] == paths.size_bytes(f"{where}/data/p.bin") == 1
        assert list(paths.delete_each([*listed, f"{where}/data/none"])) == [*listed, f"{where}/data/none"]
        assert list(paths.stored(where)) == []
        assert paths.size_bytes(f"{where}/data/p.bin") is None


def test_files_of_two_stores_are_deleted_each_in_its_own(seaweed: Seaweed, tmp_path: Path) -> None:
    where = [f"file://{tmp_path}/a.bin", f"s3://{seaweed.new_bucket()}/b.bin", f"file://{tmp_path}/c.bin"]
    with objectstore.used(access(seaweed)):
        for location in where:
            with paths.file_io(location).new_output(location).create() as file:
                file.write(b"x")
        assert list(paths.delete_each(where)) == where
        assert [paths.size_bytes(location) for location in where] == [None, None, None]


def test_a_file_of_many_parts_is_whole(seaweed: Seaweed) -> None:
    where = f"s3://{seaweed.new_bucket()}/large.parquet"
    with objectstore.used(access(seaweed)), borrowed("256MB") as connection:
        rows_of_20_mb = "select i, hash(i) as h, hash(-i) as g from range(1500000) t(i)"
        connection.execute(f"copy ({rows_of_20_mb}) to '{where}' (format parquet)")
        assert (paths.size_bytes(where) or 0) > 16 << 20, "more than two parts"
        sums = "select count(*), sum(h), sum(g) from "
        assert (
            connection.execute(f"{sums} '{where}'").fetchall()
            == connection.execute(f"{sums} ({rows_of_20_mb})").fetchall()
        )


WRONG = {
    "the object store does not know the access key": {"access_key": "nobody"},
    "the secret key is not the one of the access key": {"secret_key": "wrong"},
    "the object store forbids it": {"access_key": STRANGER_KEY, "secret_key": STRANGER_SECRET},
}


def refusal_of(doing: Callable[[], object]) -> FrostlineError:
    """The one line that an operation ends with."""
    with pytest.raises(UnavailableError) as refusal, store.reachable("do it"):
        doing()
    assert "\n" not in str(refusal.value)
    assert refusal.value.hint
    assert SECRET_KEY not in str(refusal.value) + refusal.value.hint
    return refusal.value


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_keys_are_named(seaweed: Seaweed, reason: str) -> None:
    where = f"s3://{seaweed.new_bucket()}/x"
    with objectstore.used(replace(access(seaweed), **WRONG[reason])):
        for doing in (lambda: list(paths.stored(where)), lambda: _write_with_duckdb(where)):
            assert reason in str(refusal_of(doing))
        assert "the object store forbids it" in str(refusal_of(lambda: paths.size_bytes(where)))


def _write_with_duckdb(where: str) -> None:
    with borrowed() as connection:
        connection.execute(f"copy (select 1) to '{where}.parquet'")


def test_a_bucket_that_is_not_there_is_named(seaweed: Seaweed) -> None:
    with objectstore.used(access(seaweed)):
        for doing in (lambda: _write_with_duckdb("s3://not-there/x"), lambda: paths.store_clock("s3://not-there/x")):
            error = refusal_of(doing)
            assert "there is no such bucket" in str(error)
            assert error.hint == "make the bucket, or correct warehouse; then run the command again"


@pytest.mark.slow
def test_a_store_that_says_nothing_is_given_up(seaweed: Seaweed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with objectstore.used(replace(access(seaweed, timeout_s=1), endpoint=endpoint)):
            for doing in (lambda: paths.size_bytes("s3://b/x"), lambda: _read_with_duckdb("s3://b/x.parquet")):
                error = refusal_of(doing)
                assert f"the object store does not answer ({endpoint})" in str(error)
                assert "s3_endpoint" in str(error.hint)


def _read_with_duckdb(where: str) -> None:
    with borrowed() as connection:
        connection.execute(f"from '{where}'")


def test_without_keys_the_first_use_says_so(tmp_path: Path) -> None:
    with objectstore.used(None):
        for doing in (
            lambda: paths.size_bytes("s3://b/x"),
            lambda: snapshots.read_metadata("s3://b/metadata.json"),
            lambda: Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path, warehouse="s3://b"),
        ):
            with pytest.raises(UsageError, match="s3_access_key and s3_secret_key are not set") as refusal:
                doing()
            assert "AWS_ACCESS_KEY_ID" in str(refusal.value.hint)


def test_what_duckdb_refuses_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectstore, "_CREATE", "create secret (type s3, nonsense, {options})")
    with objectstore.used(Access("the key", "the secret")), pytest.raises(UnavailableError) as refusal:
        duck.connect(memory_limit="100MB", threads=1, temp_directory="/nowhere")
    assert "the secret" not in repr(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


def test_the_lake_servers_engine_reads_the_warehouse_and_no_other_bucket(seaweed: Seaweed, tmp_path: Path) -> None:
    ours, other = (f"s3://{seaweed.new_bucket()}/x" for _ in range(2))
    with objectstore.used(access(seaweed)):
        for where in (ours, other):
            _write_with_duckdb(where)
        engine = Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path, warehouse=ours.removesuffix("/x"))
        try:
            assert [batch.num_rows for batch in engine.run(f"from '{ours}.parquet'")] == [1]
            with pytest.raises(FrostlineError):
                list(engine.run(f"from '{other}.parquet'"))
            with pytest.raises(duckdb.Error, match="unredacted"):
                engine._root.execute("from duckdb_secrets(redact = false)")  # pyright: ignore[reportPrivateUsage]
        finally:
            engine.close()


@pytest.fixture
def home(s3_lake: Lake, seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for the lake; the keys are in the environment, as other programs have them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.s3_endpoint)
    values = {"dsn": s3_lake.dsn, "warehouse": s3_lake.settings.warehouse, "lake_port": s3_lake.server.port}
    write_file(tmp_path / FILE_NAME, {**values, "lake_password": "secret"})
    return tmp_path


def test_the_doctor_looks_into_the_store(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    said = command("doctor", "--home", home, "--output", "json")
    findings = {record["name"]: record for record in json.loads(said.stdout)}
    assert {findings[name]["state"] for name in ("warehouse", "clock of the warehouse")} == {"ok"}, findings
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    said = command("doctor", "--home", home, "--output", "json")
    findings = {record["name"]: record for record in json.loads(said.stdout)}
    assert "the secret key is not the one of the access key" in findings["warehouse"]["detail"]
    assert "correct s3_secret_key" in findings["warehouse"]["hint"]


def test_a_command_finds_the_keys_in_the_environment(
    home: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("verify", "--home", home).exit_code == 0
    assert command("sweep", "--dry-run", "--home", home).exit_code == 0
    objectstore.use(None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    said = command("doctor", "--home", home)
    assert "s3_access_key and s3_secret_key are not set" in said.stdout


def test_init_writes_where_the_store_is_but_no_keys(
    home: Path, seaweed: Seaweed, empty_database: str, command: Command
) -> None:
    said = command("init", "--home", home / "new", "--dsn", empty_database, "--warehouse", f"s3a://{seaweed.bucket}//x")
    assert said.exit_code == 0, said.stderr
    text = (home / "new" / FILE_NAME).read_text()
    assert seaweed.s3_endpoint in text
    assert 'warehouse = "s3://lake/x"' in text
    assert seaweed.secret_key not in text
    assert seaweed.access_key not in text


def test_a_home_keeps_the_warehouse_it_was_made_with(tmp_path: Path) -> None:
    new, ports = tmp_path / "home", {"pg_port": None, "lake_port": None}
    with prepare(new, **ports, warehouse="s3a://bucket/lake/") as home:
        assert home.given["warehouse"] == "s3://bucket/lake"
    with prepare(new, **ports) as home:
        assert home.values["warehouse"] == "s3://bucket/lake"
        assert "warehouse" not in home.given
    with prepare(new, **ports, warehouse="s3://bucket//lake") as home:
        assert home.given["warehouse"] == "s3://bucket/lake"
    with pytest.raises(UsageError, match="this home has its warehouse at s3://bucket/lake, not at s3://other"):
        prepare(new, **ports, warehouse="s3://other").__enter__()
