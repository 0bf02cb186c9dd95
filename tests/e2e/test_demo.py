"""`frostline demo` as a user runs it, with fewer rows."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frostline.runtime.postgres import free_port, running_pid

pytestmark = pytest.mark.slow

FROSTLINE = str(Path(sys.executable).with_name("frostline"))


def start(home: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FROSTLINE_")}
    ports = ["--pg-port", str(free_port()), "--lake-port", str(free_port())]
    command = [FROSTLINE, "demo", "--home", str(home), "--rows", "5000", *ports]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.spark
def test_it_tells_the_story_to_its_end_also_after_one_that_was_interrupted(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    with start(home) as first:
        assert first.stdout
        for line in first.stdout:
            if "Load 5,000 events" in line:
                first.send_signal(signal.SIGTERM)
                break
        _, errors = first.communicate()
    assert first.returncode == 143
    assert errors.endswith("error: interrupted\n")
    assert running_pid(home / "postgres") is None
    with start(home) as second:
        told, errors = second.communicate()
    assert (second.returncode, errors) == (0, "")
    assert told.count("the same hash over every value of every row") == 2
    assert f"up --home {os.path.relpath(home)}" in told
    assert running_pid(home / "postgres") is None


def test_it_does_not_touch_a_home_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "frostline.toml").write_text("embedded = true\n")
    with start(tmp_path) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert "is a home that the demo did not make" in errors
    assert [entry.name for entry in tmp_path.iterdir()] == ["frostline.toml"]
