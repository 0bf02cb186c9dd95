"""Adopt a lake whose catalog is lost: a table is managed again from the lake's metadata and files alone.

docs/design/guards.md says what comes back, and what cannot. Objects that are lost while the catalog is there are made
again by `relation.adoption`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pyiceberg.table.metadata import TableMetadata

from frostline import failpoints, sqlfiles
from frostline.catalog import facts, jobs, lake_files, tables
from frostline.catalog.connect import Connection, only_value
from frostline.catalog.jobs import State
from frostline.errors import ConflictError, UsageError
from frostline.failpoints import Failpoint
from frostline.lake import checksums, commit, damage, paths, publish, snapshots, store, warehouse
from frostline.lake import schema as lake_schema
from frostline.lake.warehouse import Marker
from frostline.model import lake_grid
from frostline.model.names import Name, quoted
from frostline.model.partitions import bounds
from frostline.model.range import Range
from frostline.model.registration import HeapFacts
from frostline.model.tables import Checksum, Fingerprint, RecordedFile, Table
from frostline.model.tiers import to_text
from frostline.relation import bound, heap, names, registration
from frostline.relation.registration import Origin
from frostline.settings import Settings
from frostline.tiers.proof import fingerprint

_statement = sqlfiles.statements(__name__, "adopt")
_VERSION = re.compile(r"(\d+)-[0-9a-f-]{36}\.metadata\.json")
_FOLDER = re.compile(r".*_(\d+)-([0-9a-f]{8})")
_ALWAYS = (
    "cold rows that were changed and not folded are known as far as the heap has them: rows that were deleted are back",
    "the policy is what this command was told, and there is no retention line: older rows can be inserted again",
    "jobs, pins, named snapshots and older lake states are forgotten; frostline sweep --take-over frees their files",
    "nobody knows any more which bytes the files should have: each was read whole, and its rows were counted",
)
"""What no lake tells, whatever its age."""
_UNTYPED = "this lake is of an earlier version and does not say which Postgres types its columns had"


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    registration: registration.Request
    location: str
    """A metadata file of the lake, or its folder: then the newest one in it."""
    heap_is_newer: bool = False
    """Rows of the heap in the lake's range count, and not those that the lake has of the same keys."""
    take_over: bool = False
    """The database that the lake belonged to is gone."""
    accept_lost_changes: bool = False
    """Go on with metadata that is not the newest."""


@dataclass(frozen=True)
class Result:
    """What was adopted, or would be."""

    table: Table
    location: str
    line: int
    files: int
    rows: int
    heap_rows: int
    """Of the heap, below the frost line: they count instead of the lake's."""
    unknown: tuple[str, ...]
    """What cannot be known, for people."""


def run(connection: Connection, settings: Settings, request: Request, *, dry_run: bool = False) -> Result:
    """Manage the table again with this lake, all in one transaction. Reads every file of the lake before.

    ACCESS EXCLUSIVE on the table for as long as its rows below the frost line are marked, after a wait of at most 5 s.
    An error leaves everything as it was, but for the marker of a database that is taken over.
    """
    name = request.registration.name
    if tables.find(connection, name) is not None:
        raise UsageError(f"{name} is managed already", hint=f"what is gone of it: frostline table adopt {name}")
    with warehouse.guarded(connection, settings.warehouse) as marker:
        location = _newest(request)
        metadata = snapshots.metadata_now(location)
        owner = _owner(metadata, marker, request)
        adoption = Adoption(connection, settings, request, location, metadata)
        planned = adoption.look()
        if not dry_run:
            adoption.publish(planned, Marker(marker.place, owner) if owner else None)
    return planned


