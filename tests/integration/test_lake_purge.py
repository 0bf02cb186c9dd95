"""The files of a dropped lake table are deleted only while nobody can have it any more."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.catalogserver import NUMBERS, serving
from tests.fixtures.lake import Lake
from tests.fixtures.lake_commits import made, pointer

from frostline.catalog import lake_states, lake_upkeep
from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import Pointer
from frostline.errors import UnavailableError, UsageError
from frostline.lake import lake_folder, paths
from frostline.model.names import Name
from frostline.pipeline import lake_register, lake_tables

LOG = Pointer("public", "log")
DROPS: dict[str, Callable[[Lake], object]] = {
    "command": lambda lake: lake_tables.drop(lake.catalog, lake.settings, Name(*LOG), purge=True),
    "sql": lambda lake: lake.catalog.execute("select frostline.drop_lake_table('public', 'log', purge => true)"),
}
drops = pytest.mark.parametrize("drop", DROPS.values(), ids=DROPS.keys())


@pytest.fixture
def last(lake: Lake) -> str:
    """A lake table with a row, and the place of its metadata."""
    made(lake, "log", "id bigint")
    with lake.connect() as psql:
        psql.execute("insert into log values (1)")
    return pointer(lake, "log").metadata_location


def register(lake: Lake, location: str) -> None:
    with lake.connect() as psql:
        lake_register.register(psql, lake.settings, Pointer("public", "again"), Name("public", "again"), location)


@drops
def test_who_registers_a_table_after_it_was_dropped_and_before_its_files_go_has_it(
    lake: Lake, last: str, drop: Callable[[Lake], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    purge = lake_folder.purge

    def later(*arguments: Any) -> int:
        register(lake, last)
        return purge(*arguments)

    monkeypatch.setattr(lake_folder, "purge", later)
    if drop is DROPS["command"]:
        with pytest.raises(UsageError, match=r"has files of public\.again too"):
            drop(lake)
    else:
        drop(lake)
    assert lake.value("select array_agg(id) from again") == [1]
    assert (len(catalog.listed(lake.catalog)), catalog.dropped(lake.catalog)) == (1, [])


@drops
def test_a_table_that_was_registered_and_dropped_again_is_not_purged_by_the_first_drop(
    lake: Lake, last: str, drop: Callable[[Lake], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    purge = lake_folder.purge

    def later(*arguments: Any) -> int:
        register(lake, last)
        with lake.connect() as other:
            lake_tables.drop(other, lake.settings, Name("public", "again"), purge=False)
        return purge(*arguments)

    monkeypatch.setattr(lake_folder, "purge", later)
    if drop is DROPS["command"]:
        with pytest.raises(UsageError, match="somebody has taken up the table"):
            drop(lake)
    else:
        drop(lake)
    register(lake, last)
    assert lake.value("select array_agg(id) from again") == [1]


def test_files_of_another_lineage_are_not_ours_because_their_table_was_dropped_and_registered(
    lake: Lake, last: str
) -> None:
    """As in a restored database that takes a newer state of a table up: the other one may still need them."""
    lake.catalog.execute("update frostline.lake_table set server = 'elsewhere'")
    lake_tables.drop(lake.catalog, lake.settings, Name(*LOG), purge=False)
    register(lake, last)
    again = Name("public", "again")
    assert not lake_upkeep.is_own(lake.catalog, pointer(lake, "again").id)
    with pytest.raises(UsageError, match="restored or promoted from may need the files"):
        lake_tables.drop(lake.catalog, lake.settings, again, purge=True)
    lake_tables.drop(lake.catalog, lake.settings, again, purge=False)
    with serving(lake.dsn, lake.settings.warehouse) as rest:
        body = {"name": "again", "metadata-location": last}
        assert rest.ask("POST", "namespaces/public/register", rest.token(write=True), json=body).status_code == 200
    assert not lake_upkeep.is_own(lake.catalog, pointer(lake, "again").id)
    lake_states.take_over(lake.catalog)
    lake_tables.drop(lake.catalog, lake.settings, again, purge=True)
    assert catalog.dropped(lake.catalog) == []


@drops
def test_nobody_registers_a_table_whose_files_are_being_deleted_nor_one_inside_of_its_folder(
    lake: Lake, last: str, drop: Callable[[Lake], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, said = paths.delete_each, list[str]()
    folder = pointer(lake, "log").location

    def register_by_rest() -> None:
        with serving(lake.dsn, lake.settings.warehouse) as rest:
            body = {"name": "again", "metadata-location": last}
            answer = rest.ask("POST", "namespaces/public/register", rest.token(write=True), json=body)
            raise UsageError(f"{answer.status_code} {answer.text}")

    def make_inside() -> None:
        with serving(lake.dsn, lake.settings.warehouse) as rest:
            rest.client(write=True).create_table("public.inner", NUMBERS, location=f"{folder}/inner")

    def watched(locations: Iterable[str]) -> Iterator[str]:
        """In the lake server's thread, where it is SQL that drops."""
        listed = list(locations)
        if listed:  # once, and not for what these attempts delete
            monkeypatch.setattr(paths, "delete_each", delete)
        for attempt in (lambda: register(lake, last), register_by_rest, make_inside) if listed else ():
            try:
                attempt()
                said.append("done")
            except Exception as error:  # noqa: BLE001  (compared below)
                said.append(str(error))
        return delete(listed)

    monkeypatch.setattr(paths, "delete_each", watched)
    drop(lake)
    assert [text for text in said if "are being deleted" not in text] == []
    assert [len(said), said[1].partition(" ")[0]] == [3, "400"]
    assert (catalog.listed(lake.catalog), catalog.dropped(lake.catalog)) == ([], [])


def test_what_a_purge_that_was_killed_has_left_goes_with_the_next_one(
    lake: Lake, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Iterable[str]) -> Iterator[str]:
        raise OSError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(paths, "delete_each", fails)
        with pytest.raises(UnavailableError, match="killed"):
            DROPS["command"](lake)
    (left,) = catalog.dropped(lake.catalog)
    assert left.is_purged
    with pytest.raises(UsageError, match="are being deleted"):
        register(lake, last)
    with lake.connect() as psql:
        assert lake_folder.purge(psql, lake.settings.warehouse, left.id, left.location) > 0
    assert catalog.dropped(lake.catalog) == []
    with pytest.raises(psycopg.Error):
        lake.value("select count(*) from log")
