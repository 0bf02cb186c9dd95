"""A managed table that another managed one references: its rows stay in its heap while rows in either tier refer to them."""

import pytest
from psycopg import errors
from tests.fixtures import copies
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import UnavailableError
from frostline.model.names import Name
from frostline.model.policy import ForeignKeys, Policy
from frostline.partitions import partition_mode
from frostline.pipeline import verify
from frostline.relation import holding, registration
from frostline.relation.registration import Request

TABLES = """
create table public.p (k int, d date, note text, primary key (k, d)) partition by range (d);
create table public.p_1 partition of public.p for values from ('2024-01-01') to ('2024-02-01');
create table public.p_2 partition of public.p for values from ('2024-02-01') to ('2024-03-01');
create table public.p_hot partition of public.p for values from ('2124-01-01') to ('2125-01-01');
insert into public.p select i, '2024-01-05' from generate_series(1, 9) i;
insert into public.p select i, '2024-02-05' from generate_series(11, 19) i;
create table public.c (id int, ts date, k int, d date, primary key (id, ts),
    constraint of_p foreign key (k, d) references public.p (k, d) {}) partition by range (ts);
create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01');
create table public.c_hot partition of public.c for values from ('2124-01-01') to ('2125-01-01');
"""
COLD = "insert into public.c values ({0}, '2024-01-20', {0}, '{1}')"
ORPHANS = "select count(*) from public.c where not exists (select from public.p where p.k = c.k and p.d = c.d)"


