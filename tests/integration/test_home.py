"""The home directory of `frostline up`."""

from pathlib import Path

import pytest

from frostline.runtime.home import prepare
from frostline.runtime.postgres import free_port, running_pid
from frostline.settings import load, read_file


def test_the_first_time_writes_complete_settings_for_the_owner_only(tmp_path: Path) -> None:
    with prepare(tmp_path / "a" / "home", pg_port=None, lake_port=None) as home:
        settings = load(home.directory)
    assert settings.embedded
    assert settings.warehouse == str(tmp_path / "a" / "home" / "warehouse")
    assert settings.lake_password
    assert (home.directory / "frostline.toml").stat().st_mode & 0o777 == 0o600


def test_the_second_time_finds_the_same_ports_and_passwords(tmp_path: Path) -> None:
    with prepare(tmp_path / "home", pg_port=None, lake_port=None) as first:
        pass
    with prepare(tmp_path / "home", pg_port=None, lake_port=None) as second:
        assert second.values == first.values


def test_new_ports_are_kept_and_nothing_else_changes(tmp_path: Path) -> None:
    with prepare(tmp_path / "home", pg_port=None, lake_port=None) as first:
        pass
    pg_port, lake_port = free_port(), free_port()
    with prepare(tmp_path / "home", pg_port=pg_port, lake_port=lake_port) as second:
        assert second.postgres.port == pg_port
        assert second.postgres.password == first.postgres.password
    assert read_file(tmp_path / "home" / "frostline.toml")["lake_port"] == lake_port


def test_the_two_servers_of_a_home_get_different_ports(tmp_path: Path) -> None:
    with prepare(tmp_path / "home", pg_port=None, lake_port=None) as home:
        assert home.values["lake_port"] != home.postgres.port


@pytest.mark.slow
def test_a_server_left_over_by_a_killed_process_is_stopped(tmp_path: Path) -> None:
    with prepare(tmp_path / "home", pg_port=free_port(), lake_port=None) as home:
        home.postgres.start()
    with prepare(tmp_path / "home", pg_port=None, lake_port=None):
        assert running_pid(home.postgres.data_dir) is None


def test_the_environment_cannot_point_a_home_at_another_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", "host=elsewhere")
    with prepare(tmp_path / "home", pg_port=None, lake_port=None) as home:
        assert load(home.directory, home.given).dsn == home.values["dsn"]
