"""The Iceberg side of a table that lives in the lake alone: its columns as Postgres has them, its metadata, its files.

Everything that a node has to know of the table is in its metadata file, so that nodes need no state of their own.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import DoubleType, FloatType, NestedField

from frostline.errors import UnavailableError, UsageError
from frostline.lake import lake_format, lake_history, paths, pg_types, schema, snapshots
from frostline.model.lake_tables import Check
from frostline.model.tables import Column, KeyBounds, LakeFile

PG_CHECKS = "frostline.pg-checks"
"""The table property with the CHECKs that the lake server holds, by name, in JSON."""
NAME_MAPPING = "schema.name-mapping.default"
"""The table property that says what columns are called in files that somebody wrote without Iceberg's field ids."""
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)\s*", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Layout:
    """How the files of a table are cut and sorted, as the user has said it: `day(ts)`, `bucket(16, id)`; `ts desc`."""

    partition: Sequence[str] = ()
    sort: Sequence[str] = ()
    key: Sequence[str] = ()
    """The columns by which a row is told from the others. Nothing makes sure of it."""


def new_metadata(
    columns: Sequence[Column], layout: Layout, location: str, owner: str, checks: Sequence[Check] = ()
) -> TableMetadata:
    """The metadata of an empty table. UsageError for a layout that it cannot have.

    Without a sort order of its own, its rows are sorted by the key.
    """
    fields = tuple(
        NestedField(column.field_id, column.name, schema.iceberg_type(column), required=column.not_null)
        for column in columns
    )
    lake_schema = Schema(*fields, identifier_field_ids=_identifiers(Schema(*fields), layout.key))
    spec, order = _spec(lake_schema, layout.partition), _order(lake_schema, layout.sort or layout.key)
    properties = {"owner": owner, pg_types.PG_COLUMNS: pg_types.written(columns)}
    if checks:
        properties[PG_CHECKS] = json.dumps({check.name: check.expression for check in checks})
    return schema.empty_metadata(lake_schema, spec, order, location, "merge-on-read", properties)


def _identifiers(lake_schema: Schema, key: Sequence[str]) -> list[int]:
    fields = [_field(lake_schema, name) for name in key]
    for field in fields:
        if isinstance(field.field_type, (FloatType, DoubleType)):
            raise UsageError(
                f"--key {field.name!r}: a {field.field_type} tells no row from another", hint="choose other columns"
            )
    return [field.field_id for field in fields]


def _spec(lake_schema: Schema, partition: Sequence[str]) -> PartitionSpec:
    fields = list[PartitionField]()
    for text in partition:
        transform, name = _transform(text)
        source = _field(lake_schema, name)
        if not transform.can_transform(source.field_type):
            raise UsageError(f"--partition {text!r}: {source.field_type} has no such transform", hint="choose another")
        if isinstance(source.field_type, (FloatType, DoubleType)):  # engines do not agree about NaN and -0
            raise UsageError(f"--partition {text!r}: no table is cut by a {source.field_type}", hint="choose another")
        called = name if isinstance(transform, IdentityTransform) else f"{name}_{str(transform).partition('[')[0]}"
        field_id = PARTITION_FIELD_ID_START + len(fields)
        fields.append(PartitionField(source.field_id, field_id, transform=transform, name=called))
    return PartitionSpec(*fields, spec_id=0)


def _transform(text: str) -> tuple[Transform[Any, Any], str]:
    call = _CALL.fullmatch(text)
    if call is None:
        return IdentityTransform(), text.strip()
    word, number, name = call.groups()
    try:
        return parse_transform(word if number is None else f"{word}[{number}]"), name
    except ValueError:
        raise UsageError(
            f"--partition {text!r} is no transform", hint="year, month, day, hour(COLUMN); bucket, truncate(N, COLUMN)"
        ) from None


def _order(lake_schema: Schema, sort: Sequence[str]) -> SortOrder:
    fields = list[SortField]()
    for text in sort:
        name, _, word = text.strip().partition(" ")
        if word.strip().lower() not in ("", "asc", "desc"):
            raise UsageError(f"--sort {text!r} is no order", hint="COLUMN, or COLUMN desc")
        downward = word.strip().lower() == "desc"
        direction = SortDirection.DESC if downward else SortDirection.ASC
        nulls = NullOrder.NULLS_FIRST if downward else NullOrder.NULLS_LAST
        fields.append(SortField(_field(lake_schema, name).field_id, IdentityTransform(), direction, nulls))
    return SortOrder(*fields, order_id=1) if fields else UNSORTED_SORT_ORDER


def _field(lake_schema: Schema, name: str) -> NestedField:
    try:
        return lake_schema.find_field(name)
    except ValueError:
        raise UsageError(f"there is no column {name!r}", hint="name one of --column") from None


def checks(metadata: TableMetadata) -> tuple[Check, ...]:
    """The CHECKs that the lake server holds."""
    known: Mapping[str, Any] = json.loads(metadata.properties.get(PG_CHECKS, "{}"))
    return tuple(Check(name, str(expression)) for name, expression in known.items())


