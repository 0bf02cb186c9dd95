"""What holds the foreign keys of a managed table: where it stands, what it follows, what it costs, with whose rights."""

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors
from tests.fixtures.command import Command
from tests.fixtures.keyed import Keyed, make, make_plain, state
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.model.names import Name
from frostline.model.policy import ForeignKeys, Policy
from frostline.relation import adoption, following, holding, registration, removal, renewal
from frostline.relation.registration import Request
from frostline.server.meter import Outcome

pytestmark = pytest.mark.spark

CASCADE = Keyed("on delete cascade on update cascade")
TRIGGERS = "select count(*) from pg_trigger where tgname like '!frostline\\_children%'"
ORPHANS = "select count(*) from public.c where p is not null and p not in (select k from public.c_parent)"


@pytest.fixture
def cascading(lake: Lake) -> Lake:
    make(lake, "c", CASCADE)
    return lake


@pytest.fixture
def strict(lake: Lake) -> Lake:
    make(lake, "c", Keyed())
    return lake


def test_a_deleted_parent_takes_its_rows_along_for_good(cascading: Lake) -> None:
    """Through fold, undo and thaw: none comes back, and none is an orphan that thaw would refuse."""
    for child in ("c", "c_plain"):
        run(cascading.catalog, f"delete from public.{child}_parent where k in (1, 2, 4)")
        run(cascading.catalog, f"update public.{child}_parent set k = 50 where k = 5")
    plain = state(cascading.catalog, "c_plain")
    assert state(cascading.catalog, "c") == plain
    cascading.undo("c")
    assert state(cascading.catalog, "c") == plain
    cascading.fold("c")
    assert state(cascading.catalog, "c") == plain
    cascading.thaw("c")
    assert state(cascading.catalog, "c") == plain
    assert value(cascading.catalog, "select count(*) from public._c") == len(plain[0])


def test_the_lake_is_asked_only_where_it_may_have_rows(cascading: Lake) -> None:
    make_plain(cascading, "d", CASCADE)
    cascading.add("d", "200 years")
    cascading.server.stop()
    with cascading.connect() as app:
        run(app, "update public.c_parent set note = 'new'")
        run(app, "delete from public.c_parent where false")
        run(app, "delete from public.d_parent where k = 1")
        for statement in ("delete from public.c_parent where k = 8", "update public.c_parent set k = 80 where k = 8"):
            with pytest.raises(
                psycopg.OperationalError, match=r"cannot tell whether rows of public\._c in the lake"
            ) as down:
                run(app, statement)
            assert "frostline table set public.c --foreign-keys ignore" in str(down.value.diag.message_hint)
    assert value(cascading.catalog, "select count(*) from public.c_parent") == 9
    assert value(cascading.catalog, "select count(*) from public._d where p = 1") == 0


def test_in_its_grace_period_a_table_needs_no_lake(lake: Lake) -> None:
    make_plain(lake, "c", CASCADE)
    lake.add("c", grace="10 years")
    lake.archive()
    lake.server.stop()
    run(lake.catalog, "delete from public.c_parent where k = 1")
    assert value(lake.catalog, "select count(*) from public._c where p = 1") == 0


def test_a_new_partition_of_a_referenced_table_is_followed(lake: Lake) -> None:
    run(lake.catalog, "create table public.c_parent (k int primary key, note text) partition by range (k)")
    for first in (0, 5):
        run(
            lake.catalog,
            f"create table public.c_parent_{first} partition of public.c_parent for values from ({first}) to ({first + 5})",
        )
    run(lake.catalog, "insert into public.c_parent select k from generate_series(1, 9) k")
    run(
        lake.catalog,
        "create table public.c (id int, ts date, p int references public.c_parent on delete cascade on update cascade,"
        " primary key (id, ts)) partition by range (ts)",
    )
    run(lake.catalog, "create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01')")
    run(lake.catalog, "insert into public.c select k, '2024-01-05', k from generate_series(1, 9) k")
    lake.add("c")
    lake.archive()
    lake.clean("c")
    run(lake.catalog, "delete from public.c_parent where k = 1")
    run(lake.catalog, "delete from public.c_parent_0 where k = 2")
    run(lake.catalog, "update public.c_parent set k = -k + 3 where k = 3")
    run(lake.catalog, "create table public.c_parent_10 partition of public.c_parent for values from (10) to (20)")
    run(lake.catalog, "update public.c_parent set k = 15 where k = 6")
    assert holding.follow(lake.catalog) == [Name("public", "c")]
    assert holding.follow(lake.catalog) == []
    run(lake.catalog, "update public.c_parent_10 set k = 16 where k = 15")
    run(lake.catalog, "delete from public.c_parent_5 where k = 5")
    assert rows(lake.catalog, "select id, p from public.c order by 1") == [
        (3, 0),
        (4, 4),
        (6, 16),
        (7, 7),
        (8, 8),
        (9, 9),
    ]


