"""What the worker does next, without a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.model.names import Name
from frostline.model.upkeep import MANY_MANIFESTS
from frostline.model.work import (
    FIRST_PAUSE,
    FRUITLESS_PAUSE,
    LONGEST_PAUSE,
    ORDER,
    Action,
    Failures,
    Kind,
    TableState,
    decide,
    due,
    pause,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
QUIET = TableState(Name("public", "events"), NOW)
BUSY = TableState(
    Name("public", "events"),
    NOW,
    missing_partitions=1,
    ripe_partitions=2,
    marks=3,
    fold_rows=3,
    over_grace=2,
    blocked_by_marks=1,
    can_retain=True,
    can_compact=True,
    expirable=5,
    has_lake=True,
    swept_at=NOW - timedelta(days=2),
)


def kinds(actions: list[Action]) -> list[Kind]:
    return [action.kind for action in actions]


def test_a_lake_that_somebody_else_committed_to_is_left_alone() -> None:
    assert len(decide([BUSY])) > 1
    assert kinds(decide([replace(BUSY, foreign="it was moved")])) == [Kind.PREMAKE]


def test_a_table_that_needs_nothing_gets_nothing() -> None:
    assert decide([QUIET]) == []
    assert decide([]) == []


@pytest.mark.parametrize(
    ("changes", "kind", "why"),
    [
        ({"missing_partitions": 1}, Kind.PREMAKE, "1 partition to be made ahead"),
        ({"ripe_partitions": 2}, Kind.ARCHIVE, "2 partitions older than the hot period"),
        ({"marks": 7, "fold_rows": 7}, Kind.FOLD, "7 changed cold rows, at least 7"),
        ({"marks": 1, "has_old_mark": True}, Kind.FOLD, "a changed cold row older than fold_age"),
        ({"marks": 1, "over_grace": 1, "blocked_by_marks": 1}, Kind.FOLD, "1 partition to be cleaned with changes that are not folded"),
        ({"over_grace": 1}, Kind.CLEAN, "1 archived partition past the grace period"),
        ({"can_retain": True}, Kind.RETAIN, "rows older than the retention period"),
        ({"can_compact": True}, Kind.COMPACT, "many small files in the lake"),
        ({"manifests": MANY_MANIFESTS + 1}, Kind.COMPACT, "101 manifests in the lake"),
        ({"expirable": 1}, Kind.EXPIRE, "1 lake snapshot past the snapshot retention"),
        ({"has_lake": True, "swept_at": NOW - timedelta(days=1)}, Kind.SWEEP, "a day since the last sweep"),
    ],
)  # fmt: skip
def test_each_need_has_its_action_and_says_why(changes: dict[str, object], kind: Kind, why: str) -> None:
    assert decide([replace(QUIET, **changes)]) == [Action(kind, QUIET.name, why)]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "changes",
    [
        {"marks": 6, "fold_rows": 7},
        {"manifests": MANY_MANIFESTS},
        {"has_lake": True, "swept_at": NOW - timedelta(hours=23)},
        {"swept_at": NOW - timedelta(days=2)},
    ],
)
def test_just_below_a_threshold_nothing_is_due(changes: dict[str, object]) -> None:
    assert decide([replace(QUIET, **changes)]) == []  # pyright: ignore[reportArgumentType]


def test_a_round_goes_by_kind_and_then_by_table() -> None:
    other = replace(BUSY, name=Name("public", "logs"))
    actions = decide([BUSY, other])
    assert [(action.kind, action.name.table) for action in actions[:4]] == [
        (Kind.PREMAKE, "events"),
        (Kind.PREMAKE, "logs"),
        (Kind.ARCHIVE, "events"),
        (Kind.ARCHIVE, "logs"),
    ]
    assert kinds(decide([BUSY])) == list(ORDER)


def test_a_table_that_somebody_works_on_waits() -> None:
    assert decide([replace(BUSY, leased_by="process 1 on here")]) == []
    assert kinds(due(replace(BUSY, leased_by="process 1 on here"))) == list(ORDER)


def test_a_failure_delays_its_own_kind_only() -> None:
    failed = {Kind.ARCHIVE: Failures(1, NOW - FIRST_PAUSE + timedelta(seconds=1))}
    assert Kind.ARCHIVE not in kinds(decide([replace(BUSY, failures=failed)]))
    assert len(decide([replace(BUSY, failures=failed)])) == len(ORDER) - 1
    over = {Kind.ARCHIVE: Failures(1, NOW - FIRST_PAUSE)}
    assert kinds(decide([replace(BUSY, failures=over)])) == list(ORDER)


def test_a_try_in_vain_is_repeated_after_a_minute() -> None:
    tries = {(Kind.CLEAN, BUSY.name): NOW - FRUITLESS_PAUSE + timedelta(seconds=1)}
    assert Kind.CLEAN not in kinds(decide([BUSY], tries))
    assert Kind.CLEAN in kinds(decide([BUSY], {(Kind.CLEAN, BUSY.name): NOW - FRUITLESS_PAUSE}))
    assert Kind.CLEAN in kinds(decide([BUSY], {(Kind.CLEAN, Name("public", "logs")): NOW}))


def test_pauses_double_up_to_an_hour() -> None:
    assert [pause(count).total_seconds() for count in (1, 2, 3)] == [30, 60, 120]
    assert pause(100) == pause(1_000_000) == LONGEST_PAUSE


@given(st.lists(st.sampled_from(list(Kind)), unique=True), st.integers(1, 50), st.integers(0, 7200))
def test_whatever_failed_is_tried_again_in_the_end(failed: list[Kind], count: int, seconds: int) -> None:
    failures = {kind: Failures(count, NOW) for kind in failed}
    later = replace(BUSY, failures=failures, now=NOW + timedelta(seconds=seconds))
    tried = kinds(decide([later]))
    assert set(tried) == set(ORDER) - {kind for kind in failed if timedelta(seconds=seconds) < pause(count)}


LAKE = replace(QUIET, lake_table_id=3, looked_at=NOW)


def test_a_lake_table_is_looked_at_after_some_commits_or_some_time_after_one() -> None:
    def kinds(**changes: object) -> list[Kind]:
        return [action.kind for action in decide([replace(LAKE, **changes)])]  # pyright: ignore[reportArgumentType]

    assert kinds() == kinds(commits=15) == kinds(looked_at=NOW - timedelta(days=9)) == []
    assert kinds(commits=16) == [Kind.COMPACT]
    assert kinds(commits=1, looked_at=NOW - timedelta(minutes=5)) == [Kind.COMPACT]
    assert kinds(commits=1, looked_at=None) == [Kind.COMPACT]
    assert decide([replace(LAKE, expirable=2)]) == [
        Action(Kind.EXPIRE, LAKE.name, "2 lake snapshots past the snapshot retention", 3)
    ]
