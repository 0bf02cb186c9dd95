"""A lock on a table does not keep its schema's name: whatever gets that name meanwhile is not copied."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.fixtures import copies
from tests.fixtures.interleaving import come_before
from tests.fixtures.lake import Lake
from tests.fixtures.quick import some
from tests.fixtures.statements import run, value

from frostline.errors import ConflictError
from frostline.model.names import Name
from frostline.pipeline import export
from frostline.tiers import survey, target

T = Name("app", "t")
_TWO = """
create schema app; create table app.t as select i as id from generate_series(1, 5) i;
create schema other; create table other.t as select 1000 + i as id from generate_series(1, {rows}) i;
"""
_SWAP = "begin; alter schema app rename to app_old; alter schema other rename to app; commit"
_AWAY = "alter schema app rename to app_old"


@pytest.fixture
def spark_free(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Tasks run in this process, where a test can come between two statements of one."""
    copies.without_spark(lake, monkeypatch)
    return lake


def come_after_looking(patch: pytest.MonkeyPatch, act: Callable[[], None], call: int) -> None:
    """Do it when a session has looked at the name for that time, and goes on to read."""
    check = target.check
    calls = count(1)

    def called(*arguments: Any) -> None:
        check(*arguments)
        if next(calls) == call:
            act()

    patch.setattr(target, "check", called)


def change(lake: Lake, statement: str) -> None:
    with lake.connect() as connection:
        run(connection, statement)


@pytest.mark.parametrize("statement", [_SWAP, _AWAY])
@pytest.mark.parametrize(("module", "function"), [(survey, "of_rows"), (export, "_copy_rows")])
def test_a_session_that_begins_to_read_looks_what_the_name_means(
    spark_free: Lake, monkeypatch: pytest.MonkeyPatch, module: object, function: str, statement: str
) -> None:
    run(spark_free.catalog, _TWO.format(rows=2))
    come_before(monkeypatch, module, function, lambda: change(spark_free, statement))
    is_refused(spark_free)


def is_refused(lake: Lake) -> None:
    with pytest.raises(ConflictError, match=r"app\.t is not the table it was at the point in time"):
        copies.create(lake, "app.*")
    assert value(lake.catalog, "select count(*) from frostline.snapshot_cut") == 0


@pytest.mark.parametrize("rows", some([0, 5], 5))
@pytest.mark.parametrize("look", [pytest.param(1, id="survey"), pytest.param(2, id="copy")])
def test_it_looks_again_when_it_has_read(
    spark_free: Lake, monkeypatch: pytest.MonkeyPatch, rows: int, look: int
) -> None:
    run(spark_free.catalog, _TWO.format(rows=rows))
    come_after_looking(monkeypatch, lambda: change(spark_free, _SWAP), look)
    is_refused(spark_free)


def test_rows_of_another_table_are_never_read(spark_free: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when both looks miss it."""
    run(spark_free.catalog, _TWO.format(rows=5))
    for look in ("check", "check_again"):
        monkeypatch.setattr(target, look, lambda *_: None)
    come_before(monkeypatch, survey, "of_rows", lambda: change(spark_free, _SWAP))
    copies.create(spark_free, "app.*")
    assert copies.shown(spark_free)[T].rows == 0


@pytest.mark.slow
def test_an_unchanged_table_is_not_told_by_another_one(spark_free: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--incremental` only surveys."""
    run(spark_free.catalog, _TWO.format(rows=5))
    copies.create(spark_free, "app.*")
    come_before(monkeypatch, survey, "of_rows", lambda: change(spark_free, _SWAP))
    with pytest.raises(ConflictError, match=r"app\.t is not the table it was"):
        copies.create(spark_free, "app.*", incremental=True)


@pytest.mark.slow
def test_a_schema_that_gets_another_name_before_the_run_is_taken_under_it(spark_free: Lake) -> None:
    run(spark_free.catalog, _TWO.format(rows=2))
    copies.create(spark_free, "app.*")
    run(spark_free.catalog, _SWAP)
    copies.create(spark_free, "app.*")
    assert copies.by_pyiceberg(copies.shown(spark_free, version=1)[T])["id"].to_pylist() == [1, 2, 3, 4, 5]
    assert copies.by_pyiceberg(copies.shown(spark_free)[T])["id"].to_pylist() == [1001, 1002]
