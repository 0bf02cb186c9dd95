"""Jobs on a real cluster: what docs/guides/cluster.md says about a standalone one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.fixtures.cluster import QUICK_JAVA, Cluster, environment_archive
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.tables import make_events

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_EVERYTHING = "select md5(string_agg(e::text, '' order by id, ts)) from events e"
PROGRAM = str(Path(sys.executable).with_name("frostline"))


class User:
    """Who runs commands against the cluster; the connection string has no password, a password file has it."""

    def __init__(self, lake: Lake, cluster: Cluster, folder: Path) -> None:
        options = conninfo_to_dict(lake.dsn)
        password = options.pop("password")
        for file in (folder / "pgpass", cluster.password_file):
            file.write_text(f"*:*:*:*:{password}\n")
            file.chmod(0o600)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FROSTLINE_", "PG", "PYSPARK", "SPARK"))
        }
        self.folder = folder
        self.environment = kept | {
            "FROSTLINE_DSN": make_conninfo(**options),  # pyright: ignore[reportArgumentType]
            "FROSTLINE_WAREHOUSE": str(lake.warehouse),
            "FROSTLINE_SPARK_MASTER": cluster.master,
            "FROSTLINE_EXPORT_SHARD_BYTES": str(1 << 20),
            "SPARK_CONF_DIR": str(cluster.conf_dir),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": QUICK_JAVA,
            "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
            "PGPASSFILE": str(folder / "pgpass"),
        }

    def run(self, *command: str, archive: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        ship = {
            "PYSPARK_PYTHON": "./environment/bin/python",
            "PYSPARK_SUBMIT_ARGS": f"--archives {archive}#environment {environment.pop('more', '')} pyspark-shell",
        }
        return subprocess.run(
            [PROGRAM, *command],
            cwd=self.folder,
            env=self.environment | ship | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def last_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]


def test_archive_and_fold_on_a_standalone_cluster(lake: Lake, cluster: Cluster, tmp_path: Path) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=4, rows_a_month=300)
    lake.add(grace="0")
    before = lake.value(_EVERYTHING)
    user = User(lake, cluster, tmp_path)
    lacking = environment_archive(tmp_path / "lacking.tar.gz", with_frostline=False)
    whole = environment_archive(tmp_path / "whole.tar.gz", with_frostline=True)

    done = user.run("archive", archive=lacking)
    assert done.returncode == 4
    assert last_lines(done) == [
        "error: Spark gave up: ModuleNotFoundError: No module named 'frostline'",
        "hint: install the package on the executors, or send it to them: docs/guides/cluster.md",
    ]

    done = user.run("archive", archive=whole, more="--conf spark.executorEnv.PGPASSFILE=/nowhere")
    assert done.returncode == 4
    assert "no password supplied" in last_lines(done)[0]
    assert last_lines(done)[1] == "hint: let PGPASSFILE name a password file on the executors: docs/guides/cluster.md"

    done = user.run("archive", archive=whole)
    assert done.returncode == 0, done.stderr
    assert "ask for no secret" not in done.stderr
    assert lake.data_files()
    lake.clean()
    assert lake.value(_EVERYTHING) == before
    lake.catalog.execute("update public.events set status = 'changed' where id % 50 = 0")
    changed = lake.value(_EVERYTHING)
    done = user.run("fold", archive=whole)
    assert done.returncode == 0, done.stderr
    assert lake.value("select count(*) from frostline_overlay.events_1") == 0
    assert lake.value(_EVERYTHING) == changed != before
    for worker in ("worker one", "worker two"):
        assert list(cluster.work(worker).glob("app-*/*/environment/lib/python*/site-packages/frostline")), worker


def test_a_stranger_without_the_secret_gets_nothing_done(cluster: Cluster, lake: Lake, tmp_path: Path) -> None:
    make_events(lake.catalog, "public.events")
    fill_events(lake.catalog, months=4, rows_a_month=10)
    lake.add(grace="0")
    user = User(lake, cluster, tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "spark.authenticate true\nspark.authenticate.secret guessed\n"
    )
    whole = environment_archive(tmp_path / "whole.tar.gz", with_frostline=True)
    done = user.run("archive", archive=whole, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert done.returncode == 4
    refusal = f"Spark did not start: no master answers, or it does not take our secret ({cluster.master})"
    told = [f"error: {refusal}", "hint: see what Java wrote above, and docs/guides/cluster.md"]
    assert last_lines(done) == told, done.stderr
    assert lake.data_files() == []
