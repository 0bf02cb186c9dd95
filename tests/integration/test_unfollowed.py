"""Between ALTER TABLE and `frostline table sync`, where no event trigger follows: cold rows that could be wrong are an error."""

import psycopg
import pytest
from tests.fixtures import copies
from tests.fixtures.followed import altered, both, made, same
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import UsageError
from frostline.pipeline import fill_columns
from frostline.relation import following, guard, policy

Refused = psycopg.errors.ObjectNotInPrerequisiteState
EXCHANGED = "rename a to x; alter table {0} rename b to a; alter table {0} rename x to b"
MISREAD = {
    "another name": "rename a to c",
    "exchanged names": EXCHANGED,
    "another column of that name": "rename a to c; alter table {0} add column a text default 'new'",
}
ADDED = {
    "a column": "add column x int",
    "a column with a default": "add column x text default 'kept'",
    "a default that changed since": "add column x text default 'kept'; alter table {0} alter column x set default 'new'",
}
UUID = "11111111-1111-4111-8111-111111111111"
COLD = "ts < '2024-04-01+00'"
READ = f"select count(*) from public.t where {COLD}"


@pytest.fixture
def pair(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """`t`, cold rows in lake and overlay, and hot ones; `p` is a plain table with the same."""
    made(lake, monkeypatch)
    altered(lake, "add column b text default 'b'")
    both(lake, "insert into public.{} (id, ts, a) values (50, '2030-01-01+00', 'hot')")
    return lake


def refuses(lake: Lake, statement: str, what: str) -> None:
    with lake.connect() as app, pytest.raises(Refused, match=f"cold rows of public.t cannot be {what}") as refused:
        run(app, statement)
    assert refused.value.diag.message_hint == "frostline table sync public.t"


def writes_hot_rows(lake: Lake) -> None:
    with lake.connect() as app:
        run(app, "update public.t set n = 9 where ts = '2030-01-01+00'")
        run(app, "insert into public.t (id, ts) values (51, '2030-01-02+00')")
        assert rows(app, "select id, n from public.t where ts > '2029-01-01+00' order by 1") == [(50, 9), (51, None)]
    both(lake, "delete from public.{} where ts = '2030-01-02+00'")
    run(lake.catalog, "update public.p set n = 9 where id = 50")


@pytest.mark.parametrize("what", MISREAD)
def test_cold_rows_are_not_read_under_names_that_are_others_now(pair: Lake, what: str) -> None:
    assert value(pair.catalog, READ) == 29
    altered(pair, MISREAD[what], sync=False)
    refuses(pair, READ, "read")
    refuses(pair, "update public.t set n = 1 where id = 8", "read")
    writes_hot_rows(pair)
    following.follow(pair.catalog, pair.table("t"))
    same(pair)


@pytest.mark.parametrize("what", ADDED)
def test_rows_that_are_only_in_the_lake_are_not_written_without_a_new_column(pair: Lake, what: str) -> None:
    altered(pair, ADDED[what], sync=False)
    assert value(pair.catalog, READ) == 29
    refuses(pair, "update public.t set n = 1 where id = 8", "written")
    refuses(pair, "delete from public.t where id = 8", "written")
    refuses(pair, "insert into public.t (id, ts) values (90, '2024-01-05+00')", "inserted")
    both(pair, "update public.{} set n = 2 where id = 4")  # its newest version is in the heap
    writes_hot_rows(pair)
    following.follow(pair.catalog, pair.table("t"))
    both(pair, "update public.{} set n = 1 where id = 8")
    both(pair, "delete from public.{} where id = 9")
    same(pair)
    pair.fold()
    same(pair)


def test_a_cold_row_does_not_get_a_default_that_is_not_the_heaps(pair: Lake) -> None:
    altered(pair, "alter column b set default 'other'", sync=False)
    refuses(pair, "insert into public.t (id, ts) values (90, '2024-01-05+00')", "inserted")
    both(pair, "update public.{} set n = 1 where id = 8")
    following.follow(pair.catalog, pair.table("t"))
    both(pair, "insert into public.{} (id, ts) values (90, '2024-01-05+00')")
    same(pair)


def test_the_transaction_that_has_altered_the_heap_gets_the_error_too(pair: Lake) -> None:
    with pair.connect() as app, app.transaction(force_rollback=True):
        run(app, "alter table public._t rename a to c")
        with pytest.raises(Refused, match="cannot be read"), app.transaction():
            run(app, READ)
        assert value(app, "select a from public.t where ts = '2030-01-01+00'") == "hot"
    assert value(pair.catalog, READ) == 29
    both(pair, "update public.{} set n = 1 where id = 8")
    same(pair)


AFTER = {
    "a column": "add column x text default 'kept'",
    "another name": "rename b to c",
    "a default": "alter column b set default 'other'",
}


@pytest.mark.parametrize("what", AFTER)
def test_an_older_snapshot_reads_on_and_does_not_write(pair: Lake, what: str) -> None:
    with pair.connect() as app:
        run(app, "begin isolation level repeatable read; select 1 from pg_class limit 1")
        altered(pair, AFTER[what].replace("{0}", "public._t"), sync=False)
        assert value(app, READ) == 29
        for statement in (
            "update public.t set n = 1 where id = 8",
            "delete from public.t where id = 8",
            "insert into public.t (id, ts) values (90, '2024-01-05+00')",
        ):
            with (
                pytest.raises(psycopg.errors.SerializationFailure, match="altered after the snapshot"),
                app.transaction(),
            ):
                run(app, statement)
        run(app, "rollback")
    following.follow(pair.catalog, pair.table("t"))
    same(pair)


def test_an_older_snapshot_reads_on_while_the_relation_follows(pair: Lake) -> None:
    with pair.connect() as app:
        run(app, "begin isolation level repeatable read; select 1 from pg_class limit 1")
        altered(pair, "rename b to c")
        assert value(app, READ) == 29
        run(app, "rollback")


def test_columns_that_were_followed_are_written_at_every_level(pair: Lake) -> None:
    altered(pair, "add column x text default 'kept'")
    for level in ("repeatable read", "serializable"):
        with pair.connect() as app:
            run(app, f"begin isolation level {level}")
            run(app, "update public.t set n = n + 1 where id in (8, 10)")
            run(app, "insert into public.t (id, ts) select count(*) + 60, '2024-01-05+00' from public.t")
            run(app, "commit")
        run(pair.catalog, "update public.p set n = n + 1 where id in (8, 10)")
        run(pair.catalog, "insert into public.p (id, ts) select count(*) + 60, '2024-01-05+00' from public.p")
    same(pair)


KEYS = {
    "the number": ("id", "m", "int", "92"),
    "the tier key": ("ts", "seen", "timestamptz", "'2030-05-02+00'"),
}
MARKED = (
    "update public._t set a = 'lost' where a = 'changed'",
    "delete from public._t where a = 'changed'",
    "insert into public._t (id, ts, {0}) values (91, '2030-05-01+00', {1})",
    "truncate public.t_d",
)


@pytest.mark.parametrize("which", KEYS)
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_rows_are_not_marked_by_a_column_that_has_got_the_name_of_the_key(pair: Lake, which: str, level: str) -> None:
    """By whoever has begun before it got the name, too."""
    key, other, kind, some = KEYS[which]
    altered(pair, f"add column {other} {kind}")
    both(pair, "update public.{} set m = id + 1 where id < 9" if other == "m" else "update public.{} set seen = ts")
    exchanged = f"rename {key} to x; alter table {{0}} rename {other} to {key}; alter table {{0}} rename x to {other}"
    with pair.connect() as app:
        for _ in range(9):  # from now on, plans are kept
            run(app, "update public._t set n = n where a = 'hot'")
        run(app, f"begin isolation level {level}; select 1 from pg_class limit 1")
        altered(pair, exchanged, sync=False)
        for statement in MARKED:
            with pytest.raises((Refused, psycopg.errors.SerializationFailure)), app.transaction():
                run(app, statement.format(other, some))
        run(app, "rollback")
    following.follow(pair.catalog, pair.table("t"))
    both(pair, "update public.{} set a = 'kept' where a = 'changed'")
    ours, plain = (rows(pair.catalog, f"select * from public.{name} order by a, n") for name in ("t", "p"))
    assert ours == plain


def test_rows_are_marked_while_other_columns_are_not_followed(pair: Lake) -> None:
    altered(pair, EXCHANGED + "; alter table {0} add column x text default 'kept'", sync=False)
    for level in ("read committed", "repeatable read", "serializable"):
        with pair.connect() as app:
            run(app, f"begin isolation level {level}")
            run(app, "update public._t set n = n + 1 where id in (4, 50)")
            run(app, "commit")
        run(pair.catalog, "update public.p set n = n + 1 where id in (4, 50)")
    following.follow(pair.catalog, pair.table("t"))
    same(pair)


def test_thaw_brings_no_row_back_under_exchanged_names(pair: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it has begun before they were exchanged, or when it cannot follow them."""
    run(pair.catalog, "alter table public._t add column s serial")
    altered(pair, EXCHANGED, sync=False)
    with pytest.raises(UsageError, match="each other's values"):
        pair.thaw("t", "2024-02-01")
    run(pair.catalog, "alter table public._t drop column s")
    with monkeypatch.context() as patched:
        copies.without_spark(pair, patched, lambda _: altered(pair, EXCHANGED, sync=False))
        with pytest.raises(UsageError, match="each other's values"):
            pair.thaw("t", "2024-02-01")
    pair.thaw("t", "2024-02-01")
    same(pair)


def test_retain_deletes_no_hot_row_by_a_column_that_has_got_the_name_of_the_tier_key(pair: Lake) -> None:
    altered(pair, "add column seen timestamptz")
    both(pair, "update public.{} set ts = '2030-02-02+00', seen = ts where id = 9")
    altered(pair, "rename ts to x; alter table {0} rename seen to ts; alter table {0} rename x to seen", sync=False)
    policy.change(pair.catalog, pair.table("t"), retention_period="2 years")
    (result,) = pair.retain("t")
    assert isinstance(result.error, UsageError)
    following.follow(pair.catalog, pair.table("t"))
    (result,) = pair.retain("t")
    assert result.error is None
    run(pair.catalog, "delete from public.p where seen < '2024-04-01+00'")
    same(pair)


@pytest.mark.parametrize("triggers", ["without event triggers", "with those that came later"])
@pytest.mark.parametrize("change", ["add column y int", "alter column x set default gen_random_uuid()"])
def test_a_default_that_was_set_later_gives_cold_rows_no_values(pair: Lake, triggers: str, change: str) -> None:
    """Nothing tells by then how a column was filled that nobody has followed."""
    altered(pair, "add column x uuid; alter table {0} alter column x set default gen_random_uuid()", sync=False)
    for name in ("_t", "p"):
        run(pair.catalog, f"update public.{name} set x = '{UUID}' where id in (4, 5, 6, 50)")  # all that the heap has
    if triggers == "without event triggers":
        with pytest.raises(UsageError):
            fill_columns.alter(pair.jobs(), pair.table("t"), change)
    else:
        assert guard.ensure(pair.catalog)
        with pytest.raises(psycopg.NotSupportedError, match="column x of"), pair.connect() as app:
            run(app, f"alter table public._t {change}")
    run(pair.catalog, "alter table public._t alter column x drop default")
    following.follow(pair.catalog, pair.table("t"))
    same(pair)


def test_values_that_were_written_before_another_change_is_followed_are_kept(pair: Lake) -> None:
    altered(pair, "add column x int", sync=False)
    for name in ("_t", "p"):
        run(pair.catalog, f"update public.{name} set x = 5 where id in (4, 50)")
    fill_columns.alter(pair.jobs(), pair.table("t"), "add column y int")
    run(pair.catalog, "alter table public.p add column y int")
    same(pair)
    pair.fold()
    same(pair)


def test_steps_do_not_begin_behind_a_column_that_cannot_be_followed(pair: Lake) -> None:
    run(pair.catalog, "alter table public._t add column x serial")
    with pytest.raises(UsageError, match="a new column x"):
        fill_columns.alter(pair.jobs(), pair.table("t"), "add column y text generated always as (a || b) stored")
    run(pair.catalog, "alter table public._t drop column x")
    same(pair)
