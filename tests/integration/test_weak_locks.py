"""An ALTER TABLE of the heap keeps readers of the relation out only where it would keep them out of a plain table."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.relation import guard

pytestmark = pytest.mark.spark

HOT = "select count(*) from public.events where ts >= '2090-01-01+00' and ts < '2091-01-01+00'"
OTHERS = """
create table public.customers (id bigint primary key);
create function public.watch() returns trigger language plpgsql as 'begin return new; end';
create trigger watch before insert on public.events for each row execute function public.watch();
alter table public.events add column customer bigint, add column type bigint;
alter table public.events add constraint "a, b; c" check (amount < 1e6) not valid, add constraint few check (amount < 1e7) not valid;
create table public.later partition of public.events for values from ('2095-01-01+00') to ('2096-01-01+00');
alter table public.events detach partition public.later;
"""
WEAK = {
    "a foreign key": "add foreign key (customer) references public.customers",
    "one that is not valid": "add constraint k foreign key (customer) references customers (id) on delete set null (customer) deferrable not valid",
    "two of them": "add foreign key (customer) references customers, add foreign key (type) references customers on delete cascade",
    "a partition": "attach partition public.later for values from ('2095-01-01 00:00+00') to ('2096-01-01 00:00+00')",
    "statistics": "alter column status set statistics 500",
    "statistics of a column called type": "alter type set statistics -1, alter column amount set (n_distinct = -0.5)",
    "a trigger": "disable trigger watch",
    "all triggers of users": 'enable trigger "watch", enable always trigger watch',
    "a validation": "validate constraint few",
    "two validations": 'validate constraint "a, b; c", validate constraint few',
    "in other letters": "\n  Enable  Replica  TRIGGER\twatch ;",
}
STRONG = {
    "a column": "add column more int",
    "another default": "alter column status set default 'x'",
    "no column": "drop column amount",
    "another type": "alter column amount type numeric(20, 2)",
    "a name": "rename column status to state",
    "one of each": "add foreign key (customer) references customers, add column more int",
    "a check": "add check (amount > -1) not valid",
    "with a comment": "disable trigger watch /* of mine */",
}


@pytest.fixture(scope="module")
def table(shared_lake: Lake) -> Lake:
    """Rows of three months in the lake only; what can be altered."""
    make_twins(shared_lake)
    assert guard.ensure(shared_lake.catalog)
    with shared_lake.connect() as connection:
        run(connection, OTHERS.replace("public.events", "public._events"))
    return shared_lake


@pytest.fixture
def open_transaction(table: Lake) -> Iterator[psycopg.Connection]:
    """Somebody's, on the table's schema."""
    with table.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set search_path = public")
        yield connection


@pytest.fixture
def locks(open_transaction: psycopg.Connection) -> Callable[[], set[str]]:
    """What that transaction keeps all others from."""
    held = "select relation::regclass::text from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock' and relation is not null"
    return lambda: {name for (name,) in rows(open_transaction, held)}


@pytest.mark.parametrize("what", WEAK)
def test_readers_go_on(
    table: Lake, open_transaction: psycopg.Connection, locks: Callable[[], set[str]], what: str
) -> None:
    run(open_transaction, f"alter table _events {WEAK[what]}")
    assert not {
        name for name in locks() if name == "events" or name.startswith(("frostline_relation.", "frostline_lake."))
    }
    # DEFAULT, and the new partition, are locked as those of a plain table; a new view of ours is nobody else's yet.
    assert {name for name in locks() if not name.startswith("frostline_write.")} <= {"events_default", "later"}
    with table.connect() as reader:
        run(reader, "set lock_timeout = '1min'")
        assert value(reader, HOT) == 20


@pytest.mark.parametrize("what", STRONG)
def test_what_changes_the_relation_takes_it_first(
    open_transaction: psycopg.Connection, locks: Callable[[], set[str]], what: str
) -> None:
    run(open_transaction, f"alter table public._events {STRONG[what]}")
    assert "events" in locks()
    assert any(name.startswith("frostline_relation.events_") for name in locks())


def test_a_transaction_that_has_both_takes_the_relation(
    open_transaction: psycopg.Connection, locks: Callable[[], set[str]]
) -> None:
    run(open_transaction, "alter table _events disable trigger watch; alter table _events add column more int")
    assert {"_events", "events"} <= locks()


def test_a_partition_that_is_detached_concurrently_leaves_readers_alone(table: Lake) -> None:
    """Which no transaction can do."""
    known = "select frostline_write.keeps_readers(' detach partition later {}')"
    assert value(table.catalog, known.format("concurrently")) is True
    assert value(table.catalog, known.format("finalize")) is True
    assert value(table.catalog, known.format("")) is False
