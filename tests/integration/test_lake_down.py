"""The lake is down: the lake server gone, silent or killed, the warehouse full, forbidden or away. What goes on, goes on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.remembered import make_archived_events
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events
from tests.fixtures.twins import Twins

from frostline.errors import UnavailableError
from frostline.lake import claim, paths, snapshots
from frostline.lake.filecheck import Checks
from frostline.pipeline import verify
from frostline.runtime.postgres import free_port
from frostline.settings import write_file

EVERYTHING = "select count(*), sum(amount), md5(string_agg(e::text, '|' order by id)) from public.events e"
NOT_FOR_EVER = "set statement_timeout = '60s'"
"""A query that waits for ever must fail the test and not stop it."""

GOES_ON = (
    "select count(*) from {t} where ts >= '2090-01-01 00:00+00'",
    "select id from {t} where id = 65 and ts >= '2090-01-01 00:00+00'",
    "insert into {t} (id, ts, status) values (501, '2090-01-05', 'new')",
    "insert into {t} (status) values ('by default') returning status",
    "update {t} set status = 'x' where ts >= '2090-01-01 00:00+00' and id = 65",
    "update {t} set status = 'x' where ts = '2090-01-01 05:00+00'",
    "update {t} set amount = amount + 1 where ts between '2090-01-01 03:00+00' and '2090-01-01 09:00+00' returning id",
    "update {t} set ts = '2090-05-01' where ts = '2090-01-01 06:00+00'",
    "delete from {t} where ts > '2090-01-01 18:00+00'",
    "with gone as (delete from {t} where ts = '2090-01-01 07:00+00' returning *) select id from gone",
)
"""What says by a constant on the tier key that it wants hot rows only."""
BY_PARAMETER = (
    "update {t} set status = 'x' where ts = %s and id = 65",
    "update {t} set status = 'x' where ts >= %s::timestamptz and id = 65",
    "delete from {t} where id = 66 and ts >= %s",
    "select status from {t} where ts >= %s order by id",
)
ASKS_THE_LAKE = (
    "select count(*) from events",
    "select * from events where id = 65",
    "update events set status = 'x' where id = 65",
    "update events set status = 'x' where ts < '2024-02-01'",
    "delete from events where status = 'row 5'",
    "update events set status = 'x' from (values (65)) as wanted (id) where events.id = wanted.id",
    "insert into events (id, ts) values (600, '2024-01-15')",
)


@pytest.mark.spark
def test_reads_and_writes_that_name_hot_rows_go_on(twins: Twins) -> None:
    twins.nobody_answers()
    for statement in GOES_ON:
        same(twins, statement)
    for statement in BY_PARAMETER:
        same(twins, statement, ["2090-01-01 05:00+00"])


def same(twins: Twins, statement: str, values: list[object] | None = None) -> None:
    """The relation does what the plain table does; what the cold rows are cannot be asked now."""
    got = [
        sorted(cursor.fetchall()) if cursor.description else cursor.rowcount
        for cursor in (run(twins.connection, statement.format(t=name), values) for name in ("events", "plain"))
    ]
    assert got[0] == got[1], statement


@pytest.mark.spark
def test_generic_plans_of_hot_statements_do_not_ask_either(twins: Twins) -> None:
    run(twins.connection, "set local plan_cache_mode = force_generic_plan")
    run(
        twins.connection, "prepare hot (timestamptz) as update events set amount = amount + 1 where ts = $1 and id = 65"
    )
    run(twins.connection, "prepare recent as select count(*) from events where ts >= now() + interval '50 years'")
    twins.nobody_answers()
    assert run(twins.connection, "execute hot ('2090-01-01 05:00+00')").rowcount == 1
    assert value(twins.connection, "execute recent") == 20


@pytest.mark.spark
def test_writes_of_cold_rows_that_postgres_has_go_on(twins: Twins) -> None:
    """A key that was changed since the last fold is in the heap and in the overlay; a new one may skip the look-up."""
    twins.both("update {t} set status = 'changed' where id = 3")
    twins.both("delete from {t} where id = 4")
    twins.nobody_answers()
    run(twins.connection, "update _events set status = 'again' where id = 3")
    run(twins.connection, "insert into events (id, ts) values (4, '2024-01-01 04:00+00')")
    run(twins.connection, "set local frostline.check_cold_keys = off")
    run(twins.connection, "insert into events (id, ts, status) values (600, '2024-01-15', 'late')")
    for statement in (
        "update plain set status = 'again' where id = 3",
        "insert into plain (id, ts) values (4, '2024-01-01 04:00+00')",
        "insert into plain (id, ts, status) values (600, '2024-01-15', 'late')",
    ):
        run(twins.connection, statement)
    twins.somebody_answers()
    twins.compare()


@pytest.mark.spark
@pytest.mark.parametrize("statement", ASKS_THE_LAKE)
def test_what_may_concern_cold_rows_fails_at_once_and_comes_back(twins: Twins, statement: str) -> None:
    twins.nobody_answers()
    with pytest.raises(errors.SqlclientUnableToEstablishSqlconnection), twins.connection.transaction():
        run(twins.connection, statement)
    twins.somebody_answers()
    run(twins.connection, statement)


@pytest.fixture
def archived(lake: Lake) -> Lake:
    """Three months in the lake, and nothing hot."""
    make_archived_events(lake, months=3, rows_a_month=4000)
    assert rows(lake.catalog, "select count(*) from public._events") == [(0,)]
    return lake


def moved_to(lake: Lake, port: int) -> None:
    """Let Postgres ask another lake server."""
    run(lake.catalog, f"alter server frostline_lake options (set port '{port}')")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@pytest.mark.spark
def test_a_silent_server_is_waited_for_no_longer_than_the_session_says(archived: Lake, silent_port: int) -> None:
    """From 16 on postgres_fdw takes connect_timeout and does not apply it; 15 applies it."""
    with archived.connect() as connection:
        before = rows(connection, EVERYTHING)
        moved_to(archived, silent_port)
        run(connection, "set statement_timeout = '1s'")
        with pytest.raises((errors.QueryCanceled, errors.SqlclientUnableToEstablishSqlconnection)):
            rows(connection, EVERYTHING)
        run(connection, NOT_FOR_EVER)
        assert rows(connection, "select count(*) from events where ts >= '2030-01-01'") == [(0,)]
        moved_to(archived, archived.server.port)
        assert rows(connection, EVERYTHING) == before


@contextmanager
def serving(archived: Lake, home: Path, port: int, watchdog_s: int) -> Generator[subprocess.Popen[str]]:
    """`frostline serve` as a process, killed at the end whatever its state."""
    home.mkdir(exist_ok=True)
    values = {"dsn": archived.dsn, "warehouse": str(archived.warehouse), "lake_port": port, "lake_password": "secret"}
    write_file(home / "frostline.toml", {**values, "lake_watchdog_s": watchdog_s})
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FROSTLINE_")}
    words = [str(Path(sys.executable).with_name("frostline")), "serve", "--home", str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("ready lake=")
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.mark.spark
@pytest.mark.slow
def test_a_server_that_hangs_is_ended_and_its_queries_with_it(archived: Lake, tmp_path: Path) -> None:
    port = free_port()
    with archived.connect() as connection:
        run(connection, NOT_FOR_EVER)
        before = rows(connection, EVERYTHING)
        moved_to(archived, port)
        with serving(archived, tmp_path / "home", port, watchdog_s=3) as process:
            assert rows(connection, EVERYTHING) == before
            process.send_signal(signal.SIGSTOP)
            with pytest.raises((errors.ConnectionFailure, errors.SqlclientUnableToEstablishSqlconnection)):
                rows(connection, EVERYTHING)
            assert process.wait(timeout=60) == -signal.SIGKILL
        with serving(archived, tmp_path / "home", port, watchdog_s=3):
            assert rows(connection, EVERYTHING) == before


@pytest.mark.spark
@pytest.mark.slow
def test_a_server_that_works_is_left_alone_and_stops_when_told(archived: Lake, tmp_path: Path) -> None:
    port = free_port()
    moved_to(archived, port)
    with archived.connect() as connection, serving(archived, tmp_path / "home", port, watchdog_s=3) as process:
        before = rows(connection, EVERYTHING)
        time.sleep(6)  # two limits; a busy machine may well need one second for an answer
        assert rows(connection, EVERYTHING) == before
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.mark.spark
@pytest.mark.slow
def test_a_server_that_dies_in_the_middle_of_a_result_ends_the_query_only(archived: Lake, tmp_path: Path) -> None:
    port = free_port()
    moved_to(archived, port)
    lake_table = value(archived.catalog, "select ftrelid::regclass::text from pg_foreign_table")
    run(archived.catalog, f"alter foreign table {lake_table} options (set fetch_size '100')")
    with archived.connect() as connection:
        run(connection, NOT_FOR_EVER)
        with serving(archived, tmp_path / "home", port, watchdog_s=0) as process:
            before = rows(connection, EVERYTHING)
            run(
                connection, "set enable_hashjoin = off; set enable_mergejoin = off"
            )  # they read all before the first row
            run(connection, "begin; declare piece cursor for select * from events")
            assert len(rows(connection, "fetch 10 from piece")) == 10
            process.kill()
            process.wait()
            with pytest.raises(errors.ConnectionFailure):
                rows(connection, "fetch all from piece")
            run(connection, "rollback")
        with serving(archived, tmp_path / "home", port, watchdog_s=0):
            assert rows(connection, EVERYTHING) == before


@pytest.mark.spark
def test_a_warehouse_that_is_away_fails_cold_reads_only_and_comes_back(archived: Lake) -> None:
    with archived.connect() as connection:
        before = rows(connection, EVERYTHING)
        away = archived.warehouse.with_name("away")
        archived.warehouse.rename(away)
        _forget_metadata()
        with pytest.raises(psycopg.Error, match=r"is not there|cannot read"):
            rows(connection, EVERYTHING)
        assert rows(connection, "select count(*) from events where ts >= '2030-01-01'") == [(0,)]
        run(connection, "insert into events (ts, status) values ('2040-01-01', 'hot')")
        away.rename(archived.warehouse)
        run(connection, "delete from events where ts >= '2030-01-01'")
        assert rows(connection, EVERYTHING) == before


@pytest.mark.slow
@pytest.mark.spark
def test_a_store_that_does_not_answer_is_waited_for_no_longer_than_the_session_says(
    archived: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    archived.server.backend.files.checks = Checks.OFF  # a pipe has no size
    with archived.connect() as connection:
        before = rows(connection, EVERYTHING)
        with _never_opens(archived.data_files()[0]):
            run(connection, "set statement_timeout = '1s'")
            with pytest.raises(errors.QueryCanceled):
                rows(connection, EVERYTHING)
            # Or Postgres would have waited for the end of the cancelled query, for half a minute.
            assert "cancelled query does not end: hanging up" in caplog.text
            run(connection, NOT_FOR_EVER)
            assert rows(connection, "select count(*) from events where ts >= '2030-01-01'") == [(0,)]
        assert rows(connection, EVERYTHING) == before


@pytest.mark.slow
@pytest.mark.spark
def test_neither_is_one_whose_files_are_being_compared(archived: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real, file = paths.stamp, archived.data_files()[0]

    def stamp(location: str) -> tuple[int, int] | None:
        aside = location.removesuffix(".parquet") + ".aside"
        return real(location) if real(aside) is None else real(aside)

    monkeypatch.setattr(paths, "stamp", stamp)
    with archived.connect() as connection:
        before = rows(connection, EVERYTHING)
        archived.server.backend.files._seen.clear()
        with _never_opens(file):
            run(connection, "set statement_timeout = '1s'")
            with pytest.raises(errors.QueryCanceled):
                rows(connection, EVERYTHING)
            run(connection, NOT_FOR_EVER)
            assert rows(connection, "select count(*) from events where ts >= '2030-01-01'") == [(0,)]
        assert rows(connection, EVERYTHING) == before


@contextmanager
def _never_opens(file: Path) -> Generator[None]:
    """Whoever opens the file waits, as on a network disk whose server is away: it is a pipe without a writer."""
    aside = file.with_suffix(".aside")
    file.rename(aside)
    os.mkfifo(file)
    try:
        yield
    finally:
        os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))  # lets go of who waits
        aside.replace(file)


def _forget_metadata() -> None:
    """As another process, or this one after a while."""
    for cached in (snapshots.read_metadata, snapshots.files, snapshots._manifest_files):
        cached.cache_clear()


@pytest.fixture
def small_disk(lake: Lake) -> Iterator[Lake]:
    """A warehouse on a disk of its own, of half a megabyte; only root can make one."""
    words = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(lake.warehouse)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        assert claim.claim(lake.catalog, str(lake.warehouse), anew=True)
        make_events(lake.catalog, "public.events", months=3)
        fill_events(lake.catalog, months=3, rows_a_month=4000)
        lake.add()
        yield lake
    finally:
        subprocess.run(["umount", "--lazy", str(lake.warehouse)], check=True)


def remount(lake: Lake, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(lake.warehouse)], check=True)


def failed_cleanly(error: Exception | None, reason: str) -> None:
    """It is one line with a hint that says what the disk said."""
    assert isinstance(error, UnavailableError)
    assert reason in str(error)
    assert "\n" not in str(error)
    assert error.hint


@pytest.mark.spark
@pytest.mark.parametrize(
    ("limit", "reason", "room"),
    [("size=100k", "No space left on device", "rw,size=64m"), ("ro", "Read-only file system", "rw,size=64m")],
)
@pytest.mark.slow
def test_a_disk_that_takes_nothing_stops_archive_and_fold_until_it_does(
    small_disk: Lake, limit: str, reason: str, room: str
) -> None:
    lake = small_disk
    before = rows(lake.catalog, EVERYTHING)
    remount(lake, limit)
    for _ in range(2):  # the second one also finds what the first one left
        (result,) = lake.archive()
        failed_cleanly(result.error, reason)
    assert rows(lake.catalog, EVERYTHING) == before
    remount(lake, room)
    (result,) = lake.archive()
    assert (result.error, result.rows) == (None, 12_000)
    assert rows(lake.catalog, EVERYTHING) == before
    run(lake.catalog, "update public.events set status = 'changed' where id % 3 = 0")
    before = rows(lake.catalog, EVERYTHING)
    with _full(lake) if "size" in limit else _read_only(lake):
        (folded,) = lake.fold()
        failed_cleanly(folded.error, reason)
        assert rows(lake.catalog, EVERYTHING) == before
    (folded,) = lake.fold()
    assert (folded.error, folded.taken) == (None, 4000)
    assert rows(lake.catalog, EVERYTHING) == before
    assert verify.run(lake.catalog, lake.table()).faults == ()


@contextmanager
def _full(lake: Lake) -> Generator[None]:
    """No room is left on the disk."""
    filler = lake.warehouse / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    yield
    filler.unlink()


@contextmanager
def _read_only(lake: Lake) -> Generator[None]:
    remount(lake, "ro")
    yield
    remount(lake, "rw")


@pytest.mark.spark
def test_a_folder_that_may_not_be_written_stops_archive_until_it_may(lake: Lake) -> None:
    """`/sys` refuses everybody, root too; a folder of the warehouse is a link to it for a while."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3)
    lake.add()
    (lake.warehouse / "public").symlink_to("/sys/kernel")
    (result,) = lake.archive()
    failed_cleanly(result.error, "permitted" if os.geteuid() == 0 else "denied")
    (lake.warehouse / "public").unlink()
    (result,) = lake.archive()
    assert (result.error, result.rows) == (None, 1500)
