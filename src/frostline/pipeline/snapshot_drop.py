"""Drops versions of a named snapshot: first nobody can see them, then their files go, with those of runs that died."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from frostline import logs
from frostline.catalog import snapshot_versions
from frostline.catalog.connect import Connection, operational_errors
from frostline.catalog.pointers import Move
from frostline.catalog.snapshot_versions import Place, Version
from frostline.errors import ConflictError, FrostlineError, UnavailableError, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import paths, publish, reachable, rest, snapshots, store, warehouse
from frostline.model.names import Name
from frostline.pipeline import snapshot_destinations
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
        return Result(tuple(dropped.version for dropped in going), tidy(connection, name))


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
    before = [table.pointer for table in snapshot_versions.tables(connection, there[-1])]
    after = [table for version in staying[-1:] for table in snapshot_versions.tables(connection, version)]
    moves = [Move(table.pointer, None, table.metadata_location) for table in after]
    publish.copies_back(connection, there[-1].name, before, moves)


def tidy(connection: Connection, name: str) -> int:
    """Delete what dead runs and dropped versions of the snapshot left; says how many files. Can be repeated at will.

    The caller holds the lock of the name, and has seen that the warehouse is ours. Only folders that this database made
    are looked at, and no file goes that a version which is there has.
    """
    dead = snapshot_versions.dead(connection, name)
    if all(dead.values()):
        return 0
    deleted = 0
    with store.reachable(f"delete what dead runs of snapshot {name!r} left"):
        written = list(_written_by(connection, name, dead.keys()))
        needed = _needed(connection, name, written) if written else frozenset[str]()
        for _ in paths.delete_each(location for location in written if location not in needed):
            deleted += 1
            reached(Failpoint.SNAPSHOT_DELETED_ONE)
    snapshot_versions.set_tidied(connection, list(dead))
    _log.info("%s", logs.fields(stage="leftovers", snapshot=name, runs=len(dead), files=deleted))
    return deleted


@dataclass(frozen=True)
class Tidied:
    """What was done for all snapshots."""

    files: int
    """That were deleted."""
    errors: tuple[FrostlineError, ...]
    """One a snapshot that failed, which did not stop the others."""


def tidy_all(connection: Connection, settings: Settings) -> Tidied:
    """The same for every snapshot that nobody works on just now."""
    deleted = 0
    errors: list[FrostlineError] = []
    for name in snapshot_versions.untidied_names(connection):
        try:
            held = snapshot_versions.exclusive(connection, name)
            with held, warehouse.guarded(connection, settings.warehouse):
                deleted += tidy(connection, name)
        except ConflictError:
            _log.info("%s", logs.fields(stage="leftovers", snapshot=name, note="a run is going on"))
        except FrostlineError as error:
            _log.error("%s", logs.fields(stage="leftovers", snapshot=name, error=error.message))
            errors.append(error)
    return Tidied(deleted, tuple(errors))


def _written_by(connection: Connection, name: str, dead: Collection[int]) -> Iterator[str]:
    """The files of these runs in our own folders, whose names have one of our tokens."""
    tokens: dict[str, set[str]] = {}
    for token, place in snapshot_versions.folders(connection, name):
        tokens.setdefault(place, set()).add(token)
    for place, ours in tokens.items():
        if not _is_in_use(place):
            _log.warning("%s", logs.fields(stage="leftovers", snapshot=name, left=place, note="another warehouse"))
            continue
        for file in paths.below(paths.snapshot_root(place, name)):
            folder = file.location.rsplit("/", 3)[-3]
            if folder.rpartition("-")[2] in ours and paths.job_of(file.location) in dead:
                yield file.location
    for location in snapshot_versions.locations(connection, list(dead)):
        yield from (file.location for file in paths.stored(location) if paths.job_of(file.location) in dead)


def _is_in_use(place: str) -> bool:
    """Whether it is the warehouse that has our marker. One that this database had before may be somebody else's now."""
    marker = warehouse.in_use()
    return marker is None or marker.place == place


def _needed(connection: Connection, name: str, written: Collection[str]) -> frozenset[str]:
    """Everything that the versions which are there consist of, as far as it may be among these files.

    Copies in other folders are not looked at: another lineage of the database may have made them, and deleted them.
    """
    needed: set[str] = set()
    folders = {file.rsplit("/", 2)[0] for file in written}
    for location in snapshot_versions.needed(connection, name, folders):
        needed |= {location} | _of_version(location, written)
    return frozenset(needed)


def _of_version(location: str, written: Collection[str]) -> set[str]:
    """What a copy consists of. If somebody dropped it in a catalog outside, nobody knows: its whole folder stays."""
    try:
        return set(reachable.current(snapshots.metadata_now(location)))
    except UnavailableError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        folder = location.rpartition("/metadata/")[0]
        _log.warning(
            "%s", logs.fields(stage="leftovers", folder=folder, warning=f"{error.message}; nothing is deleted there")
        )
        return {file for file in written if file.startswith(f"{folder}/")}
