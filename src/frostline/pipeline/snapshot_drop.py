"""Drops versions of a snapshot of many tables: first nobody can see them, then their files go."""

from collections.abc import Sequence
from dataclasses import dataclass

from frostline.catalog import snapshot_versions
from frostline.catalog.connect import Connection, gives_up
from frostline.catalog.snapshot_versions import PointerMove, Version
from frostline.errors import UsageError
from frostline.failpoints import Failpoint, reached
from frostline.pipeline import snapshot_targets, snapshot_tidy, turn
from frostline.settings import Settings


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
    for one in there if version is not None else there[-1:]:
        if version in (None, one.version):
            return one
    raise UsageError(f"snapshot {name!r} has no version {version}", hint=f"frostline snapshot list {name}")


def drop(
    connection: Connection, settings: Settings, name: str, *, version: int | None = None, keep: int | None = None
) -> Result:
    """Drop one version, or all but the newest so many, or all of them."""
    hint = f"frostline snapshot list {name}; then run the command again"
    with gives_up(f"dropping snapshot {name!r}", hint=hint), snapshot_versions.exclusive(connection, name):
        snapshot_targets.settle(connection, settings, name)
        there = _droppable(connection, name)
        going = [one for one in there if version == one.version] if version else there[: len(there) - (keep or 0)]
        if version and not going:
            find(connection, name, version)  # says that it is not there
        if going:
            _drop(connection, settings, there, going, hint)
        return Result(tuple(one.version for one in going), snapshot_tidy.tidy(connection, name))


def _droppable(connection: Connection, name: str) -> list[Version]:
    """The versions that can be seen, and those of which nobody knows."""
    found = snapshot_versions.versions(connection, name, every=True)
    there = [one for one in found if one.state in ("published", "unknown")]
    if not there:
        raise UsageError(f"there is no snapshot {name!r}", hint="frostline snapshot list")
    return there


def _drop(
    connection: Connection, settings: Settings, there: Sequence[Version], going: Sequence[Version], hint: str
) -> None:
    staying = [one for one in there if one not in going]
    for uri in {one.catalog_uri for one in going} - {None}:
        those = [one for one in going if one.catalog_uri == uri]
        names = {one.name for version in those for one in snapshot_versions.tables(connection, version)}
        snapshot_targets.drop(settings, those, staying, names)
    with turn.publishing(connection, f"dropping snapshot {going[0].name!r}", hint=hint):
        _unpublish(connection, _built_in(there), _built_in(staying))
        snapshot_versions.drop(connection, [one.id for one in going])
        reached(Failpoint.SNAPSHOT_DROP_BEFORE_COMMIT)
    reached(Failpoint.SNAPSHOT_DROPPED)


def _built_in(versions: Sequence[Version]) -> list[Version]:
    return [one for one in versions if one.catalog_uri is None]


def _unpublish(connection: Connection, there: Sequence[Version], staying: Sequence[Version]) -> None:
    """Let the catalog in Postgres point to the newest version that stays, if it points to another one now."""
    if not there or there[-1] in staying:
        return
    before = snapshot_versions.tables(connection, there[-1])
    snapshot_versions.drop_pointers(connection, [(one.namespace, one.lake_table) for one in before])
    if staying:
        after = snapshot_versions.tables(connection, staying[-1])
        moves = [PointerMove(one.namespace, one.lake_table, None, one.metadata_location) for one in after]
        snapshot_versions.move_pointers(connection, there[-1].name, moves)
