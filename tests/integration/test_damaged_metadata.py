"""Damaged metadata, manifest lists and manifests: every reader refuses, and names the file and the way out."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures import damage
from tests.fixtures.damage import DAMAGES, Change, damaged, files_of_the_lake, forget_everything
from tests.fixtures.lake import Lake, fill_events
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline import spark as connector
from frostline.errors import CorruptionError, FrostlineError
from frostline.observe.doctor import store
from frostline.observe.doctor.patient import Patient
from frostline.pipeline import compact, expire, sweep, verify

pytestmark = pytest.mark.slow

KINDS = ("metadata", "manifest list", "manifest")
UNSEEN = ("cut short", "emptied", "zeroed")
"""What a parser stumbles over, without a checksum."""


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Three months in the lake, February in two files, and a mark."""
    make_events(lake.catalog, "public.events", months=3)
    fill_events(lake.catalog, months=3, rows_a_month=50)
    lake.add(snapshot_retention="0")
    assert [result.error for result in lake.archive()] == [None]
    run(lake.catalog, "insert into public.events (ts, status) values ('2024-02-10+00', 'late')")
    assert [result.error for result in lake.fold()] == [None]
    run(lake.catalog, "update public.events set status = 'new' where id = 70")
    return lake


def refused(results: list[Any]) -> FrostlineError:
    (result,) = results
    assert result.error is not None, "it was done"
    return result.error


def raised(read: Callable[[], object]) -> FrostlineError:
    with pytest.raises(FrostlineError) as caught:
        read()
    return caught.value


def fault(lake: Lake) -> FrostlineError:
    """What verify finds, as an error."""
    (told_fault,) = verify.run(lake.catalog, lake.table()).faults
    return CorruptionError(f"{told_fault.where} {told_fault.what}", hint=damage_hint())


def damage_hint() -> str:
    return "restore the file from a backup"  # verify itself is the way to find them


def asked(lake: Lake) -> FrostlineError:
    with lake.connect() as app, pytest.raises(psycopg.Error) as caught:
        run(app, "select count(*) from public.events")
    said = caught.value
    assert said.sqlstate == "XX001", said
    return CorruptionError(str(said.diag.message_primary), hint=said.diag.message_hint)


def examined(lake: Lake) -> FrostlineError:
    patient = Patient(lambda: lake.settings, has_catalog=True)
    patient.read_settings()
    with patient.connect():
        verdict = store.sampled_files(patient)
    return CorruptionError(str(verdict.detail), hint=damage_hint())


READERS: dict[str, Callable[[Lake], FrostlineError]] = {
    "lake server": asked,
    "fold": lambda lake: refused(lake.fold()),
    "compact": lambda lake: refused(lake.compact()),
    "compact plan": lambda lake: raised(lambda: compact.plan(lake.catalog, lake.table())),
    "expire": lambda lake: refused(expire.run(lake.catalog, lake.settings, [lake.table()])),
    "sweep": lambda lake: refused(sweep.run(lake.catalog, lake.settings, [lake.table()], sweep.Request())),
    "verify": fault,
    "doctor": examined,
    "spark": lambda lake: raised(lambda: connector.read(lake.session(), "public.events", dsn=lake.dsn)),
}
BLIND = {("compact plan", "manifest"), ("expire", "manifest list"), ("expire", "manifest")}
"""Who does not read that kind of file at all."""


def state(lake: Lake) -> list[Any]:
    overlay = f"select * from frostline_overlay.{lake.table().internal} order by id"
    return [
        rows(lake.catalog, query)
        for query in ("select * from frostline.seam", "select path from frostline.lake_file order by 1", overlay)
    ]


def cases(names: Iterator[str] | tuple[str, ...]) -> Iterator[tuple[str, str, Change]]:
    for kind in KINDS:
        for name in names:
            yield kind, name, DAMAGES[name]


@pytest.mark.parametrize("era", ["with checksums", "from before checksums"])
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_named_by_every_reader(cold: Lake, reader: str, era: str) -> None:
    right, before, files = (
        rows(cold.catalog, "select * from public.events order by id"),
        state(cold),
        files_of_the_lake(cold),
    )
    if era != "with checksums":
        damage.without_checksums(cold)
    for kind, name, change in cases(tuple(DAMAGES) if era == "with checksums" else UNSEEN):
        if (reader, kind) in BLIND:
            continue
        with damaged(files[kind], change):
            forget_everything(cold)
            error = READERS[reader](cold)
        assert isinstance(error, CorruptionError), (kind, name, error)
        assert str(files[kind]) in str(error), (kind, name)
        assert "restore the file from a backup" in str(error.hint), (kind, name)
        assert "\n" not in str(error)
        assert state(cold) == before
    forget_everything(cold)
    assert rows(cold.catalog, "select * from public.events order by id") == right


@pytest.mark.parametrize("reader", ["lake server", "fold", "compact", "spark"])
def test_a_missing_file_is_named_too(cold: Lake, reader: str) -> None:
    for kind, file in files_of_the_lake(cold).items():
        if kind == "data":
            continue
        content = file.read_bytes()
        file.unlink()
        forget_everything(cold)
        error = missing(cold) if reader == "lake server" else READERS[reader](cold)
        file.write_bytes(content)
        assert str(file) in str(error), (kind, error)
        assert "mounted" in str(error.hint) or "bring it back from a copy" in str(error.hint)


def missing(lake: Lake) -> FrostlineError:
    with lake.connect() as app, pytest.raises(psycopg.Error) as caught:
        run(app, "select count(*) from public.events")
    return FrostlineError(str(caught.value.diag.message_primary), hint=caught.value.diag.message_hint)
