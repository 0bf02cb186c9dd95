"""What only asks Postgres starts fast: it loads neither Spark, nor anything that reads the lake, nor a web framework."""

import os
import subprocess
import sys

ENGINES = {"duckdb", "numpy", "pyarrow", "pyiceberg", "pyspark"}
FRAMEWORKS = {"starlette", "uvicorn"}
ASKING = ("status", "jobs", "plan", "table list", "table show events")
COMMANDS = f"""
import sys
from frostline.cli.main import run
for words in {ASKING}:
    assert run(words.split()) == 4, words
print(*sys.modules)
"""
HELP = """
import sys
from frostline.cli.main import run
assert run(["--help"]) == 0
print(*sys.modules)
"""
METRICS = """
import sys
import frostline.observe.metrics.worker
print(*sys.modules)
"""


def loaded(program: str) -> set[str]:
    """The packages that a program loads. There is no Postgres at its port: what it needs is loaded before it asks."""
    environment = os.environ | {"FROSTLINE_DSN": "host=127.0.0.1 port=1", "FROSTLINE_WAREHOUSE": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_a_command_that_only_asks_loads_no_engine() -> None:
    modules = loaded(COMMANDS)
    assert "psycopg" in modules
    assert not modules & (ENGINES | FRAMEWORKS)


def test_nor_does_the_help() -> None:
    assert not loaded(HELP) & (ENGINES | FRAMEWORKS)


def test_nor_do_the_metrics_of_a_worker() -> None:
    """The framework comes with the port."""
    assert not loaded(METRICS) & (ENGINES | FRAMEWORKS)
