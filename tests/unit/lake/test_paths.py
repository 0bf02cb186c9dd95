"""Locations that every reader understands."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from frostline.errors import UsageError
from frostline.lake import paths
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.model.tiers import TierKind


def named(name: Name) -> Table:
    """A table of which only the name and the number matter."""
    return Table(7, name, (), (), "day", TierKind.DATE, "month", Policy("1 month"), "0a1b2c3d")


@pytest.mark.parametrize(
    "given", ["/data/lake", "file:///data/lake", "file:/data/lake", "/data/lake/", "/data/x/../lake"]
)
def test_a_local_warehouse_has_one_form(given: str):
    assert paths.warehouse_location(given) == "file:///data/lake"


def test_a_relative_warehouse_starts_at_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert paths.warehouse_location("lake") == f"file://{tmp_path}/lake"


@pytest.mark.parametrize(
    "given", ["s3://bucket/lake", "s3://bucket/lake/", "s3a://bucket/lake", "s3n://bucket//lake//"]
)
def test_an_object_store_has_one_form(given: str):
    assert paths.warehouse_location(given) == "s3://bucket/lake"


def test_a_whole_bucket_may_be_the_warehouse():
    assert (
        paths.table_location("s3://bucket/", named(Name("public", "events"))) == "s3://bucket/public/events_7-0a1b2c3d"
    )


@pytest.mark.parametrize("given", ["s3://", "s3:///lake", "s3a://", "s3://me@bucket/lake", "s3://host:9000/lake"])
def test_a_warehouse_without_a_bucket_is_refused(given: str):
    with pytest.raises(UsageError, match="does not name a bucket"):
        paths.warehouse_location(given)


@pytest.mark.parametrize("given", ["s3://bucket/../lake", "s3://bucket/./lake", "s3://bucket/lake/.."])
def test_an_object_store_has_no_folder_above(given: str):
    with pytest.raises(UsageError, match="has the part"):
        paths.warehouse_location(given)


@pytest.mark.parametrize("character", list("*?[]{}#=\\\n"))
def test_a_warehouse_with_a_pattern_character_is_refused(character: str):
    with pytest.raises(UsageError, match="pattern"):
        paths.warehouse_location(f"/data/la{character}ke")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (Name("public", "events"), "public/events_7"),
        (Name("My Schema", "Straße"), "My%20Schema/Stra%C3%9Fe_7"),
        (Name("a/b", ".."), "a%2Fb/%2E._7"),
        (Name("x", "a~b=c*"), "x/a%7Eb%3Dc%2A_7"),
    ],
)
def test_names_become_safe_folders(name: Name, folder: str):
    assert paths.table_location("/lake", named(name)) == f"file:///lake/{folder}-0a1b2c3d"


def test_no_two_databases_have_the_same_folder():
    ours, theirs = (replace(named(Name("public", "events")), token=token) for token in ("0a1b2c3d", "4e5f6a7b"))
    assert paths.table_location("/lake", ours) == "file:///lake/public/events_7-0a1b2c3d"
    assert paths.table_location("/lake", ours) != paths.table_location("/lake", theirs)


def test_pyiceberg_and_duckdb_find_the_same_file_under_a_hostile_path(tmp_path: Path):
    table = paths.table_location(str(tmp_path / "my lake é %20+&"), named(Name("s p", "日本")))
    location = paths.data_file(table, 3)
    paths.make_parent(location)
    with duckdb.connect() as connection:
        connection.execute("copy (select 42 as answer) to '" + location + "' (format parquet)")
        assert connection.execute("select * from read_parquet(?)", [location]).fetchall() == [(42,)]
    assert PyArrowFileIO().new_input(location).exists()
    assert paths.size_bytes(location) == Path(location.removeprefix("file://")).stat().st_size


def test_data_file_names_carry_the_job_and_never_repeat():
    first, second = paths.data_file("file:///t", 12), paths.data_file("file:///t", 12)
    assert first != second
    assert paths.job_of(first) == paths.job_of(second) == 12
    assert paths.job_of("file:///t/data/other.parquet") is None


def test_deleting_a_file_twice_is_no_error(tmp_path: Path):
    file = tmp_path / "x.parquet"
    file.write_bytes(b"x")
    paths.delete(f"file://{file}")
    paths.delete(f"file://{file}")
    assert paths.size_bytes(f"file://{file}") is None