def _newest(request: Request) -> str:
    """The metadata file that was meant; UsageError when others may be newer."""
    given = request.location
    given = f"file://{given}" if given.startswith("/") else given.rstrip("/")
    folder, _, file = given.rpartition("/metadata/")
    with store.reachable(f"look for metadata in {folder or given}"):
        held = paths.names_in(f"{folder or given}/metadata")
    numbers = {name: int(match[1]) for name in held if (match := _VERSION.fullmatch(name))}
    if folder and file not in numbers:
        raise UsageError(f"there is no metadata file {given}", hint=f"name the lake's folder: {folder}")
    if not numbers:
        hint = "name the folder of the table: WAREHOUSE/SCHEMA/TABLE_NUMBER-TOKEN"
        raise UsageError(f"there is no lake in {given}", hint=hint)
    newest = sorted(name for name in numbers if numbers[name] == max(numbers.values()))
    if not folder and len(newest) > 1:
        hint = f"name one of them, most likely the one that was written last: {given}/metadata/{newest[-1]}"
        raise UsageError(f"{given} has {len(newest)} newest metadata files: {', '.join(newest)}", hint=hint)
    if folder and numbers[file] < max(numbers.values()) and not request.accept_lost_changes:
        raise UsageError(
            f"{file} is not the newest metadata of this lake: rows that were archived or folded since would be lost",
            hint=f"--from-lake {folder}/metadata/{newest[-1]}; or, if that was never published: --accept-lost-changes",
        )
    return given if folder else f"{given}/metadata/{newest[0]}"


def _owner(metadata: TableMetadata, ours: Marker, request: Request) -> str | None:
    """The identity of the other database that the lake belongs to, if any does; UsageError unless it is taken over."""
    named = metadata.properties.get(commit.WAREHOUSE_IDENTITY)
    if named == ours.identity:
        return None
    with store.reachable(f"look for the markers in {ours.folder}"):
        others = sorted(paths.names_in(ours.folder) - {ours.name})
    claimed = [f"{named}.json"] if f"{named}.json" in others else [] if named else others
    if claimed and not request.take_over:
        whose = "belongs to" if named else "does not say whose it is, and the warehouse has the marker of"
        raise UsageError(
            f"the lake {metadata.location} {whose} another database, {claimed[0].removesuffix('.json')}",
            hint="if that database is gone for good: --take-over. While it is there, it deletes files of this lake",
        )
    return named if claimed and named else None


