"""Checks of lake tables: can each be read, does Postgres know it, may strangers have it, is its upkeep done."""

from collections.abc import Callable, Iterator

from frostline.catalog import lake_tables as catalog
from frostline.catalog.pointers import LakePointer
from frostline.errors import FrostlineError, UsageError
from frostline.lake import lake_format, lake_table, paths, store
from frostline.lake.lake_table import State
from frostline.model import lake_upkeep
from frostline.observe.doctor.database import and_more
from frostline.observe.doctor.patient import Patient, Unknowable, Verdict, fault, ok, warning
from frostline.pipeline import lake_tables
from frostline.relation import foreign_server, lake_foreign

MANY_DELETES = 100
"""Delete files that every reader has to apply."""
MANY_SMALL = 1000
LONG_HISTORY = 10_000
"""Snapshots, all of which are in every metadata file."""


def _listed(patient: Patient) -> list[LakePointer]:
    connection = patient.postgres
    if not patient.has_catalog:
        raise Unknowable("needs the catalog")
    return catalog.listed(connection)


def _judged(patient: Patient, good: str, look: Callable[[Patient, LakePointer], Iterator[Verdict]]) -> Verdict:
    """The first thing that is wrong, a fault before a warning, and how many more there are."""
    tables = _listed(patient)
    wrong = [verdict for table in tables for verdict in look(patient, table)]
    if not wrong:
        return ok(good.format(len(tables)))
    worst = max(wrong, key=lambda verdict: verdict.state == "fault")
    return Verdict(worst.state, and_more(worst.detail, len(wrong)), worst.hint)


def states(patient: Patient) -> Verdict:
    """Whether the state of each lake table can be read, and is of a kind that is served."""
    return _judged(patient, "the states of {} lake tables can be read", _unreadable)


def _unreadable(patient: Patient, table: LakePointer) -> Iterator[Verdict]:
    state, error = _state(table)
    if state is None:
        yield fault(f"{table.name}: {error}", patient.command(f"verify {table.name}"))
    elif not lake_format.is_written(state.metadata):
        number = state.metadata.format_version
        yield warning(
            f"{table.name} is of Iceberg's format {number}, and can be written in format {lake_format.FORMAT} only",
            f"copy its rows into another lake table: frostline lake create NEW --like {table.name}",
        )


def _state(table: LakePointer) -> tuple[State | None, str]:
    """None, and why, for one that is not served."""
    try:
        return lake_table.state(table.metadata_location), ""
    except FrostlineError as error:
        return None, error.message


def foreign_tables(patient: Patient) -> Verdict:
    """Whether each lake table has a foreign table with its columns, and each such foreign table a lake table."""
    live = {table.id for table in _listed(patient)}
    for name, lake_table_id in patient.rows("lake_foreign_tables"):
        if lake_table_id not in live:
            drop = patient.psql(f"drop foreign table {name}")
            return warning(f"foreign table {name} asks for lake table {lake_table_id}, which is gone", drop)
    return _judged(patient, "those of {} lake tables have their columns", _strayed)


def _strayed(patient: Patient, table: LakePointer) -> Iterator[Verdict]:
    if not lake_foreign.foreign_tables(patient.postgres, table.id):
        yield warning(f"{table.name} has no foreign table here", patient.command(f"lake register {table.name}"))
    elif _state(table)[0] is not None:
        try:
            changes = lake_tables.sync(patient.postgres, table, dry_run=True)
        except UsageError as error:
            yield fault(error.message, str(error.hint))
        else:
            if changes:
                detail = f"foreign table {changes[0][0]} has other columns than the lake table {table.name}"
                yield fault(detail, patient.command(f"lake sync {table.name}"))


def strangers(patient: Patient) -> Verdict:
    """Whether nobody but the server's owner could have any lake table: else the lake server serves none."""
    tables, known = _listed(patient), foreign_server.strangers(patient.postgres)
    if known and tables:
        return fault(f"{and_more(known[0][0], len(known))}: no lake table is served", patient.psql(known[0][1]))
    return ok("only the owner of the foreign server can make foreign tables of it")


def upkeep(patient: Patient) -> Verdict:
    """Whether readers have too many files to open, and dropped tables have left theirs."""
    for gone in catalog.dropped(patient.postgres) if _catalogued(patient) else ():
        with store.reachable(f"list {gone.location}"):
            is_empty = next(iter(paths.below(gone.location)), None) is None
        if not is_empty:
            name = f"{gone.namespace}.{gone.table}"
            register = patient.command(f"lake register {name} --metadata {gone.metadata_location}")
            return warning(
                f"{name} was dropped, and its files are still in {gone.location}",
                f"{register} brings it back; then {patient.command(f'lake drop {name} --purge')}",
            )
    return _judged(patient, "{} lake tables have no more files and snapshots than they should", _neglected)


def _catalogued(patient: Patient) -> bool:
    return bool(patient.postgres) and patient.has_catalog


def _neglected(patient: Patient, table: LakePointer) -> Iterator[Verdict]:
    state, _ = _state(table)
    if state is None:
        return
    target = lake_upkeep.target_file_size(state.metadata.properties)
    small = sum(lake_upkeep.is_small(file.file_size_in_bytes, target) for file in state.data.values())
    compact, expire = patient.command(f"compact {table.name}"), patient.command(f"expire {table.name}")
    if len(state.deletes) >= MANY_DELETES:
        yield warning(f"{table.name} has {len(state.deletes)} delete files, which every reader applies", compact)
    if small >= MANY_SMALL:
        yield warning(f"{table.name} has {small} small files", compact)
    if len(state.metadata.snapshots) >= LONG_HISTORY:
        yield warning(f"{table.name} keeps {len(state.metadata.snapshots)} snapshots", expire)
