"""Foreign keys of a managed table hold for rows in the lake as for rows of the heap."""

import pytest
from tests.fixtures.keyed import Keyed, make, outcome
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some

pytestmark = pytest.mark.spark

ACTIONS = {
    "nothing": Keyed(),
    "restrict": Keyed("on delete restrict on update restrict"),
    "cascade": Keyed("on delete cascade on update cascade"),
    "nulls": Keyed("on delete set null on update set null"),
    "defaults": Keyed("on delete set default on update set default"),
    "immediate": Keyed("deferrable"),
    "deferred": Keyed("deferrable initially deferred"),
    "deferred_cascade": Keyed("on delete cascade on update cascade deferrable initially deferred"),
}
_TWO = "a int, b text, primary key (a, b)"
_TYPES = "on delete cascade on update cascade"
TYPES = {
    "wide": Keyed(_TYPES, "k bigint primary key", "p int"),
    "narrow": Keyed(_TYPES, "k smallint primary key", "p bigint"),
    "uuids": Keyed(_TYPES, "k uuid primary key", "p uuid", values="'00000000-0000-0000-0000-00000000000{n}'"),
    "texts": Keyed(_TYPES, 'k text collate "C" primary key', 'p text collate "POSIX"', values="'it''s \"{n}\\,'"),
    "varchars": Keyed(_TYPES, "k varchar(9) primary key", "p text", values="'k{n}'"),
    "numerics": Keyed(_TYPES, "k numeric primary key", "p numeric(9,4)", values="{n}.50"),
    "dates": Keyed(_TYPES, "k date primary key", "p date", values="date '2020-01-01' + {n}"),
    "bytes": Keyed(_TYPES, "k bytea primary key", "p bytea", values="'\\x0{n}'"),
    "two": Keyed(_TYPES, _TWO, "a int, b text", "(a, b) references {parent} (a, b)", "{n}, 'b{n}'"),
    "match_full": Keyed(
        "match full on delete set null", _TWO, "a int, b text", "(a, b) references {parent} (a, b)", "{n}, 'b{n}'"
    ),
    "one_column": Keyed(
        "on delete set null (b)", _TWO, "a int, b text", "(a, b) references {parent} (a, b)", "{n}, 'b{n}'"
    ),
}
DELETES = (
    "delete from child_parent where note = 'old' and child_parent::text like '%1%'",
    "delete from child_parent where child_parent::text ~ '[2-5]'",
    "delete from child_parent where child_parent::text ~ '8'",
    "delete from child_parent where false",
    "delete from child where id % 10 = 4; delete from child_parent where child_parent::text ~ '4'",
    "update child_parent set note = 'new'",
)
UPDATES = (
    "update child_parent set k = 100 where k = 1",
    "update child_parent set k = k + 100 where k between 2 and 5",
    "update child_parent set k = k where k between 2 and 5",
    "update child_parent set k = 100 where k = 8",
    "insert into child_parent values (3, 'x') on conflict (k) do update set k = 300",
    "merge into child_parent p using (values (1), (8)) v (n) on p.k = v.n when matched and n = 8 then delete when matched then update set k = 100",
    "delete from child_parent where k = 9; delete from child_parent where k = 6",
    "with moved as (delete from child_parent where k = 8 returning *) update child_parent set k = 80 where k = 7",
    "update child set p = 6 where p = 5; delete from child_parent where k = 5",
    "update child set p = 5 where p = 6; delete from child_parent where k = 5",
    "update child set p = 77 where id = 12",
    "insert into child values (99, '2024-01-09', 'x', 77)",
    "insert into child values (99, '2024-01-09', 'x', 5); delete from child_parent where k = 5",
    "delete from child_parent; insert into child_parent select k, 'back' from generate_series(1, 9) k; set constraints all immediate",
    "delete from child_parent where k = 4; insert into child_parent values (4, 'back'); set constraints its_parent immediate",
    "delete from child_parent where k = 4; delete from child where p = 4; set constraints all immediate",
    "delete from child_parent where k = 4; delete from child where p = 4 and ts > '2024-01-31'; set constraints all immediate",
    "delete from child_parent where k in (1, 4); set constraints its_parent immediate",
    "set constraints all deferred; delete from child_parent where k = 4; insert into child_parent values (4); set constraints all immediate",
)


@pytest.fixture(scope="module")
def made() -> set[str]:
    """The kinds that there are tables of."""
    return set()


@pytest.fixture
def kept(shared_lake: Lake, made: set[str], name: str) -> Lake:
    """A table of the kind that a test names, beside its plain twin: a second of work for each kind that is needed."""
    if name not in made:
        make(shared_lake, name, (ACTIONS | TYPES)[name])
        made.add(name)
    return shared_lake


def same(kept: Lake, name: str, statement: str) -> None:
    with kept.connect() as app:
        assert outcome(app, name, statement) == outcome(app, f"{name}_plain", statement)


@pytest.mark.parametrize("statement", DELETES + UPDATES)
@pytest.mark.parametrize("name", some(ACTIONS, "nothing", "cascade", "nulls", "deferred"))
def test_every_action_is_that_of_a_plain_table(kept: Lake, name: str, statement: str) -> None:
    same(kept, name, statement)


@pytest.mark.parametrize("statement", DELETES)
@pytest.mark.parametrize("name", some(TYPES, "wide", "texts", "two"))
def test_keys_of_every_type_are_compared_as_postgres_does(kept: Lake, name: str, statement: str) -> None:
    same(kept, name, statement)
