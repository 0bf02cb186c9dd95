"""Row security and grants hold for rows of both tiers, as they do on a plain table."""

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run
from tests.fixtures.twins import Twins, begun, make_twins

pytestmark = pytest.mark.spark

ROLE = "frostline_writer"
SECRETS = """
create table public.secrets{plain} (id int, k int, owner text, note text, primary key (id, k)) {partitioned};
insert into public.secrets{plain} select i, i % 200, case when i % 2 = 0 then 'frostline_writer' else 'somebody' end, 'n' || i
  from generate_series(0, 199) i;
alter table public.secrets{plain} enable row level security;
create policy own on public.secrets{plain} using (owner = current_user) with check (owner = current_user and note <> 'refused');
create policy short on public.secrets{plain} as restrictive for delete using (length(note) < 4);
"""
PARTITIONED = """partition by range (k);
create table public.secrets_1 partition of public.secrets for values from (0) to (100);
create table public.secrets_2 partition of public.secrets for values from (100) to (200)"""


@pytest.fixture(scope="module")
def rights_lake(shared_lake: Lake) -> Lake:
    """The twins; and `secrets` with its twin, whose keys below 100 are in the lake only."""
    make_twins(shared_lake)
    run(shared_lake.catalog, SECRETS.format(plain="", partitioned=PARTITIONED))
    run(shared_lake.catalog, SECRETS.format(plain="_plain", partitioned=""))
    shared_lake.add("secrets", hot="99")
    assert shared_lake.archive("secrets")[0].partitions == 1
    assert shared_lake.clean("secrets").waiting == ()
    return shared_lake


def grant(twins: Twins, *rights: str) -> None:
    """A role that has these rights on each table, until the transaction is rolled back; and be it."""
    run(twins.connection, f"create role {ROLE}; grant usage on schema public to {ROLE}")
    for right in rights:
        run(twins.connection, f"grant {right} to {ROLE}")
    run(twins.connection, f"set local role {ROLE}")


def outcome(twins: Twins, statement: str) -> tuple[object, ...]:
    """What the statement gives: its rows and tag, or its SQLSTATE."""
    try:
        with twins.connection.transaction():
            cursor = run(twins.connection, statement)
            return cursor.statusmessage, sorted(cursor.fetchall() if cursor.description else [])
    except psycopg.Error as error:
        return (error.sqlstate,)


SECURED = [
    "select count(*), min(k), max(k) from {t}",
    "select * from {t} where id in (1, 2, 151, 152)",
    "update {t} set note = 'mine' where id in (1, 2, 3, 4, 151, 152) returning id, note",
    "update {t} set owner = 'somebody' where id in (2)",
    "update {t} set owner = 'somebody' where id in (152)",
    "update {t} set note = 'refused' where id = 4",
    "update {t} set k = 150 where id in (6, 7) returning *",
    "update {t} set k = 50 where id in (156, 157) returning *",
    "delete from {t} where id in (8, 9, 158, 159) returning *",
    "delete from {t} where k between 90 and 110 returning id",
    "insert into {t} values (900, 5, 'frostline_writer', 'a') returning *",
    "insert into {t} values (901, 150, 'frostline_writer', 'a') returning *",
    "insert into {t} values (902, 5, 'somebody', 'a')",
    "insert into {t} values (903, 150, 'somebody', 'a')",
    "insert into {t} select id + 1000, k, owner, note from {t} where id in (10, 11, 160, 161) returning id",
]


@pytest.mark.parametrize("statement", SECURED)
def test_row_security_on_both_tiers(rights_lake: Lake, statement: str) -> None:
    with begun(rights_lake) as twins:
        rights = [f"select, insert, update, delete on secrets{plain}" for plain in ("", "_plain")]
        grant(twins, *rights)
        ours, plain = (outcome(twins, statement.format(t=name)) for name in ("secrets", "secrets_plain"))
        assert ours == plain
        run(twins.connection, "reset role")
        seen = [
            run(twins.connection, f"select * from {name} order by id, k").fetchall()
            for name in ("secrets", "secrets_plain")
        ]
        assert seen[0] == seen[1]


COLUMN_RIGHTS = ["select (id, ts, status) on {t}", "update (status, ts) on {t}", "insert (id, ts, status) on {t}"]
COLUMN_WISE = [
    "select id, status from {t} where id in (3, 63)",
    "select amount from {t} where id in (3, 63)",
    "update {t} set status = 'x' where id = 3 returning id, status",
    "update {t} set status = 'x' where id in (3, 63) returning id",
    "update {t} set status = 'x' where id = 3 returning *",
    "update {t} set amount = 1 where id = 3",
    "update {t} set status = amount::text where id = 3",
    "update {t} set ts = '2090-03-03' where id = 3",
    "update {t} set ts = '2024-03-03' where id = 63",
    "update {t} set id = 1 where id = 3",
    "delete from {t} where id = 3",
    "insert into {t} (id, ts, status) values (901, '2024-02-02', 'x'), (902, '2090-02-02', 'x') returning id",
    "insert into {t} (id, ts, amount) values (901, '2024-02-02', 1)",
    "insert into {t} (id, ts) values (901, '2024-02-02') returning amount",
]


@pytest.mark.parametrize("statement", COLUMN_WISE)
def test_grants_of_columns_on_both_tiers(rights_lake: Lake, statement: str) -> None:
    with begun(rights_lake) as twins:
        grant(twins, *(right.format(t=name) for right in COLUMN_RIGHTS for name in ("events", "plain")))
        ours, plain = (outcome(twins, statement.format(t=name)) for name in ("events", "plain"))
        assert ours == plain
        run(twins.connection, "reset role")
        twins.compare()


def test_a_writer_needs_no_right_on_anything_but_the_relation(rights_lake: Lake) -> None:
    with begun(rights_lake) as twins:
        grant(twins, *(f"select, insert, update, delete on {name}" for name in ("events", "plain")))
        for statement in (
            "update {t} set status = 'x' where id in (3, 63)",
            "delete from {t} where id in (4, 64)",
            "insert into {t} (id, ts) values (901, '2024-02-02'), (902, '2090-02-02')",
        ):
            twins.both(statement)
        for name in ("_events", f"frostline_overlay.events_{rights_lake.table().id}", "frostline.managed_table"):
            assert outcome(twins, f"select 1 from {name}") == ("42501",)


def test_what_the_guide_says_is_refused_with_row_security(rights_lake: Lake) -> None:
    statement = "with gone as (delete from secrets where id = 8 returning *) insert into secrets select id, 150, owner, note from gone"
    with begun(rights_lake) as twins:
        grant(twins, "select, insert, update, delete on secrets")
        assert outcome(twins, statement) == ("0A000",)
