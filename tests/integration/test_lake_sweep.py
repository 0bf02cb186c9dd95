"""Sweeps of lake tables: what belongs to nothing goes, and nobody commits what was swept."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from tests.fixtures import lake_past
from tests.fixtures.catalogserver import serving
from tests.fixtures.lake import Lake
from tests.fixtures.lake_past import ROWS, files, history, needed, pointer, swept
from tests.fixtures.statements import value

from frostline.catalog.lake_tables import NoSuchLakeTable
from frostline.errors import ConflictError
from frostline.lake import lake_commit, lake_rows, lake_upkeep
from frostline.lake.lake_table import Layout
from frostline.model.names import Name
from frostline.pipeline import lake_compact, lake_expire, lake_sweep, lake_tables
from frostline.pipeline.sweep import Request


@pytest.fixture
def session(lake: Lake) -> Iterator[psycopg.Connection]:
    """A table of three commits."""
    lake_past.make(lake)
    with lake.connect() as connection:
        for first in (1, 11, 21):
            connection.execute(
                "insert into readings select n, 'a', n from generate_series(%s::int, %s) n", (first, first + 9)
            )
        yield connection


def garbage(lake: Lake, *names: str, days: float = 10) -> list[Path]:
    """Files in the table's folder that nobody knows of."""
    folder = Path(pointer(lake).location.removeprefix("file://"))
    made = [folder / name for name in names]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"garbage")
    old(made, days)
    return made


def old(paths: list[Path], days: float = 10) -> None:
    then = time.time() - days * 86400
    for path in paths:
        os.utime(path, (then, then))


def test_old_files_that_belong_to_nothing_go_and_all_others_stay(lake: Lake, session: psycopg.Connection) -> None:
    before = session.execute(ROWS).fetchall()
    lake_past.age(lake)
    dead = garbage(lake, "data/a.parquet", "data/kind=b/c.parquet", "metadata/d.avro", "metadata/00001-e.metadata.json")
    young = garbage(lake, "data/young.parquet", days=1)
    strange = garbage(lake, "notes.txt")
    planned = swept(lake, Request(dry_run=True))
    assert {orphan.location for orphan in planned.orphans} == {f"file://{path}" for path in dead}
    assert all(path.exists() for path in dead)
    done = swept(lake)
    assert (len(done.orphans), done.unknown) == (4, (f"file://{strange[0]}",))
    assert files(lake) == needed(lake) | {f"file://{path}" for path in (*young, *strange)}
    assert session.execute(ROWS).fetchall() == before
    assert len(history(lake)) == 3, "no snapshot is made or expired"
    location = pointer(lake).metadata_location
    assert swept(lake).orphans == ()
    assert pointer(lake).metadata_location == location, "without anything to delete there is no commit"
    assert value(lake.catalog, "select string_agg(detail, ',') from frostline.job where kind = 'sweep'") == "4 files"


def test_a_transaction_of_less_than_the_safety_age_keeps_its_files(lake: Lake, session: psycopg.Connection) -> None:
    garbage(lake, "data/a.parquet")
    with lake.connect() as other:
        other.execute("begin")
        other.execute("insert into readings values (100, 'mine', 1)")
        assert other.execute("select count(*) from readings").fetchone() == (31,), "its rows are in a file now"
        assert len(swept(lake).orphans) == 1
        other.execute("commit")
    assert session.execute("select count(*) from readings").fetchone() == (31,)


def test_one_whose_files_were_swept_cannot_commit_and_harms_nobody(lake: Lake, session: psycopg.Connection) -> None:
    with lake.connect() as long, lake.connect() as small:
        for each in (long, small):
            each.execute("begin")
            each.execute("select count(*) from readings")
            each.execute("insert into readings values (100, 'mine', 1)")
        there = set(lake.data_files())
        assert long.execute("select count(*) from readings").fetchone() == (31,)
        old([path for path in lake.data_files() if path not in there])
        assert len(swept(lake).orphans) == 1
        with pytest.raises(psycopg.errors.SerializationFailure):
            long.execute("commit")
        small.execute("commit")
    assert session.execute("select count(*) from readings").fetchone() == (31,)
    session.execute("insert into readings values (101, 'next', 1)")
    assert session.execute("select count(*) from readings").fetchone() == (32,)


