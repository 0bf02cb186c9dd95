"""No dump of a database holds the lake server's password or a connection string's."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.command import Command
from tests.fixtures.quick import first
from tests.fixtures.roles import PASSWORD, role
from tests.fixtures.statements import run, value
from tests.fixtures.tables import make_events

from frostline.catalog import jobs, tables
from frostline.catalog.connect import connect as open_connection
from frostline.errors import UsageError
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tiers import from_text
from frostline.relation import bound, registration
from frostline.relation.registration import Request
from frostline.runtime.home import prepare
from frostline.runtime.install import install
from frostline.runtime.lake_server import start
from frostline.runtime.postgres import Postgres, free_port
from frostline.runtime.programs import give
from frostline.runtime.up import passfile_line, started
from frostline.settings import Settings, load

LAKE_PASSWORD = "lake:pass\\word"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)


def dump(postgres: Postgres, dsn: str) -> str:
    """What the real pg_dump writes."""
    done = postgres.programs.run("pg_dump", f"--dbname={dsn}")
    assert done.returncode == 0, done.stderr
    assert "CREATE USER MAPPING" in done.stdout
    return done.stdout


def archive_nothing(dsn: str) -> None:
    """A managed table whose January Postgres asks the lake for."""
    with open_connection(dsn, purpose="tests") as connection:
        make_events(connection, "public.events")
        table = registration.add(connection, Request(Name.parse("events"), Policy("1 month"))).table
        bound.raise_to(connection, table, from_text(table.tier_kind, "2024-02-01 00:00:00+00"), print)


def asks_the_lake(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return value(connection, "select count(*) from frostline_lake.events_1") == 0


@pytest.mark.slow
def test_a_dump_of_the_embedded_postgres_has_no_secret(tmp_path: Path) -> None:
    with prepare(tmp_path / "home", pg_port=free_port(), lake_port=free_port()) as home:
        settings = load(home.directory, home.given)
        assert settings.lake_password
        with started(home, settings, print) as postgres:
            archive_nothing(settings.dsn)
            assert asks_the_lake(settings.dsn)
            text = dump(postgres, settings.dsn)
            assert install(settings)["changed"] is False
    assert settings.lake_password.get_secret_value() not in text
    assert postgres.password not in text
    file = tmp_path / "home" / "lake.pgpass"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not list((tmp_path / "home" / "postgres").rglob("*.pgpass")), "a base backup would have it"


@pytest.fixture
def settings(empty_database: str, tmp_path: Path) -> Settings:
    """An installation in a Postgres of one's own, by a superuser."""
    return Settings(
        dsn=empty_database,
        warehouse=str(tmp_path),
        lake_port=free_port(),
        lake_password=LAKE_PASSWORD,  # pyright: ignore[reportArgumentType]
    )


@contextmanager
def with_passfile(settings: Settings, postgres: Postgres) -> Generator[Settings]:
    """The same with a password file next to the server's data, which the server's user can read."""
    file = postgres.data_dir.parent / f"{settings.lake_port}.pgpass"
    file.write_text(passfile_line(settings.lake_host, settings.lake_port, "lake", settings.lake_user, LAKE_PASSWORD))
    file.chmod(0o600)
    give(file)
    try:
        yield settings.model_copy(update={"lake_passfile": str(file)})
    finally:
        file.unlink()


@pytest.fixture
def serving(settings: Settings) -> Iterator[Callable[[], None]]:
    """Starts the lake server of the settings."""
    servers: list[Callable[[], None]] = []
    yield lambda: servers.append(start(settings).stop)
    for stop in servers:
        stop()


def test_a_password_file_takes_the_password_out_of_the_mapping(
    settings: Settings, serving: Callable[[], None], postgres_server: Postgres
) -> None:
    install(settings)
    serving()
    archive_nothing(settings.dsn)
    assert asks_the_lake(settings.dsn)
    assert "'lake:pass" in dump(postgres_server, settings.dsn), "this test looks for the right thing"
    with with_passfile(settings, postgres_server) as filed:
        assert install(filed)["changed"] is True
        assert install(filed)["changed"] is False
        assert asks_the_lake(settings.dsn)
        assert "lake:pass" not in dump(postgres_server, settings.dsn)
    assert install(settings)["changed"] is True
    assert asks_the_lake(settings.dsn)