class Adoption:
    """One adoption: first everything is looked at, and then it is done."""

    def __init__(
        self, connection: Connection, settings: Settings, request: Request, location: str, metadata: TableMetadata
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.request = request
        self.location = location
        self.metadata = metadata
        self.files: list[RecordedFile] = []
        self.name = request.registration.name

    def look(self) -> Result:
        """Compare columns, read all files, and find the frost line. Changes nothing."""
        heap_facts = self._heap()
        asked = replace(self.request.registration, origin=self._origin(heap_facts))
        table = registration.planned(self.connection, asked)
        self._refuse_other_folder(table)
        self._refuse_other_types(table)
        self.files = [self._examined(table, file) for file in self._data_files(table)]
        line = _line(table, heap_facts, self.files)
        below = self._heap_rows(table, line)
        rows = sum(file.fingerprint.rows for file in self.files)
        unknown = _ALWAYS if commit.COLUMNS in self.metadata.properties else (*_ALWAYS, _UNTYPED)
        return Result(table, self.location, line, len(self.files), rows, below, unknown)

    def _heap(self) -> HeapFacts:
        """The user's table; UsageError when it has other columns than the lake."""
        if facts.relation(self.connection, self.name) is None and facts.exists(self.connection, self.name.heap):
            hint = f"give it its name back: alter table {self.name.heap} rename to {quoted(self.name.table)}"
            raise UsageError(f"{self.name} is not there, but its heap {self.name.heap} is", hint=hint)
        heap_facts = facts.read(self.connection, self.name)
        ours, theirs = ([column.name for column in heap_facts.columns], [f.name for f in self.metadata.schema().fields])
        for column in ours:
            if column not in theirs:
                hint = "keep its values in another table, drop the column, adopt, add it again, and put the values back"
                raise UsageError(f"column {quoted(column)} of {self.name} is not in the lake", hint=hint)
        for field in self.metadata.schema().fields:
            if field.name not in ours:
                raise UsageError(
                    f"the lake has a column {quoted(field.name)}, of {field.field_type}, that {self.name} has not",
                    hint="create the table with the columns that it had",
                )
        return heap_facts

    def _origin(self, heap_facts: HeapFacts) -> Origin:
        """What the lake says about its table: number, token, tier key, fields."""
        folder = _FOLDER.fullmatch(self.metadata.location.rpartition("/")[2])
        spec = self.metadata.spec().fields
        if folder is None or len(spec) != 1:
            hint = "only a lake that Frostline has made can be adopted"
            raise UsageError(f"{self.metadata.location} is not the folder of a managed table", hint=hint)
        fields = {field.name: field.field_id for field in self.metadata.schema().fields}
        tier, tier_key = heap_facts.tier_column, self.metadata.schema().find_column_name(spec[0].source_id)
        if tier is None or tier.name != tier_key:
            hint = f"create it with: partition by range ({quoted(tier_key or '')})"
            raise UsageError(f"the lake is partitioned by {tier_key}, and {self.name} is not", hint=hint)
        known: dict[str, str] = json.loads(self.metadata.properties.get(commit.MISSING, "{}"))
        missing = {name: known[str(field_id)] for name, field_id in fields.items() if str(field_id) in known}
        return Origin(int(folder[1]), folder[2], str(cast(object, spec[0].transform)), fields, missing)

    def _refuse_other_folder(self, table: Table) -> None:
        meant = paths.table_location(self.settings.warehouse, table)
        if self.metadata.location != meant:
            raise UsageError(
                f"the lake is in {self.metadata.location}, and that of {table.name} would be in {meant}",
                hint="call schema and table as they were, and set warehouse as it was",
            )
        if tables.is_taken(self.connection, table.id):
            raise UsageError(
                f"another managed table has number {table.id}, which the lake's folder has in its name",
                hint="adopt lakes before you add other tables; frostline table list shows the numbers",
            )

    def _refuse_other_types(self, table: Table) -> None:
        known: dict[str, str] = json.loads(self.metadata.properties.get(commit.COLUMNS, "{}"))
        for column in table.columns:
            field = self.metadata.schema().find_field(column.field_id)
            was, lake_type = known.get(str(column.field_id)), lake_schema.iceberg_type(column)
            if field.field_type != lake_type or was not in (None, column.pg_type.formatted):
                meant = f"{was} ({field.field_type} in the lake)" if was else f"{field.field_type} in the lake"
                raise UsageError(
                    f"column {quoted(column.name)} of {table.name} is {column.pg_type.formatted}, and was {meant}",
                    hint="create the table with the types that it had",
                )
        key = self.metadata.properties.get(commit.KEY)
        if key is not None and json.loads(key) != [table.column(column).field_id for column in table.key]:
            raise UsageError(
                f"the primary key of {table.name} is another one", hint="create the table with the key that it had"
            )

    def _data_files(self, table: Table) -> Iterator[RecordedFile]:
        """The files of the current snapshot as the manifests describe them, without fingerprints."""
        tier, io = table.column(table.tier_key).field_id, paths.file_io(self.location)
        for file in snapshots.data_files(self.metadata.current_snapshot(), io):
            lower, upper = snapshots.tier_range(file, tier)
            counted = Fingerprint(file.record_count, 0)
            yield RecordedFile(file.file_path, file.file_size_in_bytes, lower, upper, counted)

    def _examined(self, table: Table, file: RecordedFile) -> RecordedFile:
        """The file as it is to be recorded; CorruptionError when it is not what the manifest says."""
        with store.reachable(f"read {file.path}"):
            size = paths.size_bytes(file.path)
        if size is None:
            raise damage.gone(file.path, table.name)
        if size != file.size_bytes:
            raise damage.wrong_size(file.path, size, file.size_bytes, table.name)
        with damage.parsing(f"file {file.path}", table.name):
            seal = fingerprint.sealed(file.path, table)
            inside, _ = fingerprint.split(file.path, table, frozenset(), within=file.range)
        if seal.fingerprint.rows != file.fingerprint.rows or inside != seal.fingerprint:
            raise damage.damaged(f"file {file.path}", "it does not hold the rows that its manifest says", table.name)
        return replace(file, fingerprint=seal.fingerprint, sha256=seal.sha256)

    def _heap_rows(self, table: Table, line: int) -> int:
        """How many rows of the heap lie below the frost line; UsageError when nobody has said that they count."""
        rows = self._below(table, self.name, line)
        if rows and not self.request.heap_is_newer:
            text = to_text(table.tier_kind, line)
            raise UsageError(
                f"{self.name} has {rows} rows before {text}, where the lake has rows: nobody knows which are newer",
                hint="if the heap is the one that was there last, and not from an older backup: --heap-is-newer; "
                "else delete them from it first",
            )
        return rows

    def publish(self, planned: Result, other: Marker | None) -> None:
        """Register the table, and show the lake, in one transaction. The other database's marker goes before.

        So a database that is not gone after all refuses to write or delete from then on.
        """
        table = planned.table
        self._skip_numbers()
        failpoints.reached(Failpoint.ADOPT_BEFORE_START)
        staged = commit.stage_takeover(table, self.location)
        failpoints.reached(Failpoint.ADOPT_STAGED)
        if other is not None:
            warehouse.remove(other)
        failpoints.reached(Failpoint.ADOPT_TOOK_OVER)
        hint = f"frostline table list shows whether {self.name} is managed; if not, run the command again"
        with publish.transaction(self.connection, f"adopting {self.name}", hint=hint):
            asked = replace(self.request.registration, origin=Origin.of(table))
            if registration.add(self.connection, asked).table != table:
                raise ConflictError(f"{self.name} was altered meanwhile", hint="run the command again")
            if self._below(table, table.heap, planned.line) != planned.heap_rows:
                raise ConflictError(f"somebody writes to {self.name}", hint="run the command again")
            publish.first(self.connection, table, staged, planned.line)
            self._record(table, planned)
            tables.insert_dropped(self.connection, table, self._dropped())
            if planned.line > table.tier_kind.lowest:
                bound.restore(self.connection, table)
                self._mark(table, planned.line)
            failpoints.reached(Failpoint.ADOPT_BEFORE_COMMIT)
        failpoints.reached(Failpoint.ADOPT_PUBLISHED)

    def _below(self, table: Table, target: Name, line: int) -> int:
        condition = names.within(table, None, line)
        statement = _statement("rows_below").format(heap=names.identifier(target), condition=condition)
        return only_value(self.connection.execute(statement))

    def _skip_numbers(self) -> None:
        """Files are named by their jobs: no job of this catalog may get a number that one of the lost catalog had.

        What a failed job leaves is deleted by its number, and would be the lake.
        """
        stored = paths.stored(self.metadata.location)
        with store.reachable(f"look for the files in {self.metadata.location}"):
            last = max((number for file in stored if (number := paths.job_of(file.location))), default=0)
        self.connection.execute(_statement("skip_jobs"), {"last": last})

    def _record(self, table: Table, planned: Result) -> None:
        job_id = jobs.start(self.connection, table, "adopt", None, planned.line)
        lake_files.replace(self.connection, table, job_id, [], self.files)
        lake_files.record_checksums(self.connection, table, self._metadata_checksums())
        jobs.advance(self.connection, job_id, State.PUBLISHED, rows=planned.rows)
        jobs.describe(self.connection, job_id, f"{planned.files} files of {self.location}")

    def _dropped(self) -> dict[int, tuple[str, str]]:
        """The fields that the lake had before, by id: files that nobody has rewritten since have values in them."""
        last = self.metadata.last_column_id
        fields = {field.field_id: field for schema in self.metadata.schemas for field in schema.fields}
        had = {last: (f"field {last}", "unknown")}
        had |= {number: (field.name, str(field.field_type)) for number, field in fields.items()}
        present = {field.field_id for field in self.metadata.schema().fields}
        return {number: described for number, described in had.items() if number not in present}

    def _metadata_checksums(self) -> dict[str, Checksum]:
        """Of the manifests and their list as they are now: they are compared from now on."""
        snapshot = self.metadata.current_snapshot()
        if snapshot is None:
            return {}
        held = snapshots.manifests(snapshot, paths.file_io(self.location))
        return checksums.of_metadata([snapshot.manifest_list, *(manifest.manifest_path for manifest in held)])

    def _mark(self, table: Table, line: int) -> None:
        """What the heap has below the frost line is newer than the lake's, or is not in the lake."""
        for partition in heap.partitions(self.connection, table, sizes=False):
            if partition.begins_below(line):
                heap.mark_all(self.connection, table, names.identifier(partition.name))


def _line(table: Table, heap_facts: HeapFacts, files: Sequence[RecordedFile]) -> int:
    """The frost line: above all rows of the lake, and where a partition of the heap or of the lake ends."""
    if not files:
        return table.tier_kind.lowest
    last = max(file.upper for file in files)
    ranges = [
        Range(*bounds(table.tier_kind, partition.bound))
        for partition in heap_facts.partitions
        if not partition.is_default
    ]
    for covering in ranges:
        if last in covering and covering.upper is not None:
            return covering.upper
    after = [some.lower for some in ranges if some.lower is not None and some.lower > last]
    return min(*after, lake_grid.cell_end(*table.lake_grid, last), table.tier_kind.highest)
