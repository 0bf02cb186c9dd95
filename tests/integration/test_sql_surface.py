"""SQL that a table takes and a relation of two tiers does not, or takes with a difference: each as the guide says it."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import Twins, begun, make_twins

from frostline.errors import UsageError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def twin(shared_lake: Lake) -> Lake:
    make_twins(shared_lake)
    return shared_lake


@pytest.fixture
def twins(twin: Lake) -> Iterator[Twins]:
    with begun(twin) as session:
        yield session


REFUSED = {
    "insert into events (id, ts) values (1, now()) on conflict do nothing": "0A000",
    "merge into events e using (values (1)) v(i) on e.id = v.i when matched then delete": "0A000",
    "select ctid from events": "42703",
    "select xmin from events": "42703",
    "select tableoid from events": "42703",
    "select * from events tablesample system (10)": "0A000",
    "select id, ts, status from events group by id, ts": "42803",
    "comment on table events is 'x'": "42809",
    "truncate events": "42809",
    "create index on events (status)": "42809",
    "alter table events add column more int": "42809",
    "create trigger t after insert on events for each row execute function suppress_redundant_updates_trigger()": "42809",
    "copy events to stdout": "42809",
    "create table t (id bigint, ts timestamptz, foreign key (id, ts) references events (id, ts))": "42809",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_refused(twins: Twins, statement: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        run(twins.connection, statement)
    assert refused.value.sqlstate == REFUSED[statement], refused.value


def test_where_current_of_is_refused(twins: Twins) -> None:
    run(twins.connection, "declare c cursor for select * from events where id = 63; fetch c")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        run(twins.connection, "update events set status = 'x' where current of c")


def test_what_works_all_the_same(twins: Twins) -> None:
    assert value(twins.connection, "select count(*) from only events") == 80
    run(twins.connection, "comment on view events is 'x'; comment on column events.id is 'y'")
    twins.both("select id, ts, status from {t} group by id, ts, status order by 1 limit 3")
    twins.both("update {t} set status = default where id in (3, 63)")
    twins.both("select (t).status from {t} t where id in (3, 63)")


GENERATED = """
create table public.{name} (
    id int generated always as identity, k int, n int, twice int generated always as (n * 2) stored, primary key (id, k)
) {partitioned}"""


@pytest.fixture
def generated(lake: Lake) -> Lake:
    """A table with an identity and a generated column, half of it in the lake, and a plain one."""
    run(lake.catalog, GENERATED.format(name="events", partitioned="partition by range (k)"))
    run(lake.catalog, GENERATED.format(name="plain", partitioned=""))
    for number in range(2):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        run(lake.catalog, f"create table public.p{number} partition of public.events for values {bounds}")
    for name in ("events", "plain"):
        run(lake.catalog, f"insert into public.{name} (k, n) select i * 10, i from generate_series(1, 19) i")
    lake.add(hot="99")
    assert lake.archive()[0].error is None
    assert lake.clean().waiting == ()
    return lake


@pytest.mark.parametrize(
    "statement",
    first(
        2,
        [
            "insert into public.{t} (k, n, twice) values (5, 1, 7)",
            "insert into public.{t} (k, n, twice) values (150, 1, default), (150, 1, 7)",
            "insert into public.{t} (k, n, twice) select 150, 1, 7",
            "update public.{t} set twice = 7 where k in (20, 120)",
            "update public.{t} set id = 99 where k in (20, 120)",
        ],
    ),
)
def test_values_for_generated_columns_are_refused(generated: Lake, statement: str) -> None:
    for name in ("events", "plain"):
        with generated.connect() as connection, pytest.raises(psycopg.errors.GeneratedAlways):
            run(connection, statement.format(t=name))


@pytest.mark.parametrize(
    "statement",
    first(
        2,
        [
            "insert into public.{t} (k, n) values (5, 1), (150, 1) returning *",
            "insert into public.{t} (k, n, twice) values (5, 1, default), (150, 1, default) returning *",
            "update public.{t} set n = n + 1 where k in (20, 120) returning *",
            "update public.{t} set n = null where k in (20, 120) returning *",
            "update public.{t} set k = k + 1, twice = default where k in (20, 120) returning *",
        ],
    ),
)
def test_and_without_one_they_are_computed(generated: Lake, statement: str) -> None:
    with generated.connect() as connection:
        got = [sorted(rows(connection, statement.format(t=name))) for name in ("events", "plain")]
        assert got[0] == got[1]


VIEWS = {
    "create view public.above as select * from public.{t} where k < 50 with check option": "WITH CHECK OPTION",
    "create view public.below as select * from public.{t}; create view public.above as select * from public.below"
    " where k < 50 with local check option": "WITH CHECK OPTION",
    "create view public.above as select id, k, n from public.{t} group by id, k": "groups by its primary key alone",
    "create table public.other (k int); create policy p on public.other using (k in (select k from public.{t}))": "policy p on",
}


@pytest.mark.parametrize("made", VIEWS)
def test_what_could_not_go_on_above_a_relation_refuses_it(lake: Lake, made: str) -> None:
    run(lake.catalog, GENERATED.format(name="events", partitioned="partition by range (k)"))
    run(lake.catalog, made.format(t="events"))
    with pytest.raises(UsageError, match=VIEWS[made]):
        lake.add(hot="99")
