"""Backups of lake tables: a restored or recovered server has the rows of its moment, goes on, and harms nobody else's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.own_server import DATABASE, OwnServers, Served, connected, kill
from tests.fixtures.statements import run, value
from tests.fixtures.waiting import until_true

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakePointer, Pointer
from frostline.errors import UsageError
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_tables, lake_verify
from frostline.runtime.postgres import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.slow]

READINGS = Name("public", "readings")
ROWS = "select id, kind, at::text from public.readings order by id"
NEW = "insert into public.readings select n, 'kind ' || n % 3, 'epoch' from generate_series({}, {}) n"


def make(lake: Lake) -> None:
    """A lake table of some commits, with deleted rows."""
    columns = ("id bigint not null check (id > 0)", "kind text", "at timestamptz default now()")
    lake_tables.create(lake.catalog, lake.settings, READINGS, columns, Layout(["kind"], key=["id"]))
    for first in (1, 11, 21):
        run(lake.catalog, NEW.format(first, first + 9))
    run(lake.catalog, "delete from public.readings where id in (4, 15)")


def seen(lake: Lake) -> Sequence[Any]:
    return run(lake.catalog, ROWS).fetchall()


def pointer(lake: Lake) -> LakePointer:
    return catalog.load(lake.catalog, Pointer("public", "readings"))


def sound(lake: Lake) -> bool:
    """Whether each file of each state is there."""
    return lake_verify.run(lake.catalog, pointer(lake), history=True).faults == ()


def goes_on(lake: Lake, first: int) -> None:
    """It is written, its CHECKs hold, and it is compacted; each row is there afterwards."""
    before = seen(lake)
    run(lake.catalog, NEW.format(first, first + 4))
    run(lake.catalog, f"update public.readings set kind = 'changed' where id = {first}")
    run(lake.catalog, f"delete from public.readings where id = {first + 1}")
    with pytest.raises(psycopg.errors.CheckViolation):
        run(lake.catalog, "insert into public.readings values (-1)")
    (result,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert (result.error, result.changed) == (None, True)
    now = seen(lake)
    assert [row for row in now if row[0] < first] == before
    assert [row[0] for row in now if row[0] >= first] == [first, first + 2, first + 3, first + 4]
    assert sound(lake)


def test_a_restored_dump_goes_on_and_the_old_server_misses_no_file(own_servers: OwnServers, served: Served) -> None:
    """Both share the warehouse, so from now on there are two tables that were one."""
    old = own_servers.new("old")
    original = served(old)
    make(original)
    before, file = seen(original), own_servers.folder / "app.dump"
    own_servers.run("pg_dump", f"--dbname={old.dsn(DATABASE)}", "--format=custom", f"--file={file}")
    new = own_servers.new("new")
    own_servers.run("pg_restore", f"--dbname={new.dsn(DATABASE)}", "--exit-on-error", str(file))
    restored = served(new)
    assert seen(restored) == before
    goes_on(restored, 100)
    goes_on(original, 200)
    assert sound(restored)
    assert [row[0] for row in seen(restored) if row[0] >= 100] == [100, 102, 103, 104]
    assert [row[0] for row in seen(original) if row[0] >= 100] == [200, 202, 203, 204]
    with pytest.raises(UsageError, match="restored or promoted from may need the files"):
        lake_tables.drop(restored.catalog, restored.settings, READINGS, purge=True)
    assert sound(restored)
    lake_tables.drop(restored.catalog, restored.settings, READINGS, purge=False)
    assert sound(original)


def test_recovery_to_a_moment_has_the_lake_tables_of_then(
    own_servers: OwnServers, tmp_path: Path, served: Served
) -> None:
    wal = own_servers.directory("wal")
    old = own_servers.new("archived", {"archive_mode": "on", "archive_command": f"cp %p {wal}/%f"})
    lake = served(old)
    make(lake)
    recovery = {
        "restore_command": f"cp {wal}/%f %p",
        "recovery_target_name": "before",
        "recovery_target_action": "promote",
    }
    new = own_servers.copied(old, "recovered", options=recovery, signal="recovery.signal")
    run(lake.catalog, NEW.format(40, 49))
    before = seen(lake)
    with connected(old) as connection:
        run(connection, "select pg_create_restore_point('before')")
    goes_on(lake, 300)
    lake_tables.create(lake.catalog, lake.settings, Name("public", "later"), ("id bigint",), Layout())
    _finish_wal(old)
    kill(old)
    new.start()
    with connected(new) as connection:
        until_true(connection, "select not pg_is_in_recovery()")
    now = served(new)
    assert seen(now) == before
    assert [table.name for table in catalog.listed(now.catalog)] == [READINGS]
    goes_on(now, 400)


def _finish_wal(server: Postgres) -> None:
    with connected(server) as connection:
        last = value(connection, "select pg_walfile_name(pg_switch_wal())")
        until_true(connection, "select coalesce(last_archived_wal >= %s, false) from pg_stat_archiver", (last,))


def test_a_standby_reads_lake_tables_and_goes_on_after_its_promotion(own_servers: OwnServers, served: Served) -> None:
    old = own_servers.new("primary")
    lake = served(old)
    make(lake)
    new = own_servers.copied(old, "standby", "--write-recovery-conf")
    new.start()
    before = seen(lake)
    with connected(new) as standby:
        until_true(standby, "select pg_is_in_recovery()")
        assert standby.execute(ROWS.encode()).fetchall() == before
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            run(standby, "insert into public.readings values (500)")
    kill(old)
    with connected(new) as promoted:
        run(promoted, "select pg_promote()")
        until_true(promoted, "select not pg_is_in_recovery()")
    now = served(new)
    assert seen(now) == before
    goes_on(now, 500)
