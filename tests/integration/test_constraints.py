"""CHECK, NOT NULL and domains: what Postgres promises of all rows holds for those in the lake too."""

import psycopg
import pytest
from tests.fixtures import followed
from tests.fixtures.followed import both, made, same
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.errors import UnavailableError, UsageError
from frostline.model import health
from frostline.observe import status
from frostline.relation import constraints, guard

HEAP = "public._t"
STATES = "select kind, name, state from frostline.cold_constraint order by kind, name"
EXCLUSIVE = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation in ('public.t'::regclass, 'public._t'::regclass)"


@pytest.fixture
def pair(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made(lake, monkeypatch)
    assert guard.ensure(lake.catalog)
    return lake


def refused(lake: Lake, error: type[psycopg.Error], message: str, statement: str) -> psycopg.Error:
    """As an application."""
    with lake.connect() as connection, pytest.raises(error, match=message) as caught:
        run(connection, statement)
    return caught.value


def done(lake: Lake, *statements: str) -> None:
    """As an application, each in a transaction of its own."""
    with lake.connect() as connection:
        for statement in statements:
            run(connection, statement)


def test_a_check_is_added_not_valid_and_then_looked_at_in_both_tiers(pair: Lake) -> None:
    added = f"alter table {HEAP} add constraint small check (n < 3)"
    error = refused(pair, psycopg.errors.ObjectNotInPrerequisiteState, "ADD CONSTRAINT small does not look at", added)
    assert f"{added.replace('check (n < 3)', 'CHECK ((n < (3)::numeric))')} not valid" in str(error.diag.message_hint)
    done(pair, f"{added} not valid")
    refused(pair, psycopg.errors.CheckViolation, "small", "update public.t set n = 99 where id = 20")  # cold
    refused(
        pair, psycopg.errors.CheckViolation, "small", "insert into public.t (id, ts, n) values (90, '2024-01-05+00', 7)"
    )
    validated = f"alter table {HEAP} validate constraint small"
    error = refused(pair, psycopg.errors.CheckViolation, "violated by some row in the lake", validated)
    assert (error.diag.constraint_name, error.diag.table_name) == ("small", "_t")
    _, condition = str(error.diag.message_hint).split("They are cold rows: ")
    assert len(rows(pair.catalog, condition)) == 7
    assert (
        value(
            pair.catalog,
            "select convalidated from pg_constraint where conname = 'small' and conrelid = 'public._t'::regclass",
        )
        is False
    )
    both(pair, "delete from public.{} where n >= 3")
    done(
        pair,
        validated,
        f"alter table {HEAP} rename constraint small to few",
        f"alter table {HEAP} rename column n to m",
    )
    assert rows(pair.catalog, STATES) == [("check", "few", "held")]
    done(pair, f"alter table {HEAP} drop constraint few")
    assert rows(pair.catalog, STATES) == []


def test_a_check_is_still_known_to_hold_over_a_wider_type(pair: Lake) -> None:
    done(pair, f"alter table {HEAP} add column v varchar(9)")
    done(pair, "update public.t set v = 'v' || id")
    (folded,) = pair.fold()
    assert folded.error is None
    checks = {
        "few": "n < 100",
        "named": "v <> 'none' and length(v) < 9",
        "positive": "id * 2 > 0 or id = any (array[-7, -8])",
        "sums": "abs(id) > 0",
    }
    for name, condition in checks.items():
        done(
            pair,
            f"alter table {HEAP} add constraint {name} check ({condition}) not valid",
            f"alter table {HEAP} validate constraint {name}",
        )
    held = [("check", name, "held") for name in sorted(checks)]
    another = f"alter table {HEAP} drop constraint named, alter column v type varchar(20), add constraint named check (v <> 'x' and length(v) < 9)"
    refused(pair, psycopg.errors.ObjectNotInPrerequisiteState, "ADD CONSTRAINT named", another)
    assert rows(pair.catalog, STATES) == held
    done(pair, f"alter table {HEAP} alter column v type text, alter column n type numeric(12, 2)")
    assert rows(pair.catalog, STATES) == held
    wider = f"alter table {HEAP} alter column id type bigint"
    error = refused(pair, psycopg.errors.ObjectNotInPrerequisiteState, "ADD CONSTRAINT sums", wider)
    steps = [
        step.removeprefix("then: ").split("at once: ")[-1].split("transaction: ")[-1]
        for step in str(error.diag.message_hint).split("; ")
    ]
    done(pair, *(wider if step == "then this statement again" else step for step in steps))
    assert rows(pair.catalog, STATES) == held
    refused(pair, psycopg.errors.CheckViolation, "named", "update public.t set v = 'none' where id = 20")
    assert value(pair.catalog, "select to_regclass('frostline_relation.checked_1')") is None


def test_null_is_refused_until_a_check_has_proved_it(pair: Lake) -> None:
    both(pair, "update public.{} set a = null where id = 12")
    pair.fold()
    change = f"alter table {HEAP} alter column a set not null"
    refused(pair, psycopg.errors.ObjectNotInPrerequisiteState, "SET NOT NULL of column a does not look at", change)
    done(pair, f"alter table {HEAP} add constraint a_not_null check (a is not null) not valid")
    refused(
        pair, psycopg.errors.CheckViolation, "row in the lake", f"alter table {HEAP} validate constraint a_not_null"
    )
    both(pair, "update public.{} set a = 'again' where id = 12")
    done(pair, f"alter table {HEAP} validate constraint a_not_null", change)
    done(pair, f"alter table {HEAP} drop constraint a_not_null")
    assert rows(pair.catalog, STATES) == [("not null", "a", "held")]
    done(pair, f"alter table {HEAP} alter column a drop not null")
    refused(pair, psycopg.errors.ObjectNotInPrerequisiteState, "SET NOT NULL", change)
    same(pair)


def test_a_lake_that_is_down_keeps_only_validation_from_being_done(pair: Lake) -> None:
    pair.server.stop()
    done(pair, f"alter table {HEAP} add constraint positive check (n >= 0) not valid")
    error = refused(
        pair,
        psycopg.OperationalError,
        "cannot tell whether rows of public._t in the lake",
        f"alter table {HEAP} validate constraint positive",
    )
    assert "when the lake server is up" in str(error.diag.message_hint)
    # No file has the new columns, so what their rows have in them is known.
    done(pair, f"alter table {HEAP} add column x int not null default 5, add column y text check (length(y) < 9)")
    done(pair, f"alter table {HEAP} add constraint x_small check (x < 99 or y is null)")
    done(pair, f"update {HEAP} set x = 10, y = 'y'")  # what the heap has
    refused(
        pair,
        psycopg.errors.ObjectNotInPrerequisiteState,
        "ADD CONSTRAINT x_big",
        f"alter table {HEAP} add constraint x_big check (x > 9)",
    )
    refused(
        pair, psycopg.errors.ObjectNotInPrerequisiteState, "SET NOT NULL", f"alter table {HEAP} alter y set not null"
    )
    assert rows(pair.catalog, STATES) == [
        ("check", "_t_y_check", "held"),
        ("check", "positive", "not valid"),
        ("check", "x_small", "held"),
        ("not null", "x", "held"),
    ]


def test_validation_keeps_no_reader_waiting(pair: Lake) -> None:
    done(pair, f"alter table {HEAP} add constraint positive check (n >= 0) not valid")
    with pair.connect() as connection, connection.transaction():
        run(connection, f"alter table {HEAP} validate constraint positive")
        assert value(connection, EXCLUSIVE) == 0
        with pair.connect() as reader:
            run(reader, "set lock_timeout = '5s'")
            assert value(reader, "select count(*) from public.t") == 29
        both(pair, "update public.{} set a = 'meanwhile' where id = 15")


def test_added_and_validated_in_one_transaction_or_rolled_back(pair: Lake) -> None:
    with pair.connect() as connection:
        with connection.transaction(force_rollback=True):
            run(connection, f"alter table {HEAP} add constraint positive check (n >= 0) not valid")
            run(connection, f"alter table {HEAP} validate constraint positive")
            assert rows(connection, STATES) == [("check", "positive", "held")]
        assert rows(connection, STATES) == []
        with connection.transaction():
            run(connection, "set transaction isolation level repeatable read")
            run(connection, f"alter table {HEAP} add constraint positive check (n >= 0) not valid")
            run(connection, f"alter table {HEAP} validate constraint positive")
        assert rows(connection, STATES) == [("check", "positive", "held")]


@pytest.mark.parametrize("statement", ["add constraint many check (n < 90) not valid", "validate constraint positive"])
def test_one_snapshot_for_all_statements_is_told_when_the_lake_has_changed_since(pair: Lake, statement: str) -> None:
    done(pair, f"alter table {HEAP} add constraint positive check (n >= 0) not valid")
    with pair.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set transaction isolation level repeatable read")
        assert value(connection, "select 1") == 1
        run(pair.catalog, "update frostline.seam set snapshot_id = snapshot_id")
        with pytest.raises(psycopg.errors.SerializationFailure):
            run(connection, f"alter table {HEAP} {statement}")


def test_a_domain_is_looked_at_in_the_lake_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.catalog, "create domain public.word as text; create domain public.inner_word as public.word")
    table = followed.TABLE.replace("a text", "a public.word, w public.inner_word")
    monkeypatch.setattr(followed, "TABLE", table.replace("'a' || i", "'a' || i, 'c' || i"))
    made(lake, monkeypatch)
    assert guard.ensure(lake.catalog)
    run(lake.catalog, "drop table public.p")
    for check in ("check (value <> 'a11')", "check (value <> 'c12') not valid"):
        error = refused(
            lake,
            psycopg.errors.CheckViolation,
            "other values in the lake",
            f"alter domain public.word add constraint c {check}",
        )
        assert "They are cold rows" in str(error.diag.message_hint)
    run(lake.catalog, "delete from public.t where id in (11, 12)")
    lake.fold()
    done(lake, "alter domain public.word add constraint c check (value not in ('a11', 'c12')) not valid")
    done(lake, "alter domain public.word validate constraint c", "alter domain public.word rename constraint c to d")
    run(lake.catalog, "update public.t set a = null where id = 14")
    lake.fold()
    refused(lake, psycopg.errors.NotNullViolation, "other values in the lake", "alter domain public.word set not null")
    run(lake.catalog, "delete from public.t where id = 14")
    lake.fold()
    done(lake, "alter domain public.word set not null", "alter domain public.word drop not null")
    lake.server.stop()
    refused(
        lake,
        psycopg.OperationalError,
        "cannot tell whether",
        "alter domain public.word add constraint e check (value <> '')",
    )
    done(lake, "alter domain public.word set default 'none'", "alter domain public.word drop constraint d")


