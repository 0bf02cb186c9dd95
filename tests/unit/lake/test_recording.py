"""A commit that is remembered instead of written."""

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, SetSnapshotRefUpdate
from tests.fixtures.lake_tables import events, lake_location, written_events

from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.lake import commit, paths, snapshots
from frostline.lake.recording import Recording, TableChange, follows, kept, rebased, trace
from frostline.model.outcomes import Trace

TABLE = events()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return lake_location(tmp_path, TABLE)


def base_of(location: str, *days: str) -> TableMetadata:
    """A table in a catalog of ours, with a snapshot a day."""
    metadata = None
    for day in days:
        staged = commit.stage(
            TABLE,
            location=location,
            base=metadata,
            add=[written_events(TABLE, location, day)],
            replace=None,
            summary={},
        )
        metadata = staged.metadata_location
    assert metadata
    return snapshots.read_metadata(metadata)


def touched(metadata: TableMetadata, base: TableMetadata | None) -> TableChange:
    """A change that writes a property, to the table or to a new one like it."""
    staging = Recording(uuid.uuid4())
    table = Table(("public", "events"), metadata, "", paths.file_io(metadata.location), staging)
    with table.transaction() as change:
        change.set_properties(owner="me")
    staged_change = staging.change(table, base)
    assert staged_change
    return staged_change


def followed(change: TableChange, parent: int | None) -> TableChange:
    """The change with a snapshot more, whose parent is the given one."""
    snapshot = change.metadata.snapshots[0].model_copy(update={"snapshot_id": 99, "parent_snapshot_id": parent})
    ref = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": 99})
    return replace(change, updates=(AddSnapshotUpdate(snapshot=snapshot), ref))


def test_a_snapshot_must_follow_the_current_one(location: str) -> None:
    base = base_of(location, "2024-03-05", "2024-04-05")
    change = touched(base, base)
    old, current = (snapshot.snapshot_id for snapshot in base.snapshots)
    assert base.current_snapshot_id == current
    follows(followed(change, current))
    for parent in (old, None, 5):
        with pytest.raises(ConflictError, match=r"snapshot 99 of public\.events does not follow"):
            follows(followed(change, parent))


def test_main_cannot_go_back(location: str) -> None:
    base = base_of(location, "2024-03-05", "2024-04-05")
    back = SetSnapshotRefUpdate.model_validate(
        {"ref-name": "main", "type": "branch", "snapshot-id": base.snapshots[0].snapshot_id}
    )
    with pytest.raises(ConflictError, match="does not follow"):
        follows(replace(touched(base, base), updates=(back,)))


def test_a_change_without_a_snapshot_is_marked(location: str) -> None:
    base = base_of(location, "2024-03-05")
    once, two = touched(base, base), touched(base, base)
    table = Table(("public", "events"), once.metadata, "", paths.file_io(location), Recording(uuid.uuid4()))
    assert once.is_in(table)
    assert not two.is_in(table), "another commit did the same"
    assert not once.is_in(None)


def test_a_new_table_keeps_its_field_ids_and_must_not_be_there(location: str) -> None:
    base = base_of(location, "2024-03-05")
    change = touched(base, None)
    assert change.requirements == (AssertCreate(),)
    made = json.loads(change.creating())["updates"]
    (added,) = (update for update in made if update["action"] == "add-schema")
    assert [field["id"] for field in added["schema"]["fields"]] == [1, 2, 3]
    assert added["last-column-id"] == 3
    assert json.loads(change.request())["updates"][:-1] == made


def test_a_catalog_that_renumbers_a_new_table_is_refused(location: str) -> None:
    base = base_of(location, "2024-03-05")
    change = touched(base, None)
    assert rebased(change, base).creation == ()
    renumbered = base.model_copy(update={"partition_specs": [base.spec().model_copy(update={"spec_id": 1})]})
    renumbered = renumbered.model_copy(update={"default_spec_id": 1})
    with pytest.raises(UsageError, match=r"numbers the columns or partitions of public\.events in its own way"):
        rebased(change, renumbered)


def test_names_with_dots_are_told_apart(location: str) -> None:
    change = touched(base_of(location, "2024-03-05"), None)
    assert replace(change, identifier=("a.b", "c")).name == '"a.b".c'


