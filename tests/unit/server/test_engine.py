"""DuckDB as the lake server uses it."""

import threading
from pathlib import Path

import pytest

from frostline.server.engine import Cancelled, Engine

ENDLESS = "select count(*) from range(1000000000000) t(i) where hash(i) = 1"


def test_a_query_can_be_stopped_before_its_first_row(tmp_path: Path) -> None:
    engine = Engine(memory_limit="100MB", threads=1, temp_directory=tmp_path)
    rows = engine.run(ENDLESS)
    timer = threading.Timer(0.5, rows.interrupt)
    timer.start()
    with pytest.raises(Cancelled):
        list(rows)
    timer.join()
    engine.close()