@pytest.mark.slow
def test_the_backup_role_of_the_guide_dumps_everything_but_the_password(
    settings: Settings, serving: Callable[[], None], postgres_server: Postgres
) -> None:
    install(settings)
    serving()
    archive_nothing(settings.dsn)
    with role(settings.dsn, "frostline_backup") as dsn:
        with psycopg.connect(settings.dsn, autocommit=True) as superuser:
            run(superuser, "grant pg_read_all_data to frostline_backup")
        text = dump(postgres_server, dsn)
    assert "lake:pass" not in text
    assert PASSWORD not in text
    assert "CREATE FOREIGN TABLE frostline_lake" in text


@pytest.mark.slow
@pytest.mark.parametrize("lost", first(1, ["drop user, drop password", "drop password", "set password 'old'"]))
def test_init_puts_a_restored_mapping_right(settings: Settings, serving: Callable[[], None], lost: str) -> None:
    install(settings)
    serving()
    archive_nothing(settings.dsn)
    with psycopg.connect(settings.dsn, autocommit=True) as superuser:
        run(superuser, f"alter user mapping for postgres server frostline_lake options ({lost})")
    with pytest.raises(psycopg.OperationalError):
        asks_the_lake(settings.dsn)
    assert install(settings)["changed"] is True
    assert asks_the_lake(settings.dsn)


def test_an_option_that_the_administrator_added_stays(settings: Settings) -> None:
    install(settings)
    with psycopg.connect(settings.dsn, autocommit=True) as superuser:
        run(superuser, "alter server frostline_lake options (set sslmode 'require')")
        run(superuser, "alter user mapping for postgres server frostline_lake options (add sslcert '/x')")
    assert install(settings)["changed"] is False


def test_an_ordinary_role_is_told_what_a_password_file_needs(
    postgres_server: Postgres, settings: Settings, serving: Callable[[], None]
) -> None:
    with role(settings.dsn, "frostline_owner") as dsn, with_passfile(settings, postgres_server) as filed:
        mine = settings.model_copy(update={"dsn": dsn})
        with psycopg.connect(settings.dsn, autocommit=True) as superuser:
            run(
                superuser,
                "create extension postgres_fdw; grant usage on foreign data wrapper postgres_fdw to frostline_owner",
            )
            database = sql.Identifier(superuser.info.dbname)
            superuser.execute(sql.SQL("grant create on database {} to frostline_owner").format(database))
            install(mine)
            with pytest.raises(UsageError, match="needs a password") as refused:
                install(filed.model_copy(update={"dsn": dsn}))
            assert refused.value.hint
            run(superuser, refused.value.hint.partition("a superuser has to run: ")[2])
        assert install(filed.model_copy(update={"dsn": dsn}))["changed"] is True
        assert install(filed.model_copy(update={"dsn": dsn}))["changed"] is False
        assert "lake:pass" not in dump(postgres_server, dsn)


def test_a_password_file_without_the_password_is_refused(
    command: Command, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROSTLINE_LAKE_PASSFILE", "/nowhere")
    said = command("init", "--dsn", empty_database, "--warehouse", tmp_path)
    assert said.exit_code == 2
    assert "lake_password" in said.stderr


def test_no_table_of_ours_holds_a_secret(settings: Settings, postgres_server: Postgres) -> None:
    install(settings)
    archive_nothing(settings.dsn)
    with open_connection(settings.dsn, purpose="tests") as connection:
        table = tables.get(connection, Name.parse("events"))
        job_id = jobs.start(connection, table, "archive", 0, 1)
        jobs.fail(connection, job_id, f"cannot connect to {settings.dsn} password='{LAKE_PASSWORD}'")
    done = postgres_server.programs.run("pg_dump", f"--dbname={settings.dsn}", "--schema=frostline*", "--inserts")
    assert "cannot connect to" in done.stdout
    assert "lake:pass" not in done.stdout
    assert postgres_server.password not in done.stdout
