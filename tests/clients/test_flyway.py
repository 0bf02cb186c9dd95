"""Flyway's migrations of a table with rows in the lake, as docs/guides/schema-changes.md has them. `make interop` fetches Flyway."""

import os
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.clients.test_jdbc import java
from tests.clients.test_migrations import FINAL, described, example, for_plain, is_whole, trace
from tests.fixtures.lake import Lake
from tests.fixtures.statements import value
from tests.fixtures.twins import make_twins

from frostline.relation import guard

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("password_for_java")]

PROGRAM = Path(__file__).with_name("Migrate.java")
PARTS = (
    "flyway-core",
    "flyway-database-postgresql",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "postgresql",
)
FAILING = "alter table _events add column more text; update events set more = 'x' where id in (5, 75); select 1 / 0;"


@pytest.fixture(scope="module")
def classpath() -> str:
    """Flyway, what it needs, and the driver."""
    folder = Path(os.environ.get("FROSTLINE_TEST_JARS", ".cache/jars"))
    jars = [str(file) for part in PARTS for file in folder.glob(f"{part}-[0-9]*.jar")]
    if len(jars) != len(PARTS):
        pytest.skip(f"no Flyway in {folder}: make jars")
    return os.pathsep.join(jars)


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, and a plain table with the same rows."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    return lake


def migrate(lake: Lake, classpath: str, folder: Path, name: str, *scripts: str) -> subprocess.CompletedProcess[str]:
    """Run all scripts that were not run yet on one of the two tables."""
    (folder / name).mkdir(exist_ok=True)
    for number, script in enumerate(scripts, 1):
        (folder / name / f"V{number}__change.sql").write_text(for_plain(script) if name == "plain" else script)
    parts = conninfo_to_dict(lake.dsn)
    url = f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}"
    given = [url, str(parts["user"]), str(parts["password"]), str(folder / name), f"history_of_{name}"]
    words = [java(), "-Duser.timezone=UTC", "-cp", classpath, str(PROGRAM), *given]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def test_flyway_migrates_and_a_script_that_fails_leaves_no_trace(cold: Lake, classpath: str, tmp_path: Path) -> None:
    for name in ("events", "plain"):
        done = migrate(cold, classpath, tmp_path, name, example("flyway"))
        assert "done: 1" in done.stdout, done.stdout + done.stderr
    assert [column for column, *_ in described(cold, "events")] == FINAL
    assert value(cold.catalog, "select count(*) from public.events where note like 'old %'") == 11
    is_whole(cold)
    before = trace(cold)
    for name in ("events", "plain"):
        done = migrate(cold, classpath, tmp_path, name, example("flyway"), FAILING)
        assert done.returncode != 0
        assert "division by zero" in done.stdout + done.stderr
    assert trace(cold) == before
    is_whole(cold)
