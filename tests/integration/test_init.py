"""`frostline init`: Frostline in a Postgres of your own."""

import json
import os
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.statements import run

from frostline.relation import foreign_server
from frostline.settings import load


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)


def mapping_options(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select umoptions from pg_user_mappings where srvname = 'frostline_lake'").fetchone()
    assert row
    return dict(option.split("=", 1) for option in row[0])


def server_options(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select srvoptions from pg_foreign_server where srvname = 'frostline_lake'").fetchone()
    assert row
    return dict(option.split("=", 1) for option in row[0])


def test_a_second_run_changes_nothing_and_says_so(command: Command, empty_database: str, tmp_path: Path) -> None:
    words = ("init", "--dsn", empty_database, "--warehouse", tmp_path, "--output", "json")
    assert json.loads(command(*words).stdout)["changed"] is True
    before = mapping_options(empty_database)
    assert json.loads(command(*words).stdout)["changed"] is False
    assert mapping_options(empty_database) == before


def test_with_a_home_the_other_commands_need_no_more(
    command: Command, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    assert command("init", "--dsn", empty_database, "--warehouse", "lake", "--home", home).exit_code == 0
    settings = load(home)
    assert settings.dsn == empty_database
    assert Path(settings.warehouse).is_absolute()
    assert settings.lake_password
    assert mapping_options(empty_database)["password"] == settings.lake_password.get_secret_value()


def test_another_warehouse_than_the_homes_is_refused(command: Command, empty_database: str, tmp_path: Path) -> None:
    home, lake, other = tmp_path / "home", tmp_path / "lake", tmp_path / "other"
    assert command("init", "--dsn", empty_database, "--warehouse", lake, "--home", home).exit_code == 0
    said = command("init", "--home", home, "--warehouse", other)
    assert (said.exit_code, f"this home has its warehouse at file://{lake}, not at file://{other}" in said.stderr) == (
        2,
        True,
    )
    assert "--new-warehouse" in said.stderr
    assert not other.exists()
    assert command("init", "--home", home, "--warehouse", lake).exit_code == 0


def test_another_warehouse_than_the_databases_is_refused(command: Command, empty_database: str, tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    assert command("init", "--dsn", empty_database, "--warehouse", lake).exit_code == 0
    said = command("init", "--dsn", empty_database, "--warehouse", other)
    assert (said.exit_code, f"this database's warehouse is file://{lake}; it is not file://{other}" in said.stderr) == (
        2,
        True,
    )
    assert f"frostline init --warehouse '{other}' --new-warehouse" in said.stderr
    assert not other.exists()


def test_a_new_warehouse_is_written_into_the_home(command: Command, empty_database: str, tmp_path: Path) -> None:
    home, lake, other = tmp_path / "home", tmp_path / "lake", tmp_path / "other"
    assert command("init", "--dsn", empty_database, "--warehouse", lake, "--home", home).exit_code == 0
    password = load(home).lake_password
    assert command("init", "--home", home, "--warehouse", other, "--new-warehouse").exit_code == 0
    assert (load(home).warehouse, load(home).lake_password) == (str(other), password)
    said = command("init", "--home", home, "--output", "json")
    assert (said.exit_code, json.loads(said.stdout)["changed"]) == (0, False)


def test_another_database_than_the_homes_is_refused(
    command: Command, empty_database: str, database: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert command("init", "--dsn", empty_database, "--warehouse", tmp_path / "lake", "--home", home).exit_code == 0
    said = command("init", "--home", home, "--dsn", database)
    assert (said.exit_code, "names another database" in said.stderr) == (2, True), said


def test_a_password_that_is_set_is_the_one_that_postgres_uses(
    command: Command, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_LAKE_PASSWORD", "chosen")
    command("init", "--dsn", empty_database, "--warehouse", tmp_path)
    assert mapping_options(empty_database)["password"] == "chosen"


def test_no_password_is_printed(command: Command, empty_database: str, tmp_path: Path) -> None:
    said = command("init", "--dsn", empty_database, "--warehouse", tmp_path, "--debug")
    assert mapping_options(empty_database)["password"] not in said.stdout + said.stderr


def test_every_postgres_counts_the_same_for_the_lake(command: Command, empty_database: str, tmp_path: Path) -> None:
    """Its own figures differ from version to version."""
    command("init", "--dsn", empty_database, "--warehouse", tmp_path)
    options = server_options(empty_database)
    assert {key: options.get(key) for key in foreign_server.COSTS} == foreign_server.COSTS


@pytest.mark.parametrize(
    ("startup", "tuple_", "kept"), [("10", "0.02", set()), ("10", "0.3", {"0.3"}), ("77", "0.3", {"77", "0.3"})]
)
def test_costs_of_an_older_frostline_are_replaced_and_an_administrators_are_kept(
    command: Command, empty_database: str, tmp_path: Path, startup: str, tuple_: str, kept: set[str]
) -> None:
    words = ("init", "--dsn", empty_database, "--warehouse", tmp_path, "--output", "json")
    command(*words)
    with psycopg.connect(empty_database) as connection:
        run(
            connection,
            f"alter server frostline_lake options (set fdw_startup_cost '{startup}', set fdw_tuple_cost '{tuple_}')",
        )
    assert json.loads(command(*words).stdout)["changed"] is (startup == "10")
    options = server_options(empty_database)
    assert {options[key] for key in foreign_server.COSTS} - set(foreign_server.COSTS.values()) == kept
    assert json.loads(command(*words).stdout)["changed"] is False