def test_only_what_every_catalog_numbers_alike_is_made_inside_a_transaction(location: str) -> None:
    """There are catalogs that number the fields of a new table from 1, whatever they are told."""
    base = base_of(location, "2024-03-05")
    assert not touched(base, None).fits_creation, "its partitions"
    plain = base.model_copy(update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC]})
    assert touched(plain, None).fits_creation
    first, *others = plain.schema().fields
    schema = Schema(first.model_copy(update={"field_id": 9}), *others)
    assert not touched(plain.model_copy(update={"schemas": [schema]}), None).fits_creation


def test_a_table_that_was_numbered_anew_gets_its_numbers_before_any_row(location: str) -> None:
    base = base_of(location, "2024-03-05")
    asked = json.loads(touched(base, None).numbering(base))
    schema, current = asked["updates"]
    assert (schema["schema"]["schema-id"], current) == (1, {"action": "set-current-schema", "schema-id": -1})
    assert [field["id"] for field in schema["schema"]["fields"]] == [1, 2, 3]
    assert asked["requirements"][0]["uuid"] == str(base.table_uuid)
    assert asked["requirements"][1]["snapshot-id"] == base.current_snapshot_id


def test_a_catalog_that_kept_other_numbers_is_found_out(location: str) -> None:
    base = base_of(location, "2024-03-05")
    change = touched(base, None)
    table = Table(("public", "events"), change.metadata, "", paths.file_io(location), Recording(uuid.uuid4()))
    assert kept(change, table) is table
    first, *others = base.schema().fields
    table.metadata = base.model_copy(update={"schemas": [Schema(first.model_copy(update={"field_id": 9}), *others)]})
    with pytest.raises(CorruptionError, match=r"has made public\.events with other numbers"):
        kept(change, table)


def test_a_snapshot_is_recognised_by_its_child(location: str) -> None:
    base = base_of(location, "2024-03-05")
    change = followed(touched(base, base), base.current_snapshot_id)
    change = replace(change, metadata=base.model_copy(update={"current_snapshot_id": 99}))
    child = base.snapshots[0].model_copy(update={"snapshot_id": 100, "parent_snapshot_id": 99})
    table = Table(("public", "events"), base, "", paths.file_io(location), Recording(uuid.uuid4()))
    assert not change.is_in(table)
    table.metadata = base.model_copy(update={"snapshots": [child]})
    assert change.is_in(table)


def told(location: str, base: TableMetadata, chain: list[tuple[int, int | None]], main: int | None) -> Trace:
    """What a table shows of a change from the base to snapshot 99, that has these snapshots and their parents."""
    change = followed(touched(base, base), None)
    new = base.model_copy(update={"current_snapshot_id": 99})
    shown = [
        base.snapshots[0].model_copy(update={"snapshot_id": number, "parent_snapshot_id": parent})
        for number, parent in chain
    ]
    refs = {} if main is None else {"main": base.refs["main"].model_copy(update={"snapshot_id": main})}
    now = base.model_copy(update={"snapshots": shown, "refs": refs, "current_snapshot_id": main})
    table = Table(("public", "events"), now, "", paths.file_io(location), Recording(uuid.uuid4()))
    return trace(replace(change, metadata=new), table)


def test_the_history_of_a_table_tells_whether_a_lost_commit_was_overtaken(location: str) -> None:
    base = base_of(location, "2024-01-01")
    start = base.current_snapshot_id
    assert start is not None
    assert told(location, base, [(start, None)], start) is Trace.STANDS
    assert told(location, base, [(start, None), (99, start)], 99) is Trace.HAS
    assert told(location, base, [(start, None), (99, start), (5, 99), (6, 5)], 6) is Trace.HAS
    assert told(location, base, [(start, None), (99, start)], start) is Trace.HAS, "and was set back since"
    assert told(location, base, [(5, 99)], 5) is Trace.HAS, "the newest alone is shown, and its parent is ours"
    assert told(location, base, [(start, None), (5, start), (6, 5)], 6) is Trace.PASSED
    assert told(location, base, [(5, start)], 5) is Trace.PASSED, "the newest alone is shown"
    assert told(location, base, [(6, 5)], 6) is Trace.UNCLEAR, "what was before it is not shown"
    assert told(location, base, [(start, None)], None) is Trace.UNCLEAR
    assert told(location, base, [(5, 6), (6, 5)], 6) is Trace.UNCLEAR, "nobody goes round in circles"
    assert trace(touched(base, base), None) is Trace.UNCLEAR
    other = base.model_copy(update={"table_uuid": uuid.uuid4()})
    replaced = Table(("public", "events"), other, "", paths.file_io(location), Recording(uuid.uuid4()))
    assert trace(touched(base, base), replaced) is Trace.UNCLEAR
