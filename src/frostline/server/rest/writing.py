"""What a token that may write may ask for: namespaces, and tables that live in the lake alone.

Every commit is one transaction of Postgres, in which all pointers are where they were when its metadata was written.
Who finds one elsewhere begins anew, and learns from the requirements whether that is right:
docs/design/catalog-server.md.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate
from starlette.responses import Response

from frostline import logs
from frostline.catalog import lake_tables, namespaces
from frostline.catalog.connect import first_line
from frostline.catalog.lake_tables import LakeTableExists
from frostline.catalog.namespaces import Entry
from frostline.catalog.pointers import LakeMove, Pointer
from frostline.lake import lake_commit, lake_folder, lake_publish, paths, publish, store, warehouse
from frostline.lake.lake_folder import NotItsOwner
from frostline.lake.lake_publish import Outcome
from frostline.server.rest import answers, staging
from frostline.server.rest.answers import Call, Refused, answer, nothing
from frostline.server.rest.reading import require_namespace, shown_table
from frostline.server.rest.service import readable
from frostline.server.rest.staging import Change, Changes, Identifier, Staged

_log = logging.getLogger(__name__)
_TRIES = 10
_MOST_TABLES = 1000
_HINT = "load the tables to see whether it was done"
_Property = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")]
_Key = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class _NewNamespace(BaseModel):
    namespace: list[str]
    properties: dict[_Key, _Property] = {}


class _NewProperties(BaseModel):
    removals: list[str] = []
    updates: dict[_Key, _Property] = {}


class _NewTable(BaseModel):
    name: str
    location: str | None = None
    table_schema: Schema = Field(alias="schema")
    partition_spec: PartitionSpec | None = Field(alias="partition-spec", default=None)
    write_order: SortOrder | None = Field(alias="write-order", default=None)
    stage_create: bool = Field(alias="stage-create", default=False)
    properties: dict[str, str] | None = None


class _Registration(BaseModel):
    name: str
    metadata_location: str = Field(alias="metadata-location")
    overwrite: bool = False


class _Rename(BaseModel):
    source: Identifier
    destination: Identifier


def create_namespace(call: Call) -> Response:
    """Make a namespace; the levels above it need not be there."""
    wanted = call.read(_NewNamespace)
    namespace = answers.new_levels(wanted.namespace)
    with call.connection.transaction():
        namespaces.lock(call.connection)
        _refuse_snapshots(call, namespace)
        if namespaces.exists(call.connection, namespace):
            raise answers.exists_already(f"namespace {namespace}")
        namespaces.put(call.connection, namespace, wanted.properties)
    return answer({"namespace": wanted.namespace, "properties": wanted.properties})


def _refuse_snapshots(call: Call, namespace: str) -> None:
    if namespaces.is_of_a_snapshot(call.connection, namespace):
        raise answers.forbidden(f"namespace {namespace} belongs to the named snapshot {namespace.partition('.')[0]}")


def drop_namespace(call: Call) -> Response:
    """Forget a namespace that has nothing in it."""
    with call.connection.transaction():
        namespaces.lock(call.connection)
        require_namespace(call, call.namespace)
        namespaces.drop(call.connection, call.namespace)
        if namespaces.exists(call.connection, call.namespace):
            raise Refused(409, "NamespaceNotEmptyException", f"namespace {call.namespace} is not empty")
    return nothing()


def update_properties(call: Call) -> Response:
    """Set and remove properties of a namespace."""
    wanted = call.read(_NewProperties)
    both = sorted(set(wanted.removals) & wanted.updates.keys())
    if both:
        raise Refused(422, "UnprocessableEntityException", f"{', '.join(both)}: to be set and to be removed")
    with call.connection.transaction():
        namespaces.lock(call.connection)
        require_namespace(call, call.namespace)
        known = namespaces.properties(call.connection, call.namespace)
        namespaces.remove_properties(call.connection, call.namespace, wanted.removals)
        namespaces.put(call.connection, call.namespace, wanted.updates)
    removed = [key for key in wanted.removals if key in known]
    missing = [key for key in wanted.removals if key not in known]
    return answer({"updated": list(wanted.updates), "removed": removed, "missing": missing})


def create_table(call: Call) -> Response:
    """Make an empty lake table; or only say what it would be, for a client that commits it with its first rows."""
    wanted = call.read(_NewTable)
    pointer = answers.pointer_of(call.levels, wanted.name)
    _require_room(call, pointer)
    place = (wanted.location or paths.new_lake_table(call.service.settings.warehouse, *pointer)).rstrip("/")
    try:
        table = new_table_metadata(
            wanted.table_schema,
            wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            wanted.write_order or UNSORTED_SORT_ORDER,
            place,
            dict(wanted.properties or {}),
        )
    except answers.SENSELESS as error:
        raise answers.bad_request(f"{'.'.join(pointer)} cannot be made so: {first_line(error)}") from None
    staging.check(call, pointer, table, None)
    with warehouse.guarded(call.connection, call.service.settings.warehouse):
        if wanted.stage_create:
            warehouse.prepare(f"{place}/metadata/-")  # DuckDB does not make folders
            options = json.dumps(call.service.store_options()).encode()
            return answer(b'{"metadata": %b, "config": %b}' % (table.model_dump_json().encode(), options))
        (staged,) = _published(call, [pointer], lambda: [staging.write(pointer, table, None)])
    return _shown(call, staged)


def _shown(call: Call, staged: Staged) -> Response:
    entry = Entry(staged.location, "lake", None, lake_table_id=None, is_readable=True, is_writable=True, is_owned=True)
    return shown_table(call, entry, staged.content)


def _require_room(call: Call, pointer: Pointer) -> None:
    """Refuse a name that is taken, kept, or in a namespace that is not there or not for others."""
    _refuse_snapshots(call, pointer.namespace)
    require_namespace(call, pointer.namespace)
    owner = namespaces.owner_of_name(call.connection, pointer)
    if owner is not None:
        raise answers.forbidden(f"{'.'.join(pointer)} is the name of the lake of {owner}")
    if namespaces.table(call.connection, pointer, call.caller.role_name) is not None:
        raise answers.exists_already(f"table {'.'.join(pointer)}")


def register_table(call: Call) -> Response:
    """Make metadata that is in the warehouse a lake table. A lake table that was dropped comes back so."""
    wanted = call.read(_Registration)
    pointer, location = answers.pointer_of(call.levels, wanted.name), wanted.metadata_location
    if wanted.overwrite:
        raise answers.unsupported("a table is not overwritten by a registration: drop it first")
    folder, _, name = location.rpartition("/metadata/")
    staging.check_folder(call, pointer, folder)
    if "/" in name or not name.endswith(".metadata.json"):
        raise answers.bad_request(f"{location} is not the name of a metadata file in a table's folder")
    try:
        with store.reachable(f"read {location}"):
            content = call.service.metadata(call.connection, location)
    except Exception as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise answers.bad_request(f"there is no file {location}") from None
        raise
    table = staging.parsed(content)
    if table.location.rstrip("/") != folder:
        raise answers.bad_request(f"{location} says that its table is at {table.location}")
    if location not in {known.metadata_location for known in lake_tables.dropped(call.connection)}:
        staging.check_types(pointer, table, None)
    staged = Staged(pointer, table, content, location, None)
    with warehouse.guarded(call.connection, call.service.settings.warehouse):
        _published(call, [pointer], lambda: [staged], is_ours=False)
    return _shown(call, staged)


def drop_table(call: Call) -> Response:
    """Take a lake table out of the catalog. Its files stay until somebody purges them."""
    if call.query.get("purgeRequested", "false").lower() != "false":
        raise answers.unsupported(
            "files are not deleted through the catalog: somebody may still read them; drop the table without purge"
        )
    with publish.transaction(call.connection, f"dropping {'.'.join(call.pointer)}", hint=_HINT):
        _own(call, call.pointer)
        lake_tables.drop(call.connection, call.pointer)
    _log.info("%s", logs.fields(stage="rest drop", table=".".join(call.pointer), role=call.caller.role_name))
    return nothing()


def _own(call: Call, pointer: Pointer) -> Entry:
    """A lake table that the caller may drop and rename."""
    entry = readable(call.connection, call.caller, pointer)
    if entry is None:
        raise answers.no_table(pointer)
    staging.require_lake_table(pointer, entry)
    staging.require_owner(call, pointer, entry, "drop or rename it")
    return entry


def rename_table(call: Call) -> Response:
    """Give a lake table another name. Its files stay where they are."""
    wanted = call.read(_Rename)
    old, new = wanted.source.pointer, wanted.destination.pointer
    with publish.transaction(call.connection, f"renaming {'.'.join(old)}", hint=_HINT):
        namespaces.lock(call.connection)
        _own(call, old)
        _require_room(call, new)
        lake_tables.rename(call.connection, old, new)
    return nothing()


def commit_table(call: Call) -> Response:
    """Commit to one table."""
    change = call.read(Change)
    if change.identifier is not None and change.identifier.pointer != call.pointer:
        raise answers.bad_request("the table in the body is not the one in the path")
    (staged,) = _commit(call, {call.pointer: change})
    location = json.dumps(staged.location).encode()
    return answer(b'{"metadata-location": %b, "metadata": %b}' % (location, staged.content))


def commit_transaction(call: Call) -> Response:
    """Commit to many tables, all or none."""
    changes = call.read(Changes).table_changes
    if len(changes) > _MOST_TABLES:
        raise answers.bad_request(f"{len(changes)} tables are too many for one transaction: {_MOST_TABLES} are not")
    wanted = {change.identifier.pointer: change for change in changes if change.identifier is not None}
    if len(wanted) != len(changes):
        raise answers.bad_request("each change of a transaction names a table, and none is named twice")
    _commit(call, wanted)
    return nothing()


def _commit(call: Call, changes: dict[Pointer, Change]) -> Sequence[Staged]:
    """Stage all and publish all, again if somebody else was faster: the requirements say whether that is right."""

    def stage() -> Sequence[Staged]:
        staged = list[Staged]()
        try:
            for pointer, change in changes.items():
                if any(isinstance(each, AssertCreate) for each in change.requirements):
                    _require_namespace_for_new(call, pointer)
                staged.append(staging.stage(call, pointer, change))
        except BaseException:
            lake_commit.discard([each.location for each in staged if each.changes])
            raise
        return staged

    with warehouse.guarded(call.connection, call.service.settings.warehouse):
        return _published(call, list(changes), stage)


def _require_namespace_for_new(call: Call, pointer: Pointer) -> None:
    _refuse_snapshots(call, pointer.namespace)
    require_namespace(call, pointer.namespace)


def _published(
    call: Call, pointers: Sequence[Pointer], stage: Callable[[], Sequence[Staged]], *, is_ours: bool = True
) -> Sequence[Staged]:
    """All pointers move, or none. Files of a commit that is known to have failed are deleted if they are ours."""
    names = ", ".join(".".join(pointer) for pointer in pointers)
    outcome, done = lake_publish.commit(
        lambda: _change(call, stage(), is_ours=is_ours),
        partial(publish.transaction, call.connection, f"committing to {names}", hint=_HINT),
        reconnects=False,
        attempts=_TRIES,
    )
    if done is None or outcome is not Outcome.DONE:
        raise Refused(409, "CommitFailedException", f"others keep committing to {names}; nothing was changed")
    for each in done:
        _tell(call, each)
    return done


def _change(call: Call, staged: Sequence[Staged], *, is_ours: bool) -> tuple[lake_publish.Change, Sequence[Staged]]:
    moves = [
        LakeMove(each.entry.lake_table_id, each.entry.metadata_location, each.location)
        for each in staged
        if each.entry is not None and each.entry.lake_table_id is not None
    ]
    written = [each.location for each in staged if each.changes and is_ours]
    return lake_publish.Change(moves, written, claim=lambda _: _add_new(call, staged)), staged


def _add_new(call: Call, staged: Sequence[Staged]) -> bool:
    new = [each for each in staged if each.entry is None]
    if new:
        namespaces.lock(call.connection)
    for each in new:
        _add(call, each)
    return True


def _tell(call: Call, staged: Staged) -> None:
    call.service.shelf.put(staged.location, staged.content)
    table, role, snapshot = ".".join(staged.pointer), call.caller.role_name, staged.table.current_snapshot_id
    _log.info("%s", logs.fields(stage="rest commit", table=table, role=role, snapshot=snapshot))


def _add(call: Call, staged: Staged) -> None:
    """Inside the transaction, with the namespaces' lock: a table that nobody else has, in a folder of its own."""
    pointer, folder, uuid = staged.pointer, staged.table.location, str(staged.table.table_uuid)
    _require_room(call, pointer)
    try:
        role = call.caller.role_name
        server = lake_folder.take(call.connection, pointer, folder, uuid, role)
        lake_tables.create(call.connection, pointer, uuid, folder, staged.location, role, server)
    except NotItsOwner as error:
        raise answers.forbidden(error.message) from None
    except LakeTableExists:
        raise answers.exists_already(f"table {'.'.join(pointer)}, or another one of its uuid,") from None