def test_nor_does_one_that_is_about_to_be_swept_or_that_another_sweep_has_passed(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that was stopped between its fence and its deletions, and a later one with a longer safety age."""
    with lake.connect() as long:
        long.execute("begin")
        long.execute("insert into readings values (100, 'mine', 1)")
        there = set(lake.data_files())
        long.execute("select count(*) from readings")
        (own,) = (path for path in lake.data_files() if path not in there)
        old([own], days=5)
        monkeypatch.setattr("frostline.pipeline.lake_sweep.paths.delete_each", lambda _: iter(()))
        assert len(swept(lake).orphans) == 1
        monkeypatch.undo()
        garbage(lake, "data/a.parquet", days=40)
        swept(lake, Request(older_than="30 days"))
        assert own.exists()
        with pytest.raises(psycopg.errors.SerializationFailure):
            long.execute("commit")
    assert session.execute("select count(*) from readings").fetchone() == (30,)


def test_a_commit_that_was_staged_before_the_fence_is_staged_again(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage(lake, "data/a.parquet")
    stage, waiting = lake_commit.stage, [1]
    attempts = list[int]()

    def staged(*args: object, **options: object) -> object:
        made = stage(*args, **options)  # pyright: ignore[reportArgumentType]
        attempts.append(1)
        if waiting:
            waiting.pop()
            assert len(swept(lake).orphans) == 1
        return made

    monkeypatch.setattr(lake_commit, "stage", staged)
    session.execute("insert into readings values (100, 'mine', 1)")
    assert len(attempts) == 2
    assert session.execute("select count(*) from readings").fetchone() == (31,)
    assert files(lake) == needed(lake)


def test_a_compaction_does_not_commit_what_was_swept(
    lake: Lake, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written for longer than the safety age."""
    before, merge = session.execute(ROWS).fetchall(), lake_compact._Compaction._merge  # pyright: ignore[reportPrivateUsage]

    def merged(self: lake_compact._Compaction) -> object:  # pyright: ignore[reportPrivateUsage]
        there = set(lake.data_files())
        made = merge(self)
        old([path for path in lake.data_files() if path not in there])
        assert len(swept(lake).orphans) == 1
        return made

    monkeypatch.setattr(lake_compact._Compaction, "_merge", merged)  # pyright: ignore[reportPrivateUsage]
    (done,) = lake_compact.run(lake.jobs(), [pointer(lake)])
    assert isinstance(done.error, ConflictError)
    assert session.execute(ROWS).fetchall() == before
    assert files(lake) == needed(lake)


def test_what_a_dropped_table_has_left_stays(lake: Lake, session: psycopg.Connection) -> None:
    lake_tables.create(lake.catalog, lake.settings, Name("public", "other"), ["id bigint"], Layout())
    session.execute("insert into other values (1)")
    folder = {file for file in files(lake) if "/other-" in file}
    lake_tables.drop(lake.catalog, lake.settings, Name("public", "other"), purge=False)
    lake_past.age(lake)
    garbage(lake, "data/a.parquet")
    assert len(swept(lake).orphans) == 1
    assert folder
    assert folder <= files(lake)


def test_delete_files_that_a_state_needs_stay(lake: Lake, session: psycopg.Connection) -> None:
    session.execute("delete from readings where id in (3, 13)")
    lake_past.age(lake)
    garbage(lake, "data/a.parquet")
    swept(lake)
    lake_rows.count_deletes.cache_clear()
    assert session.execute("select count(*) from readings").fetchone() == (28,)


def test_no_client_takes_the_fence_away_and_a_table_that_has_one_can_be_registered(
    lake: Lake, session: psycopg.Connection
) -> None:
    """Whoever has written files before the sweep would commit them, and they are gone."""
    garbage(lake, "data/a.parquet")
    swept(lake)
    location = pointer(lake).metadata_location
    with serving(lake.dsn, lake.settings.warehouse) as rest:
        token = rest.token(write=True)
        for update in (
            {"action": "remove-properties", "removals": [lake_upkeep.SWEPT_BEFORE]},
            {"action": "set-properties", "updates": {lake_upkeep.SWEPT_BEFORE: "1"}},
        ):
            answer = rest.ask("POST", "namespaces/public/tables/readings", token, json={"updates": [update]})
            assert (answer.status_code, "is for sweeps to write" in answer.text) == (400, True)
        assert pointer(lake).metadata_location == location
        lake_tables.drop(lake.catalog, lake.settings, pointer(lake).name, purge=False)
        body = {"name": "readings", "metadata-location": location}
        assert rest.ask("POST", "namespaces/public/register", token, json=body).status_code == 200


@pytest.mark.parametrize("upkeep", [lake_expire.expire_table, lake_sweep.sweep_table], ids=["expire", "sweep"])
def test_a_table_that_was_dropped_and_forgotten_meanwhile_is_said_to_be_gone(
    lake: Lake, session: psycopg.Connection, upkeep: Callable[..., object]
) -> None:
    chosen = pointer(lake)
    lake_tables.drop(lake.catalog, lake.settings, chosen.name, purge=True)
    arguments = [timedelta(days=3)] if upkeep is lake_sweep.sweep_table else []
    with pytest.raises(NoSuchLakeTable, match=f"there is no lake table {chosen.id}"):
        upkeep(lake.catalog, lake.settings, chosen, *arguments)