def test_foreign_keys_that_come_and_go_are_followed(cascading: Lake) -> None:
    run(cascading.catalog, "create table public.others (k int primary key)")
    run(cascading.catalog, "insert into public.others select k from generate_series(1, 9) k")
    run(cascading.catalog, "alter table public._c add constraint other foreign key (p) references public.others")
    assert value(cascading.catalog, TRIGGERS) == 2
    assert holding.follow(cascading.catalog) == [Name("public", "c")]
    assert value(cascading.catalog, TRIGGERS) == 4
    with pytest.raises(errors.ForeignKeyViolation, match='constraint "other" on table "_c"'):
        run(cascading.catalog, "delete from public.others where k = 4")
    run(cascading.catalog, "alter table public._c drop constraint other")
    run(cascading.catalog, "delete from public.others where k = 4")
    assert holding.follow(cascading.catalog) == [Name("public", "c")]
    assert value(cascading.catalog, TRIGGERS) == 2
    run(cascading.catalog, "alter table public._c drop constraint its_parent")
    assert holding.follow(cascading.catalog) == [Name("public", "c")]
    assert value(cascading.catalog, TRIGGERS) == 0
    run(cascading.catalog, "delete from public.c_parent where k = 5")
    assert value(cascading.catalog, "select count(*) from public.c where p = 5") == 4


def test_names_and_types_are_those_of_the_moment(cascading: Lake) -> None:
    for child, heap in (("c", "_c"), ("c_plain", "c_plain")):
        run(cascading.catalog, f"alter table public.{child}_parent rename k to q")
        run(cascading.catalog, f"delete from public.{child}_parent where q = 1")
        run(cascading.catalog, f"alter table public.{child}_parent alter q type bigint using q")
        run(cascading.catalog, f"alter table public.{heap} rename constraint its_parent to another")
        run(cascading.catalog, f"alter table public.{child}_parent add more int default 2, drop note")
        run(cascading.catalog, f"delete from public.{child}_parent where q = 2")
        run(cascading.catalog, f"update public.{child}_parent set q = 40 where q = 4")
    assert state(cascading.catalog, "c") == state(cascading.catalog, "c_plain")


def test_a_renamed_column_of_the_table_is_the_same_column(cascading: Lake) -> None:
    """Whether or not the relation has followed the name: both go or both stay."""
    run(cascading.catalog, "alter table public._c rename p to r")
    with suppress(psycopg.Error):
        run(cascading.catalog, "delete from public.c_parent where k = 5")
    there = value(cascading.catalog, "select count(*) from public.c_parent where k = 5")
    following.follow(cascading.catalog, cascading.table("c"))
    assert value(cascading.catalog, "select count(*) from public.c where r = 5") == 4 * there


def test_one_question_is_asked_for_a_statement(cascading: Lake) -> None:
    before = cascading.server.backend.meter.reading()
    run(cascading.catalog, "delete from public.c_parent where k in (4, 5, 6)")
    after = cascading.server.backend.meter.reading()
    assert after.queries[Outcome.OK] - before.queries[Outcome.OK] == 1
    assert after.rows - before.rows == 6, "it is looked up, and not all of the lake is read"


