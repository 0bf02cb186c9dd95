"""DuckDB connections and quoting."""

from pathlib import Path

import duckdb
import pytest

from frostline.errors import UnavailableError
from frostline.lake import duck, ducksql

HOSTILE = ["plain", "it's", 'a "quoted" name', "'; drop table x; --", "ünïcödé", "back\\slash", "$$", "?", "{}", "%s"]


@pytest.fixture
def connection(tmp_path: Path):
    with duck.connect(memory_limit="256MB", threads=1, temp_directory=str(tmp_path)) as opened:
        yield opened


def test_extensions_come_from_installed_packages_and_nothing_is_downloaded(connection: duckdb.DuckDBPyConnection):
    loaded = connection.execute("select extension_name from duckdb_extensions() where loaded").fetchall()
    assert {("postgres_scanner",), ("httpfs",)} <= set(loaded)
    for name in ("autoinstall_known_extensions", "autoload_known_extensions"):
        assert connection.execute("select current_setting(?)", [name]).fetchone() == (False,)


def test_a_missing_extension_is_named_with_the_package_to_install():
    with pytest.raises(UnavailableError, match="no_such_thing") as caught:
        duck.extension_path("no_such_thing")
    assert caught.value.hint
    assert "duckdb-extension-no-such-thing" in caught.value.hint


def test_time_is_counted_in_utc(connection: duckdb.DuckDBPyConnection):
    assert connection.execute("select current_setting('TimeZone')").fetchone() == ("UTC",)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_literal_means_its_text(connection: duckdb.DuckDBPyConnection, text: str):
    assert connection.execute(f"select {ducksql.literal(text)}").fetchone() == (text,)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_identifier_names_its_column(connection: duckdb.DuckDBPyConnection, name: str):
    described = connection.execute(f"select 1 as {ducksql.identifier(name)}").description
    assert described
    assert described[0][0] == name
