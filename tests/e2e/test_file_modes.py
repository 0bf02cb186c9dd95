"""Nothing that Frostline makes can be read by other users of the machine, not even for a moment."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frostline.runtime.postgres import free_port
from frostline.runtime.programs import server_owner

pytestmark = pytest.mark.slow

PROGRAM = str(Path(sys.executable).with_name("frostline"))
TABLE = """
create table events (id int, ts timestamptz, note text, primary key (id, ts)) partition by range (ts);
create table events_1 partition of events for values from ('2024-01-01') to ('2024-02-01');
create table events_2 partition of events for values from ('2024-02-01') to ('2024-03-01');
create table events_new partition of events for values from ('2024-03-01') to (maxvalue);
insert into events select n, timestamptz '2024-01-05 00:00+00' + n * interval '1 hour', repeat('x', 500)
  from generate_series(1, 1000) n;
insert into events values (5000, now(), 'hot');
"""
DRIVER = """
import os, sys
from frostline import spark
from frostline.pipeline.spark import session, stop
os.umask(0o022)
driver = session("local[2]")
frame = spark.read(driver, "events", home=sys.argv[1])
assert frame.orderBy("note", "id").count() == 1001
rows = "select id + 100000 as id, timestamp'2024-01-06' as ts, 'loaded' as note from range(2000)"
print(spark.write(driver.sql(rows), "events", home=sys.argv[1], lake_rows=10))
(here := os.path.join(sys.argv[2], "mine")) and open(here, "w").close()
assert os.stat(here).st_mode & 0o777 == 0o644
stop(driver)
"""


class World:
    """A machine on which new files are readable by all, as on most."""

    def __init__(self, place: Path) -> None:
        self.home, self.temp, self.cwd = place / "home", place / "temp", place / "cwd"
        self.shown: dict[str, str] = {}
        for folder in (self.temp, self.cwd):
            folder.mkdir()
            folder.chmod(0o755)  # as the temporary folder of a machine is, whatever the mask of this process
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("FROSTLINE_", "PG"))}
        self.environment = keep | {
            "FROSTLINE_HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "SPARK_LOCAL_DIRS": str(self.temp),
        }

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.cwd,
            env=self.environment,
            umask=0o022,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )

    def run(self, *command: str) -> str:
        with self.start(*command) as process:
            said, _ = process.communicate()
        assert process.returncode == 0, command
        return said

    def look(self, *, everywhere: bool = True) -> None:
        """Note what others may read or enter now."""
        owner = server_owner()
        for root in (self.home, self.temp, self.cwd):
            for folder, folders, files in os.walk(root):
                if not everywhere and "postgres" in folders:
                    folders.remove("postgres")
                for path in (Path(folder, name) for name in ("", *folders, *files)):
                    self._judge(path, owner.pw_gid if owner else None)

    def _judge(self, path: Path, passing_group: int | None) -> None:
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        may_pass = status.st_gid == passing_group and path == self.home
        bits = status.st_mode & (0o067 if may_pass else 0o077)
        if bits and not path.is_symlink() and path not in (self.temp, self.cwd, self.cwd / "mine"):
            self.shown[str(path)] = f"{status.st_mode:o}"

    @contextmanager
    def watched(self) -> Generator[None]:
        """Look all the time."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                self.look(everywhere=False)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self.look()


@pytest.mark.spark
def test_nobody_else_can_read_what_up_archive_fold_and_spark_make(tmp_path: Path) -> None:
    world = World(tmp_path)
    ports = ("--pg-port", str(free_port()), "--lake-port", str(free_port()))
    with world.watched(), world.start(PROGRAM, "up", "--no-worker", *ports) as up:
        try:
            assert up.stdout
            assert up.stdout.readline().startswith("ready")
            world.run(PROGRAM, "psql", "-qc", TABLE)
            world.run(PROGRAM, "table", "add", "events", "--hot", "1 month", "--grace", "0")
            world.run(PROGRAM, "archive")
            world.run(PROGRAM, "psql", "-qc", "update events set note = 'changed' where id < 10")
            world.run(PROGRAM, "fold")
            world.run(PROGRAM, "clean")
            assert "as_files=2000" in world.run(sys.executable, "-c", DRIVER, str(world.home), str(world.cwd))
            world.run(PROGRAM, "verify")
        finally:
            up.terminate()
    assert list(world.home.rglob("*.parquet"))
    assert world.shown == {}
    assert world.home.stat().st_mode & 0o777 == (0o710 if server_owner() else 0o700)
