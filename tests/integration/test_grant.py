"""`frostline grant`: what it grants, that it says so, and that it grants nothing else."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.fixtures.command import Command
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog.connect import Connection
from frostline.model.tables import Table

ROLE = 'App "role"'
QUOTED = '"App ""role"""'
LEDGER = """
create schema "the books";
create sequence "the books".numbers;
create table "the books".ledger (
    id bigserial, day date not null default '2024-01-15', entry bigint default nextval('"the books".numbers'),
    note text default 'none', primary key (id, day)
) partition by range (day);
create table "the books".ledger_1 partition of "the books".ledger for values from ('2024-01-01') to ('2024-02-01');
"""
ACL = """
select c.oid::regclass::text, a.privilege_type from pg_class c, aclexplode(c.relacl) a
 where a.grantee = %s::regrole union all
select n.nspname, a.privilege_type from pg_namespace n, aclexplode(n.nspacl) a where a.grantee = %s::regrole
 order by 1, 2"""
DATA = ["DELETE", "INSERT", "SELECT", "UPDATE"]


@pytest.fixture
def ledger(
    catalog: Connection, database: str, add: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> Connection:
    """`public.events` with an identity, and a table in a schema of its own with serial numbers."""
    monkeypatch.setenv("FROSTLINE_DSN", database)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "lake")
    make_events(catalog, "public.events")
    run(catalog, LEDGER)
    add("events")
    add('"the books".ledger')
    return catalog


@pytest.fixture
def app(ledger: Connection, database: str) -> Iterator[str]:
    """The connection string of a role without any right."""
    with role(database, ROLE) as dsn:
        yield dsn


@pytest.fixture
def grant(command: Command) -> Callable[..., Any]:
    """Runs the command and gives back what it printed."""

    def call(*words: str) -> Any:
        said = command("grant", *words, "--output", "json")
        assert said.exit_code == 0, said.stderr
        return [json.loads(line) for line in said.stdout.splitlines()]

    return call


def held(connection: Connection) -> list[tuple[Any, ...]]:
    return rows(connection, ACL, (QUOTED, QUOTED))


@pytest.mark.usefixtures("app")
def test_it_grants_the_relation_its_schema_and_its_sequences(ledger: Connection, grant: Callable[..., Any]) -> None:
    (results,) = grant(QUOTED)
    assert results == [
        {"table": "public.events", "role": ROLE, "changed": True, "rights_on_heap": []},
        {"table": '"the books".ledger', "role": ROLE, "changed": True, "rights_on_heap": []},
    ]
    expected = [('"the books".ledger', right) for right in DATA]
    expected += [('"the books".ledger_id_seq', "USAGE"), ('"the books".numbers', "USAGE"), ("the books", "USAGE")]
    expected += [("public.events", right) for right in DATA] + [("public.events_id_seq", "USAGE")]
    assert sorted(held(ledger)) == sorted(expected)


def test_the_role_can_then_write_with_all_defaults(app: str, grant: Callable[..., Any]) -> None:
    grant(QUOTED)
    with psycopg.connect(app) as connection:
        inserted = 'insert into "the books".ledger (day) values (default) returning id, entry, note'
        assert rows(connection, inserted) == [(1, 1, "none")]
        assert value(connection, "insert into events default values returning id") == 1
        assert run(connection, "update events set status = 'x'").rowcount == 1
        assert run(connection, 'delete from "the books".ledger').rowcount == 1


@pytest.mark.usefixtures("app")
def test_a_second_time_changes_nothing(ledger: Connection, grant: Callable[..., Any]) -> None:
    grant(QUOTED)
    before = held(ledger)
    (results,) = grant(QUOTED)
    assert [result["changed"] for result in results] == [False, False]
    assert held(ledger) == before


@pytest.mark.usefixtures("app")
def test_a_dry_run_prints_the_sql_and_changes_nothing(ledger: Connection, grant: Callable[..., Any]) -> None:
    statements = grant(QUOTED, "events", "--dry-run")
    assert statements == [
        f'grant select, insert, update, delete on "public"."events" to {QUOTED}',
        f"grant usage on sequence public.events_id_seq to {QUOTED}",
    ]
    assert held(ledger) == []
    for statement in statements:
        run(ledger, statement)
    assert grant(QUOTED, "events", "--dry-run") == []


@pytest.mark.usefixtures("app")
def test_only_what_is_missing_is_granted(ledger: Connection, grant: Callable[..., Any]) -> None:
    run(ledger, f"grant select on public.events to {QUOTED}")
    assert grant(QUOTED, "events", "--dry-run")[0] == f'grant insert, update, delete on "public"."events" to {QUOTED}'


@pytest.mark.usefixtures("app")
def test_rights_on_the_heap_are_shown(ledger: Connection, grant: Callable[..., Any]) -> None:
    run(ledger, f"grant select, insert on public._events to {QUOTED}")
    ((result,),) = grant(QUOTED, "events")
    assert result["rights_on_heap"] == ["select", "insert"]


def test_one_wrong_table_grants_none(ledger: Connection, app: str, command: Command) -> None:
    assert app
    assert command("grant", QUOTED, "events", "nowhere").exit_code == 2
    assert held(ledger) == []
