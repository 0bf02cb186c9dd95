"""Makes a warehouse this database's own: what `init` and `up` do before anything is written to it.

docs/design/warehouse.md says when a warehouse may be claimed. Several databases may claim one and the same.
"""

from contextlib import ExitStack

from frostline.catalog import jobs, lake_files, seams, tables, warehouses
from frostline.catalog.connect import Connection
from frostline.catalog.warehouses import Warehouse
from frostline.errors import UnavailableError, UsageError
from frostline.lake import paths, publish, store, warehouse
from frostline.lake.warehouse import Marker
from frostline.model.range import Range
from frostline.model.tables import Table

_BACK = "frostline undo TABLE, or frostline thaw TABLE --from VALUE, brings rows back into Postgres"


def claim(connection: Connection, place: str, *, anew: bool = False) -> bool:
    """Put the marker into the warehouse if it may be put there, and say whether that was new.

    Without `anew`, only into one that nothing of ours is missing from. With it, the warehouse that this database had is
    given up, which is refused while rows are in it.
    """
    location = paths.warehouse_location(place)
    if _is_ours(connection, location):
        return False
    with ExitStack() as held:
        if anew:
            for table in tables.tiered(connection):
                held.enter_context(jobs.exclusive(connection, table))
        held.enter_context(connection.transaction())
        warehouses.lock(connection)
        if anew:
            _give_up(connection)
        else:
            known = warehouses.find(connection)
            _refuse_another(connection, known, location)
            _refuse_absent(connection, known, location)
        claimed = warehouses.claim(connection, location)
        warehouse.put(Marker(location, claimed.identity))  # before the commit: one that no database knows does no harm
    return True


def is_established(connection: Connection) -> bool:
    """Whether this database has, or should have, a warehouse: then it may just be away."""
    return warehouses.find(connection) is not None or bool(warehouses.needed(connection))


def _is_ours(connection: Connection, location: str) -> bool:
    known = warehouses.find(connection)
    return (
        known is not None and known.location == location and warehouse.is_there(Marker(known.location, known.identity))
    )


def _refuse_another(connection: Connection, known: Warehouse | None, location: str) -> None:
    """The lake's metadata names its files in full, so a warehouse stays where it is for as long as it is needed."""
    needed = warehouses.needed(connection)
    elsewhere = next((file for file in needed if not file.startswith(f"{location}/")), None)
    if (known is None and elsewhere is None) or (known is not None and known.location == location):
        return
    where = f"is {known.location}" if known else f"has {elsewhere}"
    moving = f"frostline init --warehouse '{location.removeprefix('file://')}' --new-warehouse"
    if needed:
        otherwise = f"if its files are elsewhere now, link or mount them there. {_BACK}; then {moving}"
    else:
        otherwise = f"or, since nothing is archived: {moving}"
    raise UsageError(
        f"this database's warehouse {where}; it is not {location}", hint=f"set warehouse as it was; {otherwise}"
    )


def _refuse_absent(connection: Connection, known: Warehouse | None, location: str) -> None:
    """One of our files proves that it is ours. Without any, a warehouse that we had marked must have its marker."""
    needed = warehouses.needed(connection)
    with store.reachable(f"use the warehouse {location}"):
        if any(paths.size_bytes(file) is not None for file in needed) or (not needed and known is None):
            return
    if known is not None:
        warehouse.refuse_unless_there(Marker(location, known.identity))
    raise UnavailableError(
        f"warehouse {location} has no file of this database, not even {needed[0]}",
        hint="mount it, or set warehouse as it was; then run the command again",
    )


def _give_up(connection: Connection) -> None:
    """Forget the warehouse, with lakes that have no row any more; UsageError when something in it is needed."""
    tiered = tables.tiered(connection)
    cold = [str(table.name) for table in tiered if has_rows(connection, table)]
    if cold:
        raise UsageError(f"rows of {', '.join(cold)} are in the warehouse that there was", hint=_BACK)
    snapshots = warehouses.snapshots(connection)
    if snapshots:
        hint = f"frostline snapshot drop {snapshots[0]}"
        raise UsageError(f"snapshots are in the warehouse that there was: {', '.join(snapshots)}", hint=hint)
    for table in tiered:
        publish.begin_anew(connection, table)
    warehouses.forget(connection)


def has_rows(connection: Connection, table: Table) -> bool:
    """Whether the lake has rows that readers want: what lies at or above the frost line is hidden."""
    return bool(lake_files.within(connection, table, Range(None, seams.get(connection, table).frost_line)))
