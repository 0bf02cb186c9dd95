"""Expiry of partitions beside readers, changed policies and people: only what is certainly past its retention goes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.fixtures.doomed import die
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value

from frostline.catalog import patience
from frostline.catalog.connect import Connection
from frostline.failpoints import Failpoint
from frostline.model.names import Name
from frostline.model.policy import ExpireBy, Policy
from frostline.model.tables import Table
from frostline.partitions import dropping, partition_mode
from frostline.relation import policy
from frostline.relation.registration import Request
from frostline.settings import Settings

COUNT = "select count(*) from public.events"
PARTITIONS = "select inhrelid::regclass::text from pg_inherits where inhparent = 'public.events'::regclass order by 1"
RECORDS = "select count(*) from frostline.expiring_partition"
PENDING = "select count(*) from pg_inherits where inhdetachpending"


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(dsn=database, warehouse="/nowhere")


@pytest.fixture
def other(database: str) -> Iterator[psycopg.Connection]:
    """Somebody else's open transaction."""
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No patience."""
    monkeypatch.setattr(dropping, "_HEAP_PATIENCE_S", 0.3)
    monkeypatch.setattr(dropping, "_DROP_PATIENCE_S", 0.3)
    monkeypatch.setattr(dropping, "_WAIT_MS", 200)


def make_table(connection: Connection, *, default: bool = False, parts: int = 4, **fields: Any) -> Table:
    """Partitions of 100 with a row in each; of four, two are past a retention of 150."""
    run(connection, "create table public.events (k bigint not null, note text) partition by range (k)")
    for number in range(parts):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(connection, f"create table public.p{number} partition of public.events for values {bounds}")
    if default:
        run(connection, "create table public.rest partition of public.events default")
    run(connection, f"insert into public.events select i * 100 + 50 from generate_series(0, {parts - 1}) i")
    wanted = Policy(premake=0, retention_period="150", **fields)
    return partition_mode.add(connection, Request(Name.parse("events"), wanted)).table


def parts(connection: Connection) -> list[str]:
    return [name for (name,) in rows(connection, PARTITIONS)]


def keep_longer(connection: Connection, table: Table) -> Table:
    return policy.put(connection, table, replace(table.policy, retention_period="100000"))


def test_one_wrong_integer_in_an_open_partition_expires_nothing(catalog: Connection, settings: Settings) -> None:
    table = make_table(catalog)
    run(catalog, "create table public.open partition of public.events for values from (400) to (maxvalue)")
    run(catalog, "insert into public.events values (1000000000000000000)")
    assert partition_mode.expire(catalog, settings, table).dropped == ("public.p0", "public.p1")
    assert parts(catalog) == ["public.open", "public.p2", "public.p3"]
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()


def test_what_could_not_be_detached_is_nothing_to_drop_later(
    catalog: Connection, settings: Settings, other: psycopg.Connection
) -> None:
    table = make_table(catalog)
    run(catalog, "comment on table public.p0 is 'mine'")
    run(other, "lock table only public.events in share update exclusive mode")  # as VACUUM and ANALYZE do
    result = partition_mode.expire(catalog, settings, table)
    assert result == dropping.Result(
        waiting=("public.p0: it is being read or written", "public.p1: it is being read or written")
    )
    assert value(catalog, "select obj_description('public.p0'::regclass, 'pg_class')") == "mine"
    other.rollback()
    table = keep_longer(catalog, table)
    run(catalog, "alter table public.events detach partition public.p0")
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()
    assert value(catalog, "select count(*) from public.p0") == 1
    assert value(catalog, RECORDS) == 0


@pytest.mark.parametrize("raised", [False, True])
def test_what_a_person_detached_after_a_crash_is_kept(
    catalog: Connection, settings: Settings, database: str, *, raised: bool
) -> None:
    table = make_table(catalog)
    die("frostline.partitions.partition_mode:expire", database, Failpoint.PARTITION_MARKED)
    assert value(catalog, RECORDS) == 1
    table = keep_longer(catalog, table) if raised else table
    run(catalog, "alter table public.events detach partition public.p0")
    result = partition_mode.expire(catalog, settings, table)
    assert result.kept == ("public.p0: it is detached, perhaps by a person, so it is kept; drop it if nobody needs it",)
    assert result.dropped == (() if raised else ("public.p1",))
    assert value(catalog, "select count(*) from public.p0") == 1
    assert value(catalog, RECORDS) == 0
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()


def test_what_nobody_can_tell_from_a_persons_doing_is_kept(
    catalog: Connection, settings: Settings, database: str
) -> None:
    """Killed after the detach, and before that was written down."""
    table = make_table(catalog)
    die("frostline.partitions.partition_mode:expire", database, Failpoint.PARTITION_BEFORE_NOTE)
    result = partition_mode.expire(catalog, settings, table)
    assert (result.dropped, len(result.kept)) == (("public.p1",), 1)
    assert value(catalog, "select count(*) from public.p0") == 1
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()


@pytest.mark.parametrize("renamed", [False, True])
def test_what_waits_to_be_dropped_stays_if_the_policy_or_its_name_changes(
    catalog: Connection, settings: Settings, *, renamed: bool
) -> None:
    table = make_table(catalog)
    run(catalog, "create view public.looks as select * from public.p0")
    result = partition_mode.expire(catalog, settings, table)
    assert (result.dropped, len(result.waiting)) == (("public.p1",), 1)
    assert value(catalog, RECORDS) == 1
    run(catalog, "drop view public.looks")
    if renamed:
        run(catalog, "alter table public.p0 rename to mine")
    else:
        table = keep_longer(catalog, table)
    result = partition_mode.expire(catalog, settings, table)
    assert result.dropped == ()
    assert len(result.kept) == (0 if renamed else 1)
    assert value(catalog, "select count(*) from public." + ("mine" if renamed else "p0")) == 1
    assert value(catalog, RECORDS) == 0


def test_what_was_attached_again_in_the_last_moment_is_not_dropped(
    catalog: Connection, settings: Settings, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog, parts=3)
    run(catalog, "create view public.looks as select * from public.p0")
    partition_mode.expire(catalog, settings, table)
    run(catalog, "drop view public.looks")
    real = dropping.patiently

    def attach_first(*words: Any, **more: Any) -> object:
        run(other, "alter table public.events attach partition public.p0 for values from (0) to (100)")
        other.commit()
        return real(*words, **more)

    monkeypatch.setattr(dropping, "patiently", attach_first)
    with pytest.raises(Exception, match="was attached again"):
        partition_mode.expire(catalog, settings, table)
    assert "public.p0" in parts(catalog)
    assert value(catalog, "select count(*) from public.events where k < 100") == 1


@pytest.mark.parametrize("expire_by", ExpireBy)
@pytest.mark.parametrize("change", first(1, [{"retention_period": "100000"}, {"retention_period": None}]))
def test_what_is_half_detached_comes_back_if_it_should_stay(
    catalog: Connection, settings: Settings, other: psycopg.Connection, expire_by: ExpireBy, change: dict[str, Any]
) -> None:
    table = make_table(catalog, expire_by=expire_by)
    run(other, "set transaction isolation level repeatable read")
    assert value(other, COUNT) == 4
    partition_mode.expire(catalog, settings, table)
    assert (value(catalog, PENDING), value(catalog, COUNT)) == (1, 3)
    table = policy.put(catalog, table, replace(table.policy, **change))
    result = partition_mode.expire(catalog, settings, table)
    assert result.waiting == ("public.p0: it is being read or written",)
    other.rollback()
    result = partition_mode.expire(catalog, settings, table)
    assert result == dropping.Result(
        kept=("public.p0: it is not past the retention period any more, and attached again",)
    )
    assert (value(catalog, PENDING), value(catalog, COUNT), value(catalog, RECORDS)) == (0, 4, 0)
    run(catalog, "insert into public.events values (60)")
    assert partition_mode.expire(catalog, settings, table) == dropping.Result()


def test_a_heap_in_use_is_asked_for_once_and_not_for_each_partition(
    catalog: Connection, settings: Settings, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog, default=True, parts=9)
    asked: list[float | None] = []

    def patiently(*words: Any, patience_s: float | None = None, **more: Any) -> object:
        asked.append(patience_s)
        return patience.patiently(*words, patience_s=patience_s, **more)

    monkeypatch.setattr(dropping, "patiently", patiently)
    run(other, COUNT)
    result = partition_mode.expire(catalog, settings, table)
    assert (len(asked), len(result.waiting), result.changed) == (1, 7, False)
    other.rollback()
    assert len(partition_mode.expire(catalog, settings, table).dropped) == 7


def test_somebody_who_analyzes_a_partition_does_not_hold_the_expiry_up(
    catalog: Connection, settings: Settings, other: psycopg.Connection
) -> None:
    table = make_table(catalog)
    run(other, "lock table public.p0 in share update exclusive mode")
    run(catalog, "set statement_timeout = '20s'")
    result = partition_mode.expire(catalog, settings, table)
    assert result.waiting[0] == "public.p0: it is being read or written"
    other.rollback()
    assert set(partition_mode.expire(catalog, settings, table).dropped) == {"public.p0", "public.p1"}