def test_a_domain_that_gets_no_constraint_does_not_ask_the_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.catalog, "create domain public.word as text not null constraint c check (value <> '')")
    monkeypatch.setattr(followed, "TABLE", followed.TABLE.replace("a text", "a public.word"))
    made(lake, monkeypatch)
    assert guard.ensure(lake.catalog)
    lake.server.stop()
    for change in ("add constraint rename check (value <> 'x')", "add constraint d check (value <> 'x') not valid"):
        for more in ("", "; alter domain public.word drop default"):
            statement = f"alter domain public.word {change}{more}"
            refused(lake, psycopg.OperationalError, "cannot tell whether", statement)
    done(
        lake,
        "alter domain public.word rename constraint c to d",
        "alter domain public.word owner to current_user",
        "alter domain public.word set default 'add constraint'",
        "alter domain public.word drop default",
        "alter domain public.word drop not null",
    )


def test_without_event_triggers_it_is_told_and_looked_at_by_sync(pair: Lake) -> None:
    run(pair.catalog, "; ".join(f"drop event trigger {name}" for name in guard.TRIGGERS))
    done(pair, f"alter table {HEAP} add constraint few check (n < 3), alter column a set not null")
    constraints.record_all(pair.catalog)
    table = pair.table("t")
    assert constraints.unseen(pair.catalog, table) == "constraint few, NOT NULL of a"
    told = health.Problem(
        "rows in the lake were not looked at for constraint few, NOT NULL of a", "frostline table sync public.t"
    )
    assert told in status.of_table(pair.catalog, table).problems
    with pytest.raises(UsageError, match="violated by some row in the lake") as caught:
        constraints.look(pair.catalog, table)
    assert "select * from public.t where not ((n < (3)::numeric)); change them" in str(caught.value.hint)
    run(pair.catalog, "delete from public.t where n >= 3")
    assert constraints.look(pair.catalog, table) == ("constraint few", "NOT NULL of a")
    assert constraints.unseen(pair.catalog, table) is None
    done(pair, f"alter table {HEAP} drop constraint few, add constraint many check (n < 90)")
    pair.server.stop()
    with pytest.raises(UnavailableError, match="cannot tell whether"):
        constraints.look(pair.catalog, table)
