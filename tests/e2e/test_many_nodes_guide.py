"""The guide to many nodes, executed word for word."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.pages import Shell, steps

from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_tables
from frostline.runtime.postgres import free_port
from frostline.settings import FILE_NAME, write_file

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "many-nodes.md"


@pytest.fixture
def shell(tmp_path: Path, lake: Lake, empty_database: str) -> Iterator[Shell]:
    """Where the reader is: the catalog's home, and another database."""
    (home := tmp_path / "catalog").mkdir()
    write_file(home / FILE_NAME, {"dsn": lake.dsn, "warehouse": str(lake.warehouse)})
    shell = Shell(tmp_path, CATALOG=lake.dsn, NODE=empty_database)
    yield shell
    shell.close()


def test_the_guide_does_what_it_says(shell: Shell, lake: Lake) -> None:
    lake_tables.create(lake.catalog, lake.settings, Name("public", "readings"), ["id bigint", "device text"], Layout())
    page = GUIDE.read_text()
    assert page.count("--lake-port 5434") == 1
    for step in steps(page):
        shell.do(replace(step, commands=step.commands.replace("5434", str(free_port()))))
