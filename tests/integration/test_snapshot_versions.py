"""Versions of a snapshot: what a new one takes from the one before it, and what dropping one leaves."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from tests.fixtures import copies, quick
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.statements import rows, run, value

from frostline.catalog import snapshot_versions
from frostline.errors import UsageError
from frostline.lake import warehouse
from frostline.model.names import Name
from frostline.pipeline import snapshot_drop

pytestmark = pytest.mark.spark

T, U = Name("public", "t"), Name("public", "u")


@pytest.fixture
def first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Version 1 of two tables. Tasks run in this process, which is quicker; what they do is the same."""
    copies.without_spark(lake, monkeypatch)
    run(lake.catalog, "create table public.t (a int, b float4, c numeric(5,2), d text); create table public.u (a int)")
    run(lake.catalog, "insert into public.t values (1, 1.5, 2.25, 'one'); insert into public.u values (1)")
    copies.create(lake, "public.*")
    return lake


def schema(copy: Any) -> dict[str, tuple[int, str]]:
    fields = StaticTable.from_metadata(copy.metadata_location).schema().fields
    return {field.name: (field.field_id, str(field.field_type)) for field in fields}


def uuid(copy: Any) -> object:
    return StaticTable.from_metadata(copy.metadata_location).metadata.table_uuid


def both(copy: Any) -> list[Any]:
    """The rows of a copy, about which PyIceberg and DuckDB must agree."""
    copied = copies.by_pyiceberg(copy).to_pylist()
    assert sorted(copies.by_duckdb(copy), key=repr) == sorted((tuple(row.values()) for row in copied), key=repr)
    return copied


def test_an_old_version_stays_as_it_was(first: Lake) -> None:
    run(first.catalog, "update public.t set a = 2; drop table public.u; create table public.v (a int)")
    copies.create(first, "public.*")
    old, new = copies.shown(first, version=1), copies.shown(first)
    assert (list(old), list(new)) == ([T, U], [T, Name("public", "v")])
    assert ([row["a"] for row in both(old[T])], [row["a"] for row in both(new[T])]) == ([1], [2])
    assert both(old[U]) == [{"a": 1}]
    assert uuid(old[T]) == uuid(new[T])
    pointers = rows(first.catalog, "select table_name, metadata_location from frostline.iceberg_tables order by 1")
    assert pointers == [("t", new[T].metadata_location), ("v", new[Name("public", "v")].metadata_location)]


@pytest.mark.parametrize(
    ("change", "expected"),
    quick.first(
        3,
        [
            ("alter table public.t add e text default 'new'", {"e": (5, "string")}),
            ("alter table public.t rename a to z", {"z": (1, "int")}),
            ("alter table public.t alter a type bigint", {"a": (1, "long")}),
            ("alter table public.t alter b type float8", {"b": (2, "double")}),
            ("alter table public.t alter c type numeric(9,2)", {"c": (3, "decimal(9, 2)")}),
            ("alter table public.t alter c type numeric(9,3)", {"c": (5, "decimal(9, 3)")}),
            ("alter table public.t alter a type text", {"a": (5, "string")}),
            ("alter table public.t drop a; alter table public.t add a text default 'again'", {"a": (5, "string")}),
            (
                "alter table public.t rename a to x; alter table public.t rename d to a",
                {"x": (1, "int"), "a": (4, "string")},
            ),
        ],
    ),
)
def test_a_copy_follows_its_table(first: Lake, change: str, expected: dict[str, tuple[int, str]]) -> None:
    before = copies.shown(first)[T]
    run(first.catalog, change)
    copies.create(first, "public.*")
    after = copies.shown(first)[T]
    assert uuid(before) == uuid(after)
    assert expected.items() <= schema(after).items()
    (row,) = both(after)
    (expected_row,) = rows(first.catalog, "select * from public.t")
    assert tuple(row.values()) == expected_row
    assert both(before) == [{"a": 1, "b": 1.5, "c": before_c(), "d": "one"}]


def before_c() -> object:
    from decimal import Decimal

    return Decimal("2.25")