def made(lake: Lake, monkeypatch: pytest.MonkeyPatch, action: str, grace: str = "0") -> Lake:
    """Parents beside which their relation is, and children that nobody has made yet."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, TABLES.format(action))
    registration.add(lake.catalog, Request(Name("public", "p"), Policy("1 month", grace), relation_name="p_all"))
    registration.add(lake.catalog, Request(Name("public", "c"), Policy("1 month", "0")))
    return lake


@pytest.fixture
def family(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return made(lake, monkeypatch, "")


@pytest.fixture
def graceful(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """All parents are archived, and in their heap until somebody ends their grace period."""
    made(lake, monkeypatch, "on delete cascade", grace="10 years")
    done(lake, "p")
    return lake


def done(lake: Lake, name: str) -> None:
    (result,) = lake.archive(name)
    assert result.error is None


def children(lake: Lake, *parents: int, day: str = "2024-01-05") -> None:
    """Of these parents, in the lake alone."""
    for parent in parents:
        run(lake.catalog, COLD.format(parent, day))
    done(lake, "c")
    lake.fold("c")
    lake.clean("c")
    assert value(lake.catalog, "select count(*) from public._c") == 0
    assert value(lake.catalog, "select count(*) from public.c") == len(parents)


PARTED = """
create table public.q (k int primary key) partition by range (k);
create table public.q_1 partition of public.q for values from (0) to (100);
create table public.q_2 partition of public.q for values from (100) to (200);
create table public.q_3 partition of public.q for values from (200) to (300);
insert into public.q values (50), (150), (250);
alter table public._c add constraint of_q foreign key (k) references public.q on delete cascade"""


def end_grace(lake: Lake) -> None:
    run(lake.catalog, "update frostline.managed_table set grace_period = '0' where table_name = 'p'")


def test_archive_ends_before_parents_of_rows_in_the_lake(family: Lake) -> None:
    children(family, 12, 13, day="2024-02-05")
    (result,) = family.archive("p")
    assert (result.error, result.partitions) == (None, 1)
    (result,) = family.archive("p")
    stays = "cannot archive public.p_2: foreign key of_p on public._c references its rows "
    assert str(result.error).startswith(f"{stays}(12,2024-02-05), (13,2024-02-05);")
    run(family.catalog, "delete from public.c where id = 12")
    run(family.catalog, "update public.c set k = 14 where id = 13")
    (result,) = family.archive("p")
    assert str(result.error).startswith(f"{stays}(14,2024-02-05);")
    family.fold("c")
    assert value(family.catalog, "select count(*) from public._c") == 0
    (result,) = family.archive("p")
    assert str(result.error).startswith(f"{stays}(14,2024-02-05);")
    run(family.catalog, "delete from public.c")
    done(family, "p")
    assert value(family.catalog, "select count(*) from public.p") == 0
    assert verify.run(family.catalog, family.table("p")).faults == ()


def test_clean_leaves_parents_of_rows_in_the_lake(graceful: Lake) -> None:
    children(graceful, 3)
    end_grace(graceful)
    cleaned = graceful.clean("p")
    assert [(waiting.partition, waiting.reason) for waiting in cleaned.waiting] == [
        ("public.p_1", "foreign key of_p on public._c references its rows (3,2024-01-05)")
    ]
    assert value(graceful.catalog, ORPHANS) == 0
    run(graceful.catalog, "delete from public.c where id = 3")
    assert graceful.clean("p").emptied == ("public.p_1",)


def test_a_parent_in_its_grace_period_is_deleted_with_its_rows_in_the_lake(graceful: Lake) -> None:
    children(graceful, 3, 4, 5, 6)
    run(graceful.catalog, "delete from public.p_all where k = 3")
    run(graceful.catalog, "delete from public.p where k = 4")
    assert rows(graceful.catalog, "select id from public.c order by 1") == [(5,), (6,)]
    with pytest.raises(errors.ForeignKeyViolation):
        run(graceful.catalog, "update public.p_all set k = 50 where k = 5")
    graceful.fold("p")
    assert value(graceful.catalog, ORPHANS) == 0
    graceful.thaw("c")
    assert rows(graceful.catalog, "select id from public._c order by 1") == [(5,), (6,)]


def test_a_fold_keeps_parents_of_rows_in_the_lake(family: Lake) -> None:
    done(family, "p")
    assert value(family.catalog, "select count(*) from public.p") == 0
    run(family.catalog, "insert into public.p values (20, '2024-01-05'), (21, '2024-01-05'), (22, '2024-01-05')")
    run(family.catalog, "insert into public.c values (22, '2124-01-20', 22, '2024-01-05')")
    run(family.catalog, COLD.format(20, "2024-01-05"))
    done(family, "c")
    family.clean("c")
    assert rows(family.catalog, "select id from public._c") == [(22,)]
    (result,) = family.fold("p")
    assert (result.error, result.marks, result.taken) == (None, 3, 1)
    assert rows(family.catalog, "select k from public.p order by 1") == [(20,), (22,)]
    with pytest.raises(errors.ForeignKeyViolation, match='constraint "of_p" on table "_c"'):
        run(family.catalog, "delete from public.p_all where k = 20")
    with pytest.raises(errors.ForeignKeyViolation, match='constraint "of_p" on table "_c"'):
        run(family.catalog, "update public.p_all set k = 23 where k = 20")
    run(family.catalog, "delete from public.c")
    (result,) = family.fold("p")
    assert (result.error, result.taken) == (None, 2)
    assert verify.run(family.catalog, family.table("p")).faults == ()


def test_a_parent_that_is_in_the_lake_alone_has_no_rows_anywhere(family: Lake) -> None:
    """So it can be deleted there, and nobody can come to reference it."""
    done(family, "p")
    for row in ("(3, '2024-01-20', 3, '2024-01-05')", "(3, '2124-01-20', 3, '2024-01-05')"):
        with pytest.raises(errors.ForeignKeyViolation):
            run(family.catalog, f"insert into public.c values {row}")
    run(family.catalog, "delete from public.p_all where k = 3")
    assert value(family.catalog, "select count(*) from public.p_all where k = 3") == 0


def test_nothing_goes_while_the_lake_cannot_be_asked(graceful: Lake) -> None:
    children(graceful, 3)
    run(graceful.catalog, "insert into public.p values (30, '2024-01-06')")
    end_grace(graceful)
    graceful.server.stop()
    (result,) = graceful.fold("p")
    assert isinstance(result.error, UnavailableError)
    assert "cannot tell whether rows of public._c in the lake reference others" in str(result.error)
    with pytest.raises(UnavailableError, match=r"cannot tell whether rows of public\._c"):
        graceful.clean("p")
    assert value(graceful.catalog, ORPHANS.replace("public.c ", "public._c as c ")) == 0
    assert value(graceful.catalog, "select count(*) from public.p where k in (3, 30)") == 2


def test_a_key_that_is_ignored_for_rows_in_the_lake_keeps_nothing(family: Lake) -> None:
    children(family, 3)
    holding.switch(family.catalog, family.table("c"), ForeignKeys.IGNORE)
    family.server.stop()
    done(family, "p")
    assert value(family.catalog, "select count(*) from public.p") == 0


@pytest.mark.parametrize("default", [False, True])
def test_retention_of_a_table_without_a_lake_leaves_parents_of_rows_in_the_lake(family: Lake, *, default: bool) -> None:
    run(family.catalog, "alter table public._c drop constraint of_p")
    run(family.catalog, PARTED)
    if default:
        run(family.catalog, "create table public.rest partition of public.q default")
    holding.follow(family.catalog)
    children(family, 50)
    policy = Policy(premake=0, retention_period="50")
    table = partition_mode.add(family.catalog, Request(Name("public", "q"), policy)).table
    result = partition_mode.expire(family.catalog, family.settings, table)
    assert (result.dropped, result.waiting) == (
        ("public.q_2",),
        ("public.q_1: Rows in the lake reference rows of it.",),
    )
    assert value(family.catalog, "select count(*) from public.c join public.q using (k)") == 1
    run(family.catalog, "delete from public.c")
    assert partition_mode.expire(family.catalog, family.settings, table).dropped == ("public.q_1",)