@dataclass(frozen=True)
class State:
    """What a table consists of at one metadata file. It never changes."""

    location: str
    metadata: TableMetadata
    data: Mapping[str, DataFile]
    """Data files, by path."""
    deletes: Mapping[str, DataFile]
    """Files of position deletes, by path."""
    manifests: Sequence[ManifestFile]
    """All of the snapshot, the newest first."""
    printed: Sequence[str] | None = None
    """Its snapshots as they are in a metadata file, if that is known."""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """As Postgres has them."""
        return pg_types.columns(self.metadata)

    @cached_property
    def history(self) -> Sequence[str]:
        """The snapshots as they are printed in a metadata file."""
        return lake_history.printed(self.metadata.snapshots) if self.printed is None else self.printed

    @property
    def snapshot_id(self) -> int | None:
        """None for a table that has never had a row."""
        return self.metadata.current_snapshot_id


@lru_cache(maxsize=64)
def state(location: str) -> State:
    """What a table consists of; UnavailableError for one with files that we cannot read as they are meant."""
    known = _committed.pop(location, None)
    if known is not None:
        return known
    return _state(location, snapshots.read_metadata(location))


def snapshot_of(metadata: TableMetadata, as_of: int | datetime) -> int | None:
    """The snapshot with that id, or the one that was current at that time; None for one that is not there."""
    if isinstance(as_of, int):
        return as_of if metadata.snapshot_by_id(as_of) else None
    if as_of.tzinfo is None:
        raise UsageError(f"as_of {as_of} has no time zone", hint="say which: datetime(..., tzinfo=UTC)")
    until_ms = (as_of - _EPOCH) // timedelta(milliseconds=1)
    past = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= until_ms]
    return past[-1].snapshot_id if past and metadata.snapshot_by_id(past[-1].snapshot_id) else None


@lru_cache(maxsize=64)
def state_at(location: str, snapshot_id: int) -> State:
    """What it consisted of at one of the snapshots that its metadata has, with the columns that it has now."""
    metadata = snapshots.read_metadata(location)
    assert metadata.snapshot_by_id(snapshot_id) is not None
    return _state(location, metadata.model_copy(update={"current_snapshot_id": snapshot_id}))


def _state(location: str, metadata: TableMetadata) -> State:
    lake_format.require_read(metadata)
    if metadata.properties.get(NAME_MAPPING):
        raise UnavailableError(
            f"the table at {metadata.location} has files without field ids, which are not served",
            hint=f"rewrite the table's files with the engine that wrote it, and remove the property {NAME_MAPPING}",
        )
    snapshot, io = metadata.current_snapshot(), paths.file_io(location)
    data, deletes = dict[str, DataFile](), dict[str, DataFile]()
    manifests = snapshots.manifests(snapshot, io) if snapshot else []
    for manifest in manifests:
        _require_inside(manifest.manifest_path, metadata)
        for entry in entries(manifest):
            kinds = {DataFileContent.DATA: data, DataFileContent.POSITION_DELETES: deletes}
            file = entry.data_file
            file.spec_id = manifest.partition_spec_id
            if file.content not in kinds or file.file_format != "PARQUET":
                raise UnavailableError(
                    f"{file.file_path} is a file of {file.content.name} in {file.file_format}, which is not served",
                    hint="rewrite the table's files with the engine that wrote it",
                )
            _require_inside(file.file_path, metadata)
            kinds[file.content][file.file_path] = file
    return State(location, metadata, data, deletes, manifests)


def _require_inside(path: str, metadata: TableMetadata) -> None:
    """Refuse a file elsewhere: whoever may commit to a table could have our server read another one for them."""
    if not paths.is_inside(path, metadata.location.rstrip("/")):
        raise UnavailableError(
            f"{path} is not in the table's folder {metadata.location}, so it is not served",
            hint="write its rows into the table instead",
        )


_committed = dict[str, State]()
"""On its way into the cache of `state`."""


def remember(new: State) -> None:
    """Spare the reading of what this process has just written: `state` gives this."""
    _committed[new.location] = new
    state(new.location)


@lru_cache(maxsize=4096)
def entries(manifest: Any) -> list[ManifestEntry]:
    """The live entries of a manifest, which never changes. Manifests are equal when their paths are."""
    known = _listed.pop(manifest.manifest_path, None)
    return snapshots.entries(manifest, paths.file_io(manifest.manifest_path)) if known is None else known


_listed = dict[str, list[ManifestEntry]]()
"""On its way into the cache of `entries`."""


def remember_entries(manifest: ManifestFile, listed: list[ManifestEntry]) -> None:
    """The same for a manifest. The entries are as they would be read: with their snapshot and sequence numbers."""
    _listed[manifest.manifest_path] = listed
    entries(manifest)


def lake_file(file: DataFile, keys: Sequence[tuple[int, bool]]) -> LakeFile:
    """The file with its bounds of these columns: field id, and whether it is a number."""
    known = tuple(bound for field_id, is_number in keys if (bound := _bounds(file, field_id, is_number)) is not None)
    return LakeFile(file.file_path, file.record_count, file.file_size_in_bytes, 0, 0, known)


def _bounds(file: DataFile, field_id: int, is_number: bool) -> KeyBounds | None:  # noqa: FBT001
    lower, upper = ((held or {}).get(field_id) for held in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None:
        return None
    if is_number:
        return KeyBounds(
            field_id, int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)
        )
    return KeyBounds(field_id, lower, upper)
