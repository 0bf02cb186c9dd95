"""The metadata of a lake table after one more commit: what PyIceberg would make of it, without its copies."""

import json
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata

from frostline.lake import lake_history, lake_table
from frostline.lake.lake_table import Layout
from frostline.model.tables import Column
from frostline.model.types import Collation, PgType, encoding

BIGINT = PgType("bigint", "int8", builtin=True)
COLUMN = Column("id", 1, 1, BIGINT, encoding(BIGINT, Collation.NONE), Collation.NONE, not_null=False)


def empty(**properties: str) -> TableMetadataV2:
    made = lake_table.new_metadata((COLUMN,), Layout(), "file:///lake/t", "somebody")
    assert isinstance(made, TableMetadataV2)
    return made.model_copy(update={"properties": {**made.properties, **properties}})


def snapshot(metadata: TableMetadataV2, number: int) -> Snapshot:
    values: dict[str, Any] = {
        "snapshot-id": 1000 + number,
        "parent-snapshot-id": metadata.current_snapshot_id,
        "sequence-number": metadata.last_sequence_number + 1,
        "timestamp-ms": metadata.last_updated_ms + number,
        "manifest-list": f"file:///lake/t/metadata/snap-{number}.avro",
        "summary": Summary(Operation.APPEND, **{"added-records": "1", "note": 'a "quoted", word\\'}),
        "schema-id": metadata.current_schema_id,
    }
    return Snapshot.model_validate(values)


def by_pyiceberg(metadata: TableMetadata, location: str, new: Snapshot) -> TableMetadata:
    main = {"ref-name": "main", "type": "branch", "snapshot-id": new.snapshot_id}
    updates = (AddSnapshotUpdate(snapshot=new), SetSnapshotRefUpdate.model_validate(main))
    return update_table_metadata(metadata, updates, metadata_location=location)


@pytest.mark.parametrize("properties", [{}, {"write.metadata.previous-versions-max": "3"}], ids=["usual", "few"])
def test_metadata_grows_as_it_does_by_pyiceberg(properties: dict[str, str]) -> None:
    ours = theirs = empty(**properties)
    history = tuple[str, ...]()
    for number in range(1, 8):
        location, new = f"file:///lake/t/metadata/{number:05}.metadata.json", snapshot(ours, number)
        ours = lake_history.grown(ours, location, new)
        theirs = by_pyiceberg(theirs, location, new)
        history = (*history, *lake_history.printed([new]))
        assert ours == theirs
        text = lake_history.text(ours, history)
        assert json.loads(text) == json.loads(theirs.model_dump_json())
        assert TableMetadataUtil.parse_raw(text) == theirs


def test_what_somebody_has_said_about_the_branch_stays() -> None:
    kept = {"snapshot-id": 1, "type": "branch", "max-snapshot-age-ms": 5, "min-snapshots-to-keep": 2}
    begun = empty()
    begun = lake_history.grown(begun, "file:///lake/t/metadata/1.metadata.json", snapshot(begun, 1))
    begun = begun.model_copy(update={"refs": {"main": SnapshotRef.model_validate(kept), "old": begun.refs["main"]}})
    now = lake_history.grown(begun, "file:///lake/t/metadata/2.metadata.json", snapshot(begun, 2))
    assert now.refs["main"] == SnapshotRef.model_validate({**kept, "snapshot-id": 1002})
    assert now.refs["old"] == begun.refs["old"]
