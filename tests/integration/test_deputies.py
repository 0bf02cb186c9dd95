"""Jobs run as a powerful role on tables of one that is not. No code of his ever runs with their rights."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.fixtures import bombs, copies
from tests.fixtures.bombs import PLANTED, exploded, plant
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first, some
from tests.fixtures.statements import rows, run, value

from frostline.errors import FrostlineError, UsageError
from frostline.model.conversion import Conversion
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.observe import status, survey
from frostline.partitions import partition_mode
from frostline.partitions.convert import conversion
from frostline.pipeline import plan, premake, retain, verify
from frostline.relation import guard, removal
from frostline.relation.registration import Request

HEAP = "public._events"
DROPPED = "; ".join(f"drop event trigger {name}" for name in guard.TRIGGERS)
EVENTS = Name("public", "events")
pytestmark = pytest.mark.spark
TYPICAL = (
    "an index expression of constants",
    "a check of one partition",
    "a domain inside of a type",
    "an operator",
    "a constant of a default",
)
JOBS: dict[str, Callable[[Lake], object]] = {
    "archive": lambda lake: _raised(lake.archive()[0].error),
    "fold": lambda lake: _raised(lake.fold()[0].error),
    "clean": lambda lake: lake.clean(),
    "undo": lambda lake: lake.undo(),
    "thaw": lambda lake: lake.thaw(),
    "verify": lambda lake: verify.run(lake.catalog, lake.table()),
    "premake": lambda lake: premake.run(lake.catalog, lake.settings, lake.table()),
    "retain": lambda lake: _raised(lake.retain()[0].error),
    "plan": lambda lake: plan.of_table(lake.catalog, lake.table()),
    "retain --dry-run": lambda lake: retain.planned(lake.catalog, lake.table()),
    "table remove": lambda lake: removal.remove(lake.catalog, EVENTS, keep_lake=True),
}


def _raised(error: FrostlineError | None) -> None:
    if error is not None:
        raise error


@pytest.fixture
def owned(lake: Lake) -> Iterator[Lake]:
    """A lake of a superuser, and `events` of a role with few rights."""
    with bombs.mine(lake.catalog):
        yield lake


@pytest.mark.parametrize("place", some(PLANTED, *TYPICAL))
def test_a_table_with_code_of_his_is_not_taken(owned: Lake, place: str) -> None:
    plant(owned.catalog, PLANTED[place])
    with pytest.raises(UsageError, match="of a role with fewer rights than postgres"):
        owned.add()
    with pytest.raises(UsageError, match="of a role with fewer rights"):
        partition_mode.add(owned.catalog, Request(EVENTS, Policy(partition_interval="1 month")))
    assert exploded(owned.catalog) == []


@pytest.mark.parametrize("place", some(PLANTED, *TYPICAL))
def test_no_job_begins_on_a_table_that_got_code_of_his(owned: Lake, place: str) -> None:
    owned.add(retention_period="10 years")
    plant(owned.catalog, PLANTED[place], HEAP)
    for job in JOBS.values():
        with pytest.raises(UsageError, match="of a role with fewer rights"):
            job(owned)
    (problem,) = status.read(owned.catalog).problems
    assert "of a role with fewer rights" in problem.what
    assert survey.list_all(owned.catalog) == []
    assert exploded(owned.catalog) == []


@pytest.mark.parametrize("place", some(PLANTED, *TYPICAL))
def test_while_the_guard_stands_he_cannot_put_it_there(owned: Lake, place: str) -> None:
    owned.add()
    assert guard.ensure(owned.catalog)
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="with the rights of Frostline"):
            plant(owned.catalog, PLANTED[place], HEAP)
    finally:
        run(owned.catalog, DROPPED)
    assert exploded(owned.catalog) == []


def test_the_guard_minds_only_what_is_new(owned: Lake) -> None:
    owned.add()
    plant(owned.catalog, PLANTED["a check"], HEAP)
    assert guard.ensure(owned.catalog)
    plant(owned.catalog, "alter table {t} add column harmless int; create index on {t} ((lower(status)))", HEAP)
    plant(owned.catalog, "create table public.elsewhere (a int check (public.of(a, 'elsewhere')))")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        plant(
            owned.catalog,
            "create table public.with_trap (like {t} including constraints, check (public.of(amount, 'attached')));"
            "alter table {t} attach partition public.with_trap for values from ('2090-01-01') to ('2091-01-01')",
            HEAP,
        )
    plant(owned.catalog, "alter table {t} drop constraint trap", HEAP)
    run(owned.catalog, DROPPED)
    assert plan.of_table(owned.catalog, owned.table()).rows_estimate >= 0


@pytest.mark.parametrize("strangers", ["public._events", "public.events_2", None])
def test_the_search_for_code_begins_only_where_an_owner_is_not_trusted(owned: Lake, strangers: str | None) -> None:
    owned.add()
    run(owned.catalog, f"reassign owned by {bombs.OWNER} to postgres; set track_functions = 'all'")
    if strangers:
        run(owned.catalog, f"alter table {strangers} owner to {bombs.OWNER}")
    count = "select count(*) from frostline.untrusted_code('public._events'::regclass)"
    searched = "select coalesce(pg_stat_get_xact_function_calls('frostline.code_of_others'::regproc), 0)"
    with owned.catalog.transaction():
        assert value(owned.catalog, count) == 0
        assert value(owned.catalog, searched) == (1 if strangers else 0)


def test_triggers_rules_defaults_and_policies_of_his_see_no_job(owned: Lake) -> None:
    """A whole life of the table: archive, changes of cold rows, fold, clean, thaw, premake with rows to move, removal."""
    plant(owned.catalog, bombs.SILENT)
    table = owned.add(hot="1 month", grace="0", retention_period="50 years", premake=2, partition_interval="1 month")
    assert owned.archive()[0].error is None
    with owned.connect() as connection:
        run(connection, f"set role {bombs.OWNER}")
        assert run(connection, "update public.events set status = 'changed' where id in (3, 40)").rowcount == 2
        assert run(connection, "delete from public.events where id = 5").rowcount == 1
        run(
            connection,
            "insert into public.events (id, ts, amount) select 100 + i, now(), i from generate_series(1, 9) i",
        )
    run(owned.catalog, "delete from public.exploded")  # the relation's own functions are another page's
    before = rows(owned.catalog, "select * from public.events order by id")
    assert owned.fold()[0].error is None
    assert (
        value(
            owned.catalog,
            f"select count(*) from frostline_overlay.{table.internal} where ts < now() - interval '1 year'",
        )
        == 0
    )
    assert sum(partition.moved for partition in premake.run(owned.catalog, owned.settings, table).created) == 9
    assert owned.retain()[0].error is None
    assert verify.run(owned.catalog, table).faults == ()
    assert owned.thaw().refilled
    assert rows(owned.catalog, "select * from public.events order by id") == before
    removal.remove(owned.catalog, EVENTS, keep_lake=True)
    assert exploded(owned.catalog) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["always", "replica"])
def test_a_trigger_that_nothing_silences_keeps_a_fold_from_deleting(owned: Lake, mode: str) -> None:
    owned.add()
    assert owned.archive()[0].error is None
    with owned.connect() as connection:
        run(connection, "update public.events set status = 'changed' where id = 3")
    plant(
        owned.catalog,
        "create trigger loud after delete on public.events_default for each row execute function public.fired();"
        f"alter table public.events_default enable {mode} trigger loud",
    )
    (folded,) = owned.fold()
    assert isinstance(folded.error, UsageError)
    assert "trigger loud on public.events_default would fire" in str(folded.error)
    plant(owned.catalog, "alter table public.events_default enable trigger loud")
    assert owned.fold()[0].error is None
    assert exploded(owned.catalog) == []


@pytest.mark.parametrize(
    "place", some([planted for planted in PLANTED if "partition" not in planted], "a check", "an operator")
)
def test_a_table_with_code_of_his_is_not_converted(owned: Lake, place: str) -> None:
    plant(
        owned.catalog,
        "create table public.flat (id bigint primary key, ts timestamptz not null, status text, amount numeric);"
        "insert into public.flat select i, now(), 'x', i from generate_series(1, 9) i",
    )
    plant(owned.catalog, PLANTED[place], "public.flat")
    with pytest.raises(UsageError, match="of a role with fewer rights"):
        conversion.convert(owned.catalog, Conversion(Name("public", "flat"), "ts", "1 month"), lambda _progress: None)
    assert exploded(owned.catalog) == []


def test_a_function_of_the_installing_role_is_trusted(owned: Lake) -> None:
    plant(
        owned.catalog,
        "create function public.pure(numeric) returns numeric immutable language sql as $$ select $1 * 2 $$;"
        "create index on {t} ((public.pure(amount)))",
    )
    with pytest.raises(UsageError, match="pure") as refused:
        owned.add()
    (hint,) = (refused.value.hint or "").splitlines()
    assert hint.startswith("if it does what it should: alter function public.pure(numeric) owner to postgres")
    run(owned.catalog, "alter function public.pure(numeric) owner to postgres")
    owned.add()
    assert owned.archive()[0].error is None


def test_an_owner_who_could_become_the_installing_role_is_trusted(owned: Lake) -> None:
    plant(owned.catalog, PLANTED["an index expression of a column"])
    run(owned.catalog, f"alter role {bombs.OWNER} superuser")
    owned.add()
    run(owned.catalog, f"alter role {bombs.OWNER} nosuperuser")


def test_no_policy_is_asked_in_a_session_of_a_job(owned: Lake) -> None:
    assert value(owned.catalog, "show row_security") == "off"


READ = ["an index expression of constants", "a SQL function that is inlined", "the predicate of an index", "statistics"]


@pytest.mark.parametrize("place", first(2, [*READ, "a cast to text", "an operator"]))
def test_a_table_with_code_that_a_reader_runs_is_not_copied(owned: Lake, place: str) -> None:
    plant(owned.catalog, PLANTED[place])
    with pytest.raises(UsageError, match="of a role with fewer rights"):
        copies.create(owned, "public.events")
    assert exploded(owned.catalog) == []
