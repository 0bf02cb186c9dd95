"""The files of a table's lake as they were recorded when they were published: what each must still be.

Data files have a fingerprint, and all files, metadata too, a checksum. The sums over a table's files are kept by
triggers, with the range of what came or went since nothing was worth merging: only in its lake partitions can that be
otherwise now, so it is told without reading the records of all files.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from frostline import sqlfiles
from frostline.catalog.connect import Connection, fetch
from frostline.model import lake_grid, upkeep
from frostline.model.range import Range
from frostline.model.tables import Checksum, Fingerprint, RecordedFile, Table
from frostline.model.upkeep import Bin

_statement = sqlfiles.statements(__name__, "queries/lake_file")


def replace_range(
    connection: Connection, table: Table, job_id: int, lower: int, upper: int, files: Sequence[RecordedFile]
) -> None:
    """Record the files that now hold [lower, upper), in the publishing transaction."""
    values = {"table_id": table.id, "lower": lower, "upper": upper}
    connection.execute(_statement("delete_range"), values)
    _insert(connection, table, job_id, files)


def replace(
    connection: Connection, table: Table, job_id: int, gone: Sequence[str], files: Sequence[RecordedFile]
) -> None:
    """Record files in place of others, in the publishing transaction."""
    forget(connection, table, gone)
    _insert(connection, table, job_id, files)


def forget(connection: Connection, table: Table, gone: Sequence[str]) -> None:
    """These are not in the lake any more, from the publishing transaction on."""
    connection.execute(_statement("delete"), {"table_id": table.id, "paths": list(gone)})


def _insert(connection: Connection, table: Table, job_id: int, files: Sequence[RecordedFile]) -> None:
    values = {
        "table_id": table.id,
        "job_id": job_id,
        "paths": [file.path for file in files],
        "rows": [file.fingerprint.rows for file in files],
        "sizes": [file.size_bytes for file in files],
        "lowers": [file.lower for file in files],
        "uppers": [file.upper for file in files],
        "hash_sums": [file.fingerprint.hash_sum for file in files],
    }
    connection.execute(_statement("insert"), values)
    known = {file.path: Checksum(file.size_bytes, file.sha256) for file in files if file.sha256 is not None}
    record_checksums(connection, table, known)


def recorded(connection: Connection, table: Table) -> list[RecordedFile]:
    """Every file of the current lake snapshot with the fingerprint it must have."""
    return _files(connection, "list_all", {"table_id": table.id})


def within(connection: Connection, table: Table, wanted: Range) -> list[RecordedFile]:
    """Those of them that may hold a row of the range; as `range.overlapping`, without reading the others' records."""
    return _files(connection, "within", {"table_id": table.id, "lower": wanted.lower, "upper": wanted.upper})


def _files(connection: Connection, query: str, values: dict[str, int | None]) -> list[RecordedFile]:
    return fetch(connection, _recorded, _statement(query), values)


def _recorded(
    *, rows: int, hash_sum: Decimal, fields: list[int] | None, types: list[str] | None, **others: Any
) -> RecordedFile:
    of_fields = None if fields is None else tuple(fields)
    of_types = None if types is None else tuple(types)
    return RecordedFile(fingerprint=Fingerprint(rows, int(hash_sum)), fields=of_fields, types=of_types, **others)


def totals(connection: Connection, table: Table) -> tuple[int, int, int]:
    """Files, rows and bytes of the table in the lake."""
    row = connection.execute(_statement("totals"), {"table_id": table.id}).fetchone()
    files, rows, size_bytes = row or (0, 0, 0)
    return files, rows, size_bytes


def record_checksums(connection: Connection, table: Table, files: Mapping[str, Checksum]) -> None:
    """Write down, in the publishing transaction, what these files must be. Harmless to repeat."""
    if not files:
        return
    values = {
        "table_id": table.id,
        "paths": list(files),
        "sizes": [checksum.size_bytes for checksum in files.values()],
        "sums": [checksum.sha256 for checksum in files.values()],
    }
    connection.execute(_statement("record_checksums"), values)


def checksums(connection: Connection, paths: Collection[str]) -> dict[str, bytes]:
    """The checksums of those of these files that have one."""
    return dict(connection.execute(_statement("checksums"), {"paths": list(paths)}).fetchall())


def metadata_checksums(connection: Connection, table: Table) -> dict[str, bytes]:
    """The checksums of the table's metadata files, manifest lists and manifests."""
    return dict(connection.execute(_statement("metadata_checksums"), {"table_id": table.id}).fetchall())


def forget_checksums(connection: Connection, paths: Collection[str]) -> None:
    """The files are deleted, so nobody asks for them any more."""
    if paths:
        connection.execute(_statement("forget_checksums"), {"paths": list(paths)})


@dataclass(frozen=True)
class _Changed:
    """The smallest and the largest tier value of what changed, and the target size for which the rest was looked at."""

    lower: int | None
    upper: int | None
    settled_for: int | None


def due_merges(connection: Connection, table: Table) -> list[Bin]:
    """The merges that are worth doing now."""
    return upkeep.due_merges(table, _unsettled(connection, table, _changed(connection, table)))


def settle_merges(connection: Connection, table: Table) -> None:
    """Write down that nothing is worth merging, if so. For whoever holds the table's lease; harmless to repeat."""
    seen = _changed(connection, table)
    if upkeep.due_merges(table, _unsettled(connection, table, seen)):
        return
    values = {"changed_from": seen.lower, "changed_to": seen.upper, "target": table.policy.target_file_size}
    connection.execute(_statement("settle"), {"table_id": table.id, **values})


def _changed(connection: Connection, table: Table) -> _Changed:
    row = connection.execute(_statement("changed"), {"table_id": table.id}).fetchone()
    return _Changed(*row) if row else _Changed(None, None, None)


def _unsettled(connection: Connection, table: Table, changed: _Changed) -> Sequence[RecordedFile]:
    """The files of the lake partitions where anything may be otherwise than when nothing was worth merging."""
    if changed.settled_for != table.policy.target_file_size:
        return recorded(connection, table)
    if changed.lower is None or changed.upper is None:
        return ()
    lower = max(table.tier_kind.lowest, lake_grid.cell_start(*table.lake_grid, changed.lower))
    return within(connection, table, Range(lower, lake_grid.cell_end(*table.lake_grid, changed.upper)))
