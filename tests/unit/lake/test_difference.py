"""How two states of a lake differ, by their files."""

from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField
from tests.fixtures.lake_tables import events, lake_location

from frostline.lake import commit, difference, schema
from frostline.lake.difference import Content, Difference, Held

TABLE = events()
ONE, TWO = {"a": Held(1, 10)}, {"a": Held(1, 10), "b": Held(2, 20)}


def metadata(tmp_path: Path) -> TableMetadata:
    return commit.new_metadata(TABLE, lake_location(tmp_path, TABLE), {})


def test_files_come_and_go() -> None:
    changes = Difference(Content(1, TWO), Content(2, {"a": Held(1, 10), "c": Held(4, 40)}))
    assert (set(changes.added), set(changes.removed)) == ({"c"}, {"b"})
    assert (changes.ours.rows, changes.theirs.rows) == (3, 5)


def test_a_file_that_is_described_in_another_way_is_not_the_same(tmp_path: Path) -> None:
    changes = Difference(Content(1, ONE), Content(2, {"a": Held(2, 10), "b": Held(2, 20)}))
    assert set(changes.removed) == {"a"}
    same = metadata(tmp_path)
    assert "deleted or changed" in (difference.why_not_rows(TABLE, same, same, changes) or "")


def test_only_more_files_of_the_same_table_are_more_rows(tmp_path: Path) -> None:
    ours, another = metadata(tmp_path), metadata(tmp_path)
    more = Difference(Content(1, ONE), Content(2, TWO))
    assert difference.why_not_rows(TABLE, ours, ours, more) is None
    assert difference.why_not_rows(TABLE, ours, another, more) == "it is another Iceberg table"
    same = Difference(Content(1, ONE), Content(2, ONE))
    assert difference.why_not_rows(TABLE, ours, ours, same) == "it has no row that the lake does not have"
    deleted = Difference(Content(1, ONE), Content(2, TWO, ("d",)))
    assert "1 delete files" in (difference.why_not_rows(TABLE, ours, ours, deleted) or "")


def test_another_column_is_another_table_s_row(tmp_path: Path) -> None:
    ours, more = metadata(tmp_path), Difference(Content(1, ONE), Content(2, TWO))
    wider = Schema(*schema.iceberg_schema(TABLE).fields, NestedField(99, "more", LongType(), required=False))
    theirs = ours.model_copy(update={"schemas": [wider]})
    assert difference.why_not_rows(TABLE, ours, theirs, more) == "its columns are others"


def test_a_lake_without_a_snapshot_has_nothing(tmp_path: Path) -> None:
    assert difference.content(metadata(tmp_path)) == difference.NOTHING
    assert difference.operations(metadata(tmp_path), None) == []
