"""Drops versions of a named snapshot: first nobody can see them, then their files go."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from frostline import logs
from frostline.catalog import pointers, snapshot_versions
from frostline.catalog.connect import Connection, operational_errors
from frostline.catalog.pointers import Move
from frostline.catalog.snapshot_versions import Place, Version
from frostline.errors import ConflictError, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import publish, rest, warehouse
from frostline.model.names import Name
from frostline.pipeline import snapshot_destinations, snapshot_tidy
from frostline.pipeline.snapshot_destinations import BUILT_IN
from frostline.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What was dropped."""

    versions: tuple[int, ...]
    files: int
    """That were deleted; other versions may need some of what a dropped one had."""


def find(connection: Connection, name: str, version: int | None = None) -> Version:
    """A published version, the newest unless one is said; UsageError when it is not there."""
    there = snapshot_versions.versions(connection, name)
    if not there:
        raise UsageError(f"there is no snapshot {name!r}", hint="frostline snapshot list")
    for candidate in there if version is not None else there[-1:]:
        if version in (None, candidate.version):
            return candidate
    raise UsageError(f"snapshot {name!r} has no version {version}", hint=f"frostline snapshot list {name}")


def drop(
    connection: Connection, settings: Settings, name: str, *, version: int | None = None, keep: int | None = None
) -> Result:
    """Drop one version, or all but a number of the newest, or all of them."""
    hint = f"frostline snapshot list {name}; then run the command again"
    with (
        operational_errors(f"dropping snapshot {name!r}", hint=hint),
        snapshot_versions.exclusive(connection, name),
        warehouse.guarded(connection, settings.warehouse),
    ):
        snapshot_destinations.settle(connection, settings, name)
        there = _droppable(connection, name)
        going = (
            [candidate for candidate in there if version == candidate.version] if version else _older(there, keep or 0)
        )
        if version and not going:
            find(connection, name, version)  # says that it is not there
        if going:
            _drop(connection, settings, there, going, hint)
        return Result(tuple(dropped.version for dropped in going), snapshot_tidy.tidy(connection, name))


def _droppable(connection: Connection, name: str) -> list[Version]:
    """The versions that can be seen, and those of which nobody knows."""
    versions = snapshot_versions.versions(connection, name, include_unpublished=True)
    there = [version for version in versions if version.state in ("published", "unknown")]
    if not there:
        raise UsageError(f"there is no snapshot {name!r}", hint="frostline snapshot list")
    return there


def _older(there: Sequence[Version], keep: int) -> list[Version]:
    """All versions that are older than that many of the newest that can be seen."""
    seen = [version.version for version in there if version.state == "published"]
    if keep > len(seen):
        return []
    return [version for version in there if not keep or version.version < seen[-keep]]


def _drop(
    connection: Connection, settings: Settings, there: Sequence[Version], going: Sequence[Version], hint: str
) -> None:
    staying = [version for version in there if version not in going]
    for place in dict.fromkeys(version.place for version in going if version.place != BUILT_IN):
        gone, kept = ([version for version in those if version.place == place] for those in (going, staying))
        _drop_outside(connection, settings, place, gone, kept)
    with publish.transaction(connection, f"dropping snapshot {going[0].name!r}", hint=hint):
        _unpublish(connection, _built_in(there), _built_in(staying))
        snapshot_versions.drop(connection, [version.id for version in going])
        reached(Failpoint.SNAPSHOT_DROP_BEFORE_COMMIT)
    reached(Failpoint.SNAPSHOT_DROPPED)


def _drop_outside(
    connection: Connection, settings: Settings, place: Place, going: Sequence[Version], staying: Sequence[Version]
) -> None:
    """Take the tables that no version has any more out of a REST catalog. It may delete their files at once."""
    if staying and going[-1].version > staying[-1].version:
        raise UsageError(
            f"version {going[-1].version} is the newest on {place.uri}, which cannot go back to an older one",
            hint="drop older ones, or all of them",
        )
    owners = snapshot_versions.owners(connection)
    ours = [version for version in going if version.server in owners]  # the tables of others are not ours to drop
    names = _names(connection, ours) - _names(connection, staying)
    if names:
        if snapshot_destinations.place(settings) != place:
            where = f"{place.uri}" + (f", warehouse {place.warehouse}" if place.warehouse else "")
            hint = "set catalog_uri and catalog_warehouse to it"
            raise UsageError(f"snapshot {going[0].name!r} is on the catalog {where}", hint=hint)
        with rest.opened(settings) as catalog:
            rest.drop(catalog, list(_own_tables(catalog, going[0].name, sorted(names), owners)))


def _names(connection: Connection, versions: Sequence[Version]) -> set[Name]:
    return {table.name for version in versions for table in snapshot_versions.tables(connection, version)}


def _own_tables(
    catalog: rest.Catalog, snapshot: str, names: Sequence[Name], owners: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """Those that are in the catalog as this database left them. One that another database has made there since stays.

    ConflictError for a table that somebody has committed to: it may need our files.
    """
    for identifier in ((snapshot, name.schema, name.table) for name in names):
        table = rest.load(catalog, identifier)
        made_by = snapshot_destinations.maker(snapshot, table) if table else None
        if table is None or table.current_snapshot() is None:
            continue
        if made_by in owners:
            yield identifier
        elif made_by is None:
            raise ConflictError(
                f"{'.'.join(identifier)} in the catalog was committed to by somebody else",
                hint="drop that table from the catalog, then run the command again",
            )
        else:
            _log.warning("%s", logs.fields(table=".".join(identifier), warning="left: of another database's snapshot"))


def _built_in(versions: Sequence[Version]) -> list[Version]:
    return [version for version in versions if version.place == BUILT_IN]


def _unpublish(connection: Connection, there: Sequence[Version], staying: Sequence[Version]) -> None:
    """Let the catalog in Postgres point to the newest version that stays, if it points to another one now."""
    if not there or there[-1] in staying:
        return
    before = snapshot_versions.tables(connection, there[-1])
    pointers.drop_copies(connection, [table.pointer for table in before])
    if staying:
        after = snapshot_versions.tables(connection, staying[-1])
        moves = [Move(table.pointer, None, table.metadata_location) for table in after]
        publish.copies(connection, there[-1].name, moves)
