"""PostgreSQL's JDBC driver does to the relation what it does to a plain table. `make interop` fetches it and runs this."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.fixtures.pair import Pair

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("password_for_java")]

PROGRAM = Path(__file__).with_name("Events.java")
DIFFERS = "differs: "


@pytest.fixture(scope="module")
def said(made_pair: Pair) -> dict[str, list[str]]:
    """What the program said of each table."""
    parts = conninfo_to_dict(made_pair.dsn)
    url = f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}?user={parts['user']}&password={parts['password']}"
    words = [java(), "-Duser.timezone=UTC", "-cp", str(_driver()), str(PROGRAM), url]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    _, events, plain = done.stdout.split("== ")
    return {name: lines for name, *lines in (events.splitlines(), plain.splitlines())}


def java() -> str:
    """A Java with a compiler, which runs a source file as it is."""
    home = os.environ.get("JAVA_HOME")
    for program in (home and f"{home}/bin/java", shutil.which("java")):
        if program and Path(program).resolve().with_name("javac").exists():
            return program
    pytest.skip("no JDK found: set JAVA_HOME to one")


def _driver() -> Path:
    folder = Path(os.environ.get("FROSTLINE_TEST_JARS", ".cache/jars"))
    jars = sorted(folder.glob("postgresql-*.jar"))
    if not jars:
        pytest.skip(f"no PostgreSQL driver in {folder}: make jars")
    return jars[-1]


def test_it_reads_and_writes_as_on_a_plain_table(made_pair: Pair, said: dict[str, list[str]]) -> None:
    same = {name: [line for line in lines if not line.startswith(DIFFERS)] for name, lines in said.items()}
    assert same["events"] == same["plain"]
    assert len(same["events"]) > 200
    made_pair.compare()


def test_tools_find_a_view_without_a_key_whose_results_cannot_be_updated(said: dict[str, list[str]]) -> None:
    differences = {
        name: [line.removeprefix(DIFFERS) for line in lines if line.startswith(DIFFERS)] for name, lines in said.items()
    }
    assert differences["plain"] == ["id int8", "TABLE", "key id", "key ts", "updated"]
    no_key = "No eligible primary or unique key found for table public.events."
    assert differences["events"] == ["id bigserial", "VIEW", no_key]
