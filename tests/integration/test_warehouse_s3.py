"""The warehouse in an object store: its marker, and what is wrong with keys and buckets is told before anything starts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyarrow.fs import S3FileSystem
from pydantic import SecretStr
from tests.fixtures.cold_twins import change, compare, make_archived
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.s3 import access
from tests.fixtures.seaweed import STRANGER_KEY, STRANGER_SECRET, Seaweed
from tests.fixtures.statements import value

from frostline.errors import UnavailableError
from frostline.lake import objectstore, warehouse
from frostline.runtime import lake_server, worker
from frostline.runtime.install import install, install_and_find_lake
from frostline.settings import Settings

pytestmark = pytest.mark.slow

WRONG: dict[str, dict[str, Any]] = {
    "the object store does not know the access key": {"access_key": "nobody"},
    "the secret key is not the one of the access key": {"secret_key": "wrong"},
    "the object store forbids it": {"access_key": STRANGER_KEY, "secret_key": STRANGER_SECRET},
}


def settings_in(store: Seaweed, dsn: str, place: str) -> Settings:
    keys: dict[str, Any] = {"s3_access_key": SecretStr(store.access_key), "s3_secret_key": SecretStr(store.secret_key)}
    return Settings(dsn=dsn, warehouse=place, s3_endpoint=store.s3_endpoint, **keys)


def begun(settings: Settings) -> None:
    stop = Event()
    stop.set()
    worker.run(settings, stop, announce=lambda _: None)


STARTS: list[Callable[[Settings], object]] = [install, install_and_find_lake, lake_server.start, begun]


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_keys_are_told_at_once(
    seaweed: Seaweed, s3_lake: Lake, empty_database: str, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """What cannot get better is not tried again: with so many tries that would take hours."""
    monkeypatch.setattr(objectstore, "_TRIES", 10_000)
    first = settings_in(seaweed, empty_database, f"s3://{seaweed.new_bucket()}/x")
    with objectstore.used(replace(access(seaweed), **WRONG[reason])):
        for start in STARTS:
            settings = first if start in (install, install_and_find_lake) else s3_lake.settings
            with pytest.raises(UnavailableError, match=reason):
                start(settings)
    assert seaweed.objects(first.warehouse.split("/")[2]) == []


@pytest.mark.quick
def test_a_bucket_that_is_not_there_is_told_at_once(seaweed: Seaweed, empty_database: str) -> None:
    settings = settings_in(seaweed, empty_database, "s3://not-there/x")
    with objectstore.used(access(seaweed)):
        for start in (install, install_and_find_lake):
            with pytest.raises(UnavailableError, match="there is no such bucket"):
                start(settings)


@pytest.mark.quick
def test_a_bucket_that_went_is_named(s3_lake: Lake, seaweed: Seaweed) -> None:
    keys: dict[str, Any] = {
        "access_key": seaweed.access_key,
        "secret_key": seaweed.secret_key,
        "endpoint_override": seaweed.s3_endpoint,
    }
    S3FileSystem(**keys, allow_bucket_deletion=True).delete_dir(s3_lake.settings.warehouse.split("/")[2])
    with pytest.raises(UnavailableError, match="there is no such bucket"):
        warehouse.require(s3_lake.catalog, s3_lake.settings.warehouse)


def _delete_all(lake: Lake, store: Seaweed) -> None:
    bucket = lake.settings.warehouse.split("/")[2]
    for key in store.objects(bucket):
        store.filesystem().delete_file(f"{bucket}/{key}")


@pytest.mark.spark
def test_an_emptied_bucket_is_refused_and_undo_works(s3_lake: Lake, seaweed: Seaweed) -> None:
    lake, bucket = s3_lake, s3_lake.settings.warehouse.split("/")[2]
    make_archived(lake)
    change(lake)
    _delete_all(lake, seaweed)
    for job in (lake.archive, lake.fold, lake.compact, lake.retain):
        (refused,) = job("events")
        assert "is not this database's" in str(refused.error)
    with pytest.raises(UnavailableError, match="is not this database's"):
        lake.clean()
    assert seaweed.objects(bucket) == []
    assert len(lake.undo().partitions) == 3
    compare(lake)
    assert seaweed.objects(bucket) == []


def test_a_store_that_does_not_answer_keeps_nobody_from_hot_rows(
    mortal_lake: Lake, own_seaweed: Seaweed, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be back in a moment: servers and workers start, and what needs the lake says that it is away."""
    own_seaweed.stop()
    settings = mortal_lake.settings.model_copy(update={"lake_port": mortal_lake.server.port + 1})
    assert "does not answer" in str(install_and_find_lake(settings))
    begun(settings)
    assert "the object store does not answer" in caplog.text
    assert value(mortal_lake.catalog, "select 1") == 1


@pytest.mark.spark
def test_a_command_with_a_wrong_key_starts_no_spark(
    s3_lake: Lake, seaweed: Seaweed, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_archived(s3_lake)
    change(s3_lake)
    monkeypatch.setenv("FROSTLINE_DSN", s3_lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", s3_lake.settings.warehouse)
    monkeypatch.setenv("FROSTLINE_S3_ENDPOINT", seaweed.s3_endpoint)
    monkeypatch.setenv("FROSTLINE_S3_ACCESS_KEY", seaweed.access_key)
    monkeypatch.setenv("FROSTLINE_S3_SECRET_KEY", "wrong")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = command("fold")  # with a JAVA_HOME in which there is no Java
    assert (said.exit_code, "the secret key is not the one of the access key" in said.stderr) == (4, True), said
