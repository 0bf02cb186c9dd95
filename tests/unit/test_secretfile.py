"""What Spark sends to its tasks has no secret in it, and where a task finds it all the same."""

import fcntl
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.serializers import CloudPickleSerializer

from frostline import secretfile
from frostline.catalog.connect import Dsn
from frostline.errors import UsageError
from frostline.lake import objectstore
from frostline.lake.objectstore import Access

DSN = "postgresql://app:hunter%202%27@db.internal:5433/shop?sslpassword=tiger9&passfile=/etc/pass&sslmode=require"
SECRETS = ("hunter 2'", "hunter%202", "tiger9", "AKIA-ours", "s3cr3t-ours", "t0ken-ours")
ACCESS = Access(
    "AKIA-ours", "s3cr3t-ours", "t0ken-ours", region="eu-1", endpoint="http://store:1", path_style=True, timeout_s=7
)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The secrets of a test are in a folder of its own, which nobody looks at afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in (("_folder", None), ("_places", {}), ("_read", {})):
        monkeypatch.setattr(secretfile, name, value)
    for name in ("FROSTLINE_HOME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield
    objectstore.use(None)


def sent(value: object) -> bytes:
    """As Spark sends it: in a function that uses it."""
    serializer = CloudPickleSerializer()
    data = serializer.dumps((lambda: value, [value], {"key": value}))
    assert not [secret for secret in SECRETS if secret.encode() in data]
    return data


def received(data: bytes) -> object:
    function, *_ = pickle.loads(data)
    return function()


def elsewhere() -> None:
    """From now on this is another machine."""
    assert secretfile._folder
    shutil.rmtree(secretfile._folder)
    secretfile._read.clear()


def test_a_connection_string_arrives_whole_and_no_password_travels() -> None:
    dsn = received(sent(Dsn(DSN)))
    assert isinstance(dsn, Dsn)
    assert conninfo_to_dict(dsn) == conninfo_to_dict(DSN)
    assert received(sent(dsn)) == dsn, "what has arrived can be sent again"


def test_on_another_machine_the_rest_of_a_connection_string_is_left_to_libpq() -> None:
    data = sent(Dsn(DSN))
    elsewhere()
    dsn = received(data)
    assert isinstance(dsn, Dsn)
    secret = {"password", "sslpassword"}
    assert conninfo_to_dict(dsn) == {key: value for key, value in conninfo_to_dict(DSN).items() if key not in secret}
    assert received(sent(dsn)) == dsn


def test_a_connection_string_without_a_secret_makes_no_file() -> None:
    assert conninfo_to_dict(str(received(sent(Dsn("host=db user=app"))))) == {"host": "db", "user": "app"}
    assert secretfile._folder is None


def test_keys_of_an_object_store_arrive_and_do_not_travel() -> None:
    access = received(sent(ACCESS))
    assert access == ACCESS
    assert received(sent(access)) == ACCESS


def test_on_another_machine_the_keys_are_those_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sent(ACCESS)
    elsewhere()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-theirs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "theirs")
    access = received(data)
    assert access == Access(
        "AKIA-theirs", "theirs", region="eu-1", endpoint="http://store:1", path_style=True, timeout_s=7
    )


def test_another_machine_without_keys_says_so_when_they_are_needed() -> None:
    data = sent(ACCESS)
    elsewhere()
    access = received(data)
    assert isinstance(access, Access)
    objectstore.use(access)
    with pytest.raises(UsageError, match=r"has no keys of the object store; hint: set AWS_ACCESS_KEY_ID .*cluster\.md"):
        objectstore.current()


def test_the_file_is_for_our_user_only_and_others_files_are_not_believed(tmp_path: Path) -> None:
    place = Path(secretfile.put("hunter2"))
    assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert secretfile.put("hunter2") == str(place)
    forged = tmp_path / "forged"
    forged.write_text("theirs")
    forged.chmod(0o644)
    assert secretfile.get(str(forged)) is None
    forged.chmod(0o600)
    (tmp_path / "link").symlink_to(forged)
    assert secretfile.get(str(tmp_path / "link")) is None
    assert secretfile.get(str(tmp_path / "nothing")) is None
    if os.geteuid() == 0:
        os.chown(forged, 12345, 12345)
        assert secretfile.get(str(forged)) is None


def test_a_file_that_something_tidied_away_is_written_again() -> None:
    place = secretfile.put("hunter2")
    elsewhere()
    assert (again := secretfile.put("hunter2")) != place
    assert secretfile.get(again) == "hunter2"


_PUT = "import os, sys; from frostline import secretfile; print(secretfile.put('hunter2'), flush=True); sys.stdin.readline(); {}"


def puts(end: str, tmp_path: Path) -> subprocess.Popen[str]:
    """Another process with a secret; it ends so after a line."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _PUT.format(end)]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_secrets_go_with_their_process_and_those_of_a_killed_one_with_the_next(tmp_path: Path) -> None:
    with (
        puts("", tmp_path) as ending,
        puts("os.kill(os.getpid(), 9)", tmp_path) as killed,
        puts("", tmp_path) as living,
    ):
        assert ending.stdout
        assert killed.stdout
        assert living.stdout
        places = [Path(process.stdout.readline().strip()) for process in (ending, killed, living) if process.stdout]
        ending.communicate("\n")
        killed.communicate("\n")
        assert [place.exists() for place in places] == [False, True, True]
        secretfile.put("another")
        assert [place.parent.exists() for place in places] == [False, False, True]
        living.communicate("\n")


def test_a_folder_is_never_there_without_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who tidies up in the moment in which it is locked finds nothing to take away."""
    real: Callable[[int, int], None] = fcntl.flock

    def flock(file: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            puts("", tmp_path).communicate("\n")
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert secretfile.get(secretfile.put("kept")) == "kept"


def test_libpq_finds_the_password_on_another_machine_in_its_password_file(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sent(Dsn(database))
    elsewhere()
    dsn = str(received(data))
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(dsn)
    options = conninfo_to_dict(database)
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:*:{options['password']}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    psycopg.connect(dsn).close()
