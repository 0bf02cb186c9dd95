"""A run is watched while its tasks run: nobody waits long for it, and it does not outlive its right to publish."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest
from tests.fixtures import copies
from tests.fixtures.copies import Report
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run, value

from frostline.catalog.connect import connect
from frostline.errors import UnavailableError
from frostline.model.names import Name
from frostline.tiers import moment

ORDERS = Name("public", "orders")
_WAITING = "select count(*) from pg_locks where not granted"
_LIMIT = """
do $$ begin execute format('alter database %I set idle_session_timeout = ''300ms''', current_database()); end $$
"""


@pytest.fixture
def orders(lake: Lake) -> Lake:
    """A table."""
    run(lake.catalog, "create table public.orders as select 1 as id; create table public.others as select 1 as id")
    return lake


@contextmanager
def waiting(lake: Lake, statement: str) -> Generator[int]:
    """Somebody whose statement waits for a lock; gives his process. He is done when the block is left."""
    with lake.connect() as connection, lake.connect() as looking:
        before = value(looking, _WAITING)
        thread = threading.Thread(target=run, args=(connection, statement))
        thread.start()
        while value(looking, _WAITING) == before:
            time.sleep(0.02)
        try:
            yield connection.info.backend_pid
        finally:
            thread.join()


@contextmanager
def waiters() -> Generator[Callable[[Lake, str], int]]:
    """Starts those who wait; they are done when the block is left."""
    with ExitStack() as stack:
        yield lambda lake, statement: stack.enter_context(waiting(lake, statement))


def until_it_fails(report: Report) -> None:
    """Be a task that takes its time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        report()
        time.sleep(0.02)


def test_who_waits_for_the_holder_is_named(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with waiters() as later, moment.held(orders.dsn, orders.catalog) as holder:
        assert holder.begin([ORDERS]) is None
        pid = later(orders, "alter table public.orders add more text")
        later(orders, "select * from public.orders")
        holder.check()  # nobody has waited for half a minute
        monkeypatch.setattr(moment, "WAITED_S", 0)
        with pytest.raises(UnavailableError, match=rf"process {pid} of Postgres .* to lock public\.orders, which"):
            holder.check()


def test_who_waits_for_somebody_else_is_no_reason_to_give_up(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment, "WAITED_S", 0)
    with waiters() as later, orders.connect() as other, moment.held(orders.dsn, orders.catalog) as holder:
        assert holder.begin([ORDERS]) is None
        run(other, "begin; lock table public.others; lock table public.orders in exclusive mode")
        later(orders, "select * from public.others")
        later(orders, "insert into public.orders values (2)")
        holder.check()
        run(other, "commit")


@pytest.mark.slow
def test_the_run_gives_up_rather_than_be_waited_for(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment, "WAITED_S", 0.5)
    with waiters() as later:

        def alter(report: Report) -> None:
            later(orders, "alter table public.orders add more text")
            until_it_fails(report)

        copies.without_spark(orders, monkeypatch, alter)
        with pytest.raises(UnavailableError, match=r"to lock public\.orders, which is being copied"):
            copies.create(orders, "public.*")
    assert value(orders.catalog, "select count(*) from frostline.snapshot_cut") == 0
    assert value(orders.catalog, "select more is null from public.orders")


def test_the_loss_of_the_publishing_session_is_noticed_while_tasks_run(
    orders: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = orders.catalog.info.backend_pid

    def lose(report: Report) -> None:
        with orders.connect() as connection:
            run(connection, f"select pg_terminate_backend({publisher})")
        until_it_fails(report)

    copies.without_spark(orders, monkeypatch, lose)
    with pytest.raises(UnavailableError, match="connection that is to publish the snapshot was lost"):
        copies.create(orders, "public.*")


@pytest.mark.slow
def test_a_limit_on_idle_sessions_does_not_end_a_run(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(orders.catalog, _LIMIT)
    copies.without_spark(orders, monkeypatch, lambda _: time.sleep(1))
    with connect(orders.dsn, purpose="tests") as limited:
        assert value(limited, "show idle_session_timeout") == "300ms"
        orders.catalog = limited
        assert copies.create(orders, "public.*").version == 1