@pytest.mark.parametrize("actions", [("cascade", "set null"), ("set null", "cascade"), ("set default", "cascade")])
def test_two_foreign_keys_to_one_table(lake: Lake, actions: tuple[str, str]) -> None:
    """One takes the row along, the other only lets go of it; the row goes, and a trigger of the heap does not bring it back."""
    two = Keyed(f"on delete {actions[0]}", child="p int, q int")
    other = "add foreign key (q) references public.{child}_parent on delete " + actions[1]
    make_plain(lake, "c", two)
    make_plain(lake, "c_plain", two)
    for child in ("c", "c_plain"):
        run(lake.catalog, f"update public.{child} set q = 10 - p")
        run(lake.catalog, f"alter table public.{child} {other}".format(child=child))
    lake.add("c")
    lake.archive()
    lake.clean("c")
    for child in ("c", "c_plain"):
        run(lake.catalog, f"delete from public.{child}_parent where k in (3, 7)")
        run(lake.catalog, f"delete from public.{child}_parent where k = 4")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")


def test_what_cannot_be_held_is_told(lake: Lake) -> None:
    run(
        lake.catalog,
        "create operator public.=== (leftarg = int, rightarg = int, function = int4eq);"
        "create operator class public.own for type int using btree as operator 1 <, operator 2 <=, operator 3 public.===,"
        " operator 4 >=, operator 5 >, function 1 btint4cmp(int, int);"
        "create table public.strange (k int); create unique index on public.strange (k public.own);"
        "create table public.above (k int primary key); create table public.below () inherits (public.above);"
        "create table public.c (id int, ts date, s int references public.strange (k), a int references public.above,"
        " primary key (id, ts)) partition by range (ts);"
        "create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01')",
    )
    added = registration.add(lake.catalog, Request(Name("public", "c"), Policy("1 month", "0")))
    strange, above = added.foreign_keys
    assert "cannot be held for rows in the lake, because its columns are compared by an operator" in strange
    assert "because other tables inherit" in above
    assert value(lake.catalog, TRIGGERS) == 0


def test_a_referenced_table_may_be_managed_itself(lake: Lake) -> None:
    run(lake.catalog, "create table public.p (k int, d int, primary key (k, d)) partition by range (d)")
    run(lake.catalog, "create table public.p_1 partition of public.p for values from (0) to (100)")
    run(lake.catalog, "insert into public.p select k, k from generate_series(1, 9) k")
    run(
        lake.catalog,
        "create table public.c (id int, ts date, k int, d int, foreign key (k, d) references public.p on delete cascade,"
        " primary key (id, ts)) partition by range (ts)",
    )
    run(lake.catalog, "create table public.c_1 partition of public.c for values from ('2024-01-01') to ('2024-02-01')")
    run(lake.catalog, "insert into public.c select k, '2024-01-05', k, k from generate_series(1, 9) k")
    registration.add(lake.catalog, Request(Name("public", "p"), Policy("1000000"), relation_name="p_all"))
    added = registration.add(lake.catalog, Request(Name("public", "c"), Policy("1 month", "0")))
    assert added.foreign_keys[0].endswith("; rows of it that are referenced stay in its heap")
    lake.archive("c")
    lake.clean("c")
    run(lake.catalog, "delete from public.p_all where k = 1")
    run(lake.catalog, "delete from public.p where k = 2")
    assert value(lake.catalog, "select min(id) from public.c") == 3


def test_the_mode_is_switched_and_leaves_nothing(cascading: Lake) -> None:
    table = holding.switch(cascading.catalog, cascading.table("c"), ForeignKeys.IGNORE)
    assert value(cascading.catalog, TRIGGERS) == 0
    left = "select count(*) from pg_class where relname like 'foreign keys %'"
    assert value(cascading.catalog, left) == 0
    run(cascading.catalog, "delete from public.c_parent where k = 6")
    assert value(cascading.catalog, ORPHANS) == 2
    table = holding.switch(cascading.catalog, table, ForeignKeys.HOLD)
    assert holding.switch(cascading.catalog, table, ForeignKeys.HOLD) == table
    assert renewal.is_current(cascading.catalog, table)
    run(cascading.catalog, "delete from public.c_parent where k = 5")
    assert value(cascading.catalog, ORPHANS) == 2