@pytest.mark.slow
def test_a_column_that_is_dropped_gives_its_id_to_no_other(first: Lake) -> None:
    run(first.catalog, "alter table public.t drop d")
    copies.create(first, "public.*")
    run(first.catalog, "alter table public.t add e text default 'e'")
    copies.create(first, "public.*")
    assert schema(copies.shown(first)[T])["e"] == (5, "string")
    assert both(copies.shown(first)[T])[0]["e"] == "e"


@pytest.mark.slow
def test_a_table_that_was_made_anew_is_another_table(first: Lake) -> None:
    run(
        first.catalog,
        "drop table public.t; create table public.t (d int, a text); insert into public.t values (7, 'x')",
    )
    copies.create(first, "public.*")
    old, new = copies.shown(first, version=1)[T], copies.shown(first)[T]
    assert uuid(old) != uuid(new)
    assert (both(new), schema(new)) == ([{"d": 7, "a": "x"}], {"d": (1, "int"), "a": (2, "string")})


@pytest.mark.slow
def test_a_table_becomes_empty_and_full_again(first: Lake) -> None:
    run(first.catalog, "delete from public.t")
    copies.create(first, "public.*")
    assert both(copies.shown(first)[T]) == []
    run(first.catalog, "insert into public.t values (5)")
    copies.create(first, "public.*")
    assert [row["a"] for row in both(copies.shown(first)[T])] == [5]
    assert [row["a"] for row in both(copies.shown(first, version=1)[T])] == [1]


