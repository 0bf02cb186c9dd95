"""Tries that end themselves: what they did is rolled back, and they are repeated only if they ask for it."""

import pytest
from tests.fixtures.statements import run, value

from frostline.catalog.connect import Connection
from frostline.catalog.patience import RolledBack, patiently
from frostline.model.names import Name

NAME = Name("public", "done")
COUNT = "select count(*) from public.done"


@pytest.fixture(autouse=True)
def table(catalog: Connection) -> None:
    run(catalog, "create table public.done (number int)")


def test_a_try_that_ends_itself_leaves_nothing(catalog: Connection) -> None:
    tries: list[str] = []

    def act() -> RolledBack[str]:
        tries.append("try")
        run(catalog, "insert into public.done values (1)")
        return RolledBack("blocked")

    assert patiently(catalog, NAME, act) == "blocked"
    assert (len(tries), value(catalog, COUNT)) == (1, 0)


def test_a_try_that_asks_for_another_gets_it(catalog: Connection) -> None:
    tries: list[str] = []

    def act() -> str | RolledBack[str]:
        tries.append("try")
        run(catalog, "insert into public.done values (1)")
        return "done" if len(tries) == 3 else RolledBack("blocked", try_again=True)

    assert patiently(catalog, NAME, act) == "done"
    assert (len(tries), value(catalog, COUNT)) == (3, 1)


def test_in_the_end_it_says_what_the_last_try_said(catalog: Connection) -> None:
    tries: list[str] = []

    def act() -> RolledBack[str]:
        tries.append("try")
        run(catalog, "insert into public.done values (1)")
        return RolledBack(f"blocked {len(tries)}", try_again=True)

    assert patiently(catalog, NAME, act, patience_s=0.2) == f"blocked {len(tries)}"
    assert (len(tries) > 1, value(catalog, COUNT)) == (True, 0)