def test_tables_of_an_older_version_are_left_as_they_were(cascading: Lake) -> None:
    run(cascading.catalog, "update frostline.managed_table set foreign_keys = default")
    assert cascading.table("c").foreign_keys is ForeignKeys.IGNORE


def test_a_relation_that_was_dropped_holds_them_again(cascading: Lake) -> None:
    run(cascading.catalog, "set frostline.guard = off; drop view frostline_relation.c_1 cascade; reset frostline.guard")
    adoption.adopt(cascading.catalog, Name("public", "c"))
    run(cascading.catalog, "delete from public.c_parent where k = 5")
    assert value(cascading.catalog, ORPHANS) == 0
    assert renewal.is_current(cascading.catalog, cascading.table("c"))


def test_removal_takes_the_triggers_along(cascading: Lake) -> None:
    removal.remove(cascading.catalog, Name("public", "c"), keep_lake=True)
    assert value(cascading.catalog, TRIGGERS) == 0
    run(cascading.catalog, "delete from public.c_parent")


def test_table_add_says_what_it_found(lake: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(lake.warehouse))
    make_plain(lake, "c", CASCADE)
    said = command("table", "add", "c", "--hot", "1 month")
    assert (
        "foreign key its_parent (p) references public.c_parent on delete cascade, on update cascade: held, each DELETE of"
        " public.c_parent and UPDATE of its key costs one look-up in the lake" in said.stderr
    )
    said = command("table", "set", "c", "--foreign-keys", "ignore")
    assert "ignored, rows in the lake stay" in said.stderr
    assert value(lake.catalog, TRIGGERS) == 0
    make_plain(lake, "d", CASCADE)
    said = command("table", "add", "d", "--hot", "1 month", "--foreign-keys", "ignore")
    assert "ignored, rows in the lake stay" in said.stderr
    assert value(lake.catalog, TRIGGERS) == 0


FAMILY = """
create table public.{c}_above (k int primary key);
create table public.{c}_nulls (k int primary key references public.{c}_above on delete cascade);
create table public.{c}_parent (k int primary key references public.{c}_above on delete cascade);
create table public.{c} (id int, ts date, p int references public.{c}_parent on delete cascade,
    q int references public.{c}_nulls on delete set null, primary key (id, ts)) partition by range (ts);
create table public.{c}_1 partition of public.{c} for values from ('2024-01-01') to ('2024-02-01');
insert into public.{c}_above select generate_series(1, 5);
insert into public.{c}_nulls select generate_series(1, 5);
insert into public.{c}_parent select generate_series(1, 5);
insert into public.{c} select 10 * p + q, '2024-01-05', p, q from generate_series(1, 5) p, generate_series(1, 5) q
"""


def test_a_row_that_goes_by_one_key_does_not_come_back_by_another(lake: Lake) -> None:
    """Postgres fires its triggers in turns: a heap row is gone, and its mark not made, when the other key is looked at."""
    for child in ("c", "c_plain"):
        run(lake.catalog, FAMILY.format(c=child))
    lake.add("c", grace="10 years")
    lake.archive()
    for child in ("c", "c_plain"):
        run(lake.catalog, f"delete from public.{child}_above where k in (1, 2, 3)")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")
    lake.undo("c")
    lake.fold("c")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")


def test_a_cold_row_that_loses_two_parents_in_two_ways_is_refused(lake: Lake) -> None:
    """Of two tables, in one statement; one after the other they can go."""
    for child in ("c", "c_plain"):
        run(lake.catalog, FAMILY.format(c=child))
    lake.add("c", grace="0")
    lake.archive()
    before = state(lake.catalog, "c")
    with pytest.raises(errors.ForeignKeyViolation):
        run(lake.catalog, "delete from public.c_above where k in (1, 2, 3)")
    assert state(lake.catalog, "c") == before
    for child in ("c", "c_plain"):
        run(lake.catalog, f"delete from public.{child}_parent where k in (1, 2, 3)")
        run(lake.catalog, f"delete from public.{child}_above where k in (1, 2, 3)")
    assert state(lake.catalog, "c") == state(lake.catalog, "c_plain")