def test_incremental_uses_the_files_of_tables_that_have_the_same_rows(
    first: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with Spark
    run(first.catalog, "update public.t set a = 2; update public.u set a = a")
    before = set(first.data_files())
    result = copies.create(first, "public.*", incremental=True)
    assert {table.name: table.reused for table in result.tables} == {T: False, U: True}
    assert len(set(first.data_files()) - before) == 1
    old, new = copies.shown(first, version=1), copies.shown(first)
    assert (old[U].metadata_location, new[U].reused) == (new[U].metadata_location, True)
    assert both(new[T])[0]["a"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    quick.first(
        2,
        [
            "alter table public.u rename a to b",
            "alter table public.u alter a type bigint",
            "drop table public.u; create table public.u as select 1 as a",
            "insert into public.u values (null)",
            "delete from public.u",
        ],
    ),
)
def test_incremental_copies_a_table_that_is_not_the_same(first: Lake, change: str) -> None:
    run(first.catalog, change)
    result = copies.create(first, "public.*", incremental=True)
    assert {table.name: table.reused for table in result.tables} == {T: True, U: False}
    assert [tuple(row.values()) for row in both(copies.shown(first)[U])] == rows(
        first.catalog, "select * from public.u"
    )


def everything(lake: Lake) -> set[Path]:
    return {file for file in lake.warehouse.rglob("*") if file.is_file() and file.parent.name != warehouse.FOLDER}


def test_dropping_a_version_leaves_the_others_whole(first: Lake) -> None:
    run(first.catalog, "update public.t set a = 2")
    copies.create(first, "public.*", incremental=True)
    run(first.catalog, "update public.t set a = 3")
    copies.create(first, "public.*")
    result = snapshot_drop.drop(first.catalog, first.settings, "nightly", version=1)
    assert result.versions == (1,)
    assert result.files > 0
    assert ([row["a"] for row in both(copies.shown(first, version=2)[T])], both(copies.shown(first, version=2)[U])) == (
        [2],
        [{"a": 1}],
    )
    assert [row["a"] for row in both(copies.shown(first)[T])] == [3]
    with pytest.raises(UsageError, match="snapshot 'nightly' has no version 1"):
        copies.shown(first, version=1)
    snapshot_drop.drop(first.catalog, first.settings, "nightly")
    assert everything(first) == set()


@pytest.mark.slow
def test_dropping_the_newest_version_shows_the_one_before_it(first: Lake) -> None:
    run(first.catalog, "update public.t set a = 2; drop table public.u; create table public.w (a int)")
    copies.create(first, "public.*")
    snapshot_drop.drop(first.catalog, first.settings, "nightly", version=2)
    there = copies.shown(first)
    assert ([row["a"] for row in both(there[T])], both(there[U])) == ([1], [{"a": 1}])
    pointers = rows(first.catalog, "select table_name, metadata_location from frostline.iceberg_tables order by 1")
    assert pointers == [("t", there[T].metadata_location), ("u", there[U].metadata_location)]
    run(first.catalog, "update public.t set a = 9")
    copies.create(first, "public.*")
    assert [row["a"] for row in both(copies.shown(first)[T])] == [9]
    assert snapshot_versions.versions(first.catalog)[-1].version == 3


def test_dropping_all_leaves_nothing(first: Lake) -> None:
    copies.create(first, "public.*")
    copies.create(first, "public.u", name="other")
    others = {file for file in everything(first) if "/other/" in str(file)}
    assert snapshot_drop.drop(first.catalog, first.settings, "nightly", keep=1).versions == (1,)
    assert snapshot_drop.drop(first.catalog, first.settings, "nightly").versions == (2,)
    assert everything(first) == others
    assert rows(first.catalog, "select table_namespace from frostline.iceberg_tables") == [("other.public",)]
    namespaces = "select namespace from frostline.iceberg_namespace_properties order by 1"
    assert rows(first.catalog, namespaces) == [("other",), ("other.public",)]
    with pytest.raises(UsageError, match="there is no snapshot 'nightly'"):
        snapshot_drop.drop(first.catalog, first.settings, "nightly")


@pytest.mark.slow
def test_another_history_is_neither_continued_nor_deleted(first: Lake) -> None:
    """As in a database that was restored: the rows are there, and say that another server wrote them."""
    old = copies.shown(first)[T]
    run(first.catalog, "update frostline.snapshot set server = 'another'")
    before = everything(first)
    copies.create(first, "public.*")
    assert uuid(copies.shown(first)[T]) != uuid(old)
    snapshot_drop.drop(first.catalog, first.settings, "nightly", version=1)
    assert before <= everything(first)
    snapshot_drop.drop(first.catalog, first.settings, "nightly")
    assert everything(first) == before


@pytest.fixture
def said(first: Lake, command: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The answer of a command, as a program reads it."""
    monkeypatch.setenv("FROSTLINE_DSN", first.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(first.warehouse))

    def ask(*words: str) -> Any:
        answer = command("snapshot", *words, "--output", "json")
        assert answer.exit_code == 0, answer.stderr
        return json.loads(answer.stdout)

    return ask


def test_the_commands_list_show_and_drop(first: Lake, said: Any, command: Command) -> None:
    (listed,) = said("list")
    assert (listed["snapshot"], listed["version"], listed["tables"], listed["rows"], listed["atomic"]) == (
        "nightly",
        1,
        2,
        2,
        True,
    )
    assert value(first.catalog, f"select '{listed['lsn']}'::pg_lsn <= pg_current_wal_insert_lsn()")
    shown = said("show", "nightly")
    cut = rows(first.catalog, shown["cut"])
    assert sorted(cut) == [
        (copy["namespace"], copy["lake_table"], copy["metadata_location"], copy["lake_snapshot_id"])
        for copy in shown["copies"]
    ]
    assert rows(first.catalog, said("show", "nightly", "--version", "1")["cut"]) == cut
    text = command("snapshot", "show", "nightly").stdout
    assert shown["cut"] in text
    assert said("drop", "nightly")["dropped"] == [1]
    assert said("list") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "Nightly", "--tables", "public.*"), "not a name of a snapshot: 'Nightly'"),
        (("create", "x", "--tables", "a.b.c"), "not a pattern of tables: 'a.b.c'"),
        (("show", "nothing"), "there is no snapshot 'nothing'"),
        (("show", "nightly", "--version", "7"), "snapshot 'nightly' has no version 7"),
        (("drop", "nightly", "--version", "1", "--keep", "1"), "--version and --keep exclude each other"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(first: Lake, said: Any, command: Command, words: Any, message: str) -> None:
    assert first
    assert said("list")
    answer = command("snapshot", *words)
    assert answer.exit_code == 2
    assert message in answer.stderr
