"""Verify: is every archived value still what it was? Reads every byte; finds one changed value, one missing row."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg import errors, sql

from frostline import sqlfiles
from frostline.catalog import archived_partitions, facts, lake_files, pointers, seams, tables, trust
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection, only_row, only_value
from frostline.errors import CorruptionError, FrostlineError
from frostline.failpoints import Failpoint, reached
from frostline.lake import damage, expected, paths, snapshots, store
from frostline.model.names import Name
from frostline.model.range import overlapping
from frostline.model.tables import NO_ROWS, Checksum, Fingerprint, RecordedFile, Seam, Table
from frostline.pipeline import doubles
from frostline.pipeline.verify_metadata import Fault, Metadata, strangers
from frostline.relation import names
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.files import as_written

_statement = sqlfiles.statements(__name__, "verify")

MISSING = "is missing"
"""What is wrong with a file that is not there."""


@dataclass(frozen=True)
class Report:
    """What was compared, and what was wrong."""

    table: Table
    files: int
    rows: int
    partitions: int
    """Archived partitions that are still in the heap and were compared with the lake."""
    faults: tuple[Fault, ...]


def run(connection: Connection, table: Table) -> Report:
    """Compare the lake with its recorded fingerprints, and archived partitions still in the heap with the lake.

    Everything is read at one point in time; writers, archive and readers go on meanwhile.
    """
    with connection.transaction():
        connection.execute(_statement("one_snapshot"))
        table = tables.get(connection, table.name)  # with the columns of the snapshot
        trust.require(connection, table)
        seam = seams.get(connection, table)
        recorded = lake_files.recorded(connection, table)
        waiting = [
            partition
            for partition in archived_partitions.uncleaned(connection, table)
            if facts.exists(connection, partition.name)
        ]
        expected.add(lake_files.metadata_checksums(connection, table))
        reached(Failpoint.VERIFY_BEFORE_FILES)
        lake = Metadata.of(table, seam)
        sums: dict[str, Checksum] = {}
        faults = [*_foreign(connection, table), *lake.faults(recorded), *_bad_files(table, recorded, sums)]
        reached(Failpoint.VERIFY_AFTER_FILES)
        named = {fault.where for fault in faults}
        sound = [file for file in recorded if file.path not in named]
        for partition in waiting:
            # A broken file is reported by its name; comparing its range as well would only say it twice.
            files = overlapping(sound, partition.range)
            if len(files) == len(overlapping(recorded, partition.range)):
                faults += _different(connection, table, partition, files)
        faults += doubles.in_lake(table, sound)
        faults += doubles.in_both(connection, table, seam.frost_line, waiting, sound)
    _complete(connection, table, sums | ({} if faults else lake.checksums()))
    rows = sum(file.fingerprint.rows for file in recorded)
    return Report(table, len(recorded), rows, len(waiting), tuple(faults))


def _complete(connection: Connection, table: Table, sums: dict[str, Checksum]) -> None:
    """Record the checksums of sound files from before they were kept. A standby cannot."""
    with suppress(errors.ReadOnlySqlTransaction):
        lake_files.record_checksums(connection, table, sums)


def before_clean(connection: Connection, table: Table, partition: ArchivedPartition) -> None:
    """Raise CorruptionError unless the lake holds exactly what the partition does.

    Only files that may have a row of its range are looked at: what other ranges hold does not concern it.
    """
    with connection.transaction():
        connection.execute(_statement("one_snapshot"))
        seam = seams.get(connection, table)
        files = lake_files.within(connection, table, partition.range)
        expected.add(lake_files.metadata_checksums(connection, table))
        faults = [*strangers(files, _held(table, seam, partition)), *_bad_files(table, files)]
        faults = faults or [*_different(connection, table, partition, files)]
    if faults:
        raise CorruptionError(
            f"{partition.name} is not emptied: {faults[0].where} {faults[0].what}",
            hint=f"frostline verify {table.name} lists every fault; the heap still has these rows",
        )


def before_lowering(
    connection: Connection, table: Table, line: int, kept: Collection[Name], *, without_lake: bool = False
) -> list[str]:
    """Raise CorruptionError unless the heap has every row from the line up to the frost line.

    `kept` are the partitions to compare with the lake; marked rows are compared with the overlay throughout.
    Where no row is marked, what was recorded of the files is enough: the heap can replace a lake that is lost. Where
    some are, and the files cannot be read, only the number of rows is compared; says where that was so.
    """
    with connection.transaction():
        connection.execute(_statement("one_snapshot"))
        partitions = [
            partition for partition in archived_partitions.uncleaned(connection, table) if partition.name in kept
        ]
        counted: list[str] = []
        fault = next(_lacking(connection, table, line, partitions, _Files(counted, without_lake)), None)
    if fault:
        raise CorruptionError(
            f"the frost line of {table.name} stays: {fault.where} {fault.what}; nothing was changed",
            hint=f"frostline verify {table.name}; somebody changed the heap with its triggers off, "
            f"and {table.name} still shows the rows that were archived",
        )
    return counted


@dataclass(frozen=True)
class _Files:
    """Whether the lake's files can be read, and where they could not."""

    counted: list[str]
    are_away: bool


def _lacking(
    connection: Connection, table: Table, line: int, partitions: Sequence[ArchivedPartition], lake: _Files
) -> Iterator[Fault]:
    recorded = lake_files.recorded(connection, table)
    for partition in partitions:
        yield from _unlike_lake(connection, table, partition, overlapping(recorded, partition.range), lake)
    frost_line = seams.get(connection, table).frost_line
    if not _unlike_overlay(connection, table, line, frost_line):
        return
    for partition in partitions:
        count = _unlike_overlay(connection, table, partition.lower, partition.upper)
        if count:
            yield Fault(str(partition.name), f"lacks {count} changes that the overlay has")
    yield Fault(str(table.heap), "lacks changes that the overlay has")


def _unlike_lake(
    connection: Connection, table: Table, partition: ArchivedPartition, files: Sequence[RecordedFile], lake: _Files
) -> Iterator[Fault]:
    """What the heap has other than the lake. A file that is not what was recorded says nothing about the heap."""
    marked = _marked_keys(connection, table, partition)
    opened = [file for file in files if marked or file.fields or not partition.range.covers(file.range)]
    if not opened:
        yield from _different(connection, table, partition, files)
        return
    faults = None if lake.are_away else _different_if_readable(connection, table, partition, files)
    if faults is not None and not (faults and _are_bad(table, opened)):
        yield from faults
        return
    lake.counted.append(str(partition.name))
    yield from _wrong_count(connection, table, partition, files, len(marked))


def _different_if_readable(
    connection: Connection, table: Table, partition: ArchivedPartition, files: Sequence[RecordedFile]
) -> list[Fault] | None:
    try:
        return list(_different(connection, table, partition, files))
    except (OSError, ValueError, FrostlineError):
        return None


def _are_bad(table: Table, files: Sequence[RecordedFile]) -> bool:
    try:
        return any(True for _ in _bad_files(table, files))
    except FrostlineError:
        return True


def _wrong_count(
    connection: Connection, table: Table, partition: ArchivedPartition, files: Sequence[RecordedFile], marks: int
) -> Iterator[Fault]:
    """Whether the heap has as many unmarked rows as it must, as far as the records tell.

    Of a marked key they do not say whether the lake has it, and of a file that reaches beyond the partition not how
    many of its rows lie within.
    """
    within = sum(file.fingerprint.rows for file in files if partition.range.covers(file.range))
    at_most = sum(file.fingerprint.rows for file in files)
    in_heap = _heap_fingerprint(connection, table, partition.name).rows
    if not within - marks <= in_heap <= at_most:
        wanted = f"{max(within - marks, 0)} to {at_most}"
        yield Fault(
            str(partition.name), f"has {in_heap} unchanged rows instead of {wanted}, and its files are not there"
        )


def _unlike_overlay(connection: Connection, table: Table, lower: int | None, upper: int) -> int:
    """How many marked keys of the range have another row in the heap than in the overlay."""
    statement = _statement("unlike_overlay").format(
        key=names.columns(None, table.key),
        row_hash=fingerprint.postgres_row_hash(table),
        overlay=names.overlay(table),
        heap=names.identifier(table.heap),
        condition=names.within(table, lower, upper),
    )
    return only_value(connection.execute(statement))


def _foreign(connection: Connection, table: Table) -> Iterator[Fault]:
    """The Iceberg catalog must point to the state that the seam has."""
    standing = pointers.standing(connection, table)
    if standing.is_foreign:
        where = f"{table.lake_name.schema}.{table.internal}"
        yield Fault(
            where, f"in the Iceberg catalog: {standing.described}; frostline repair {table.name} shows the difference"
        )


def _held(table: Table, seam: Seam, partition: ArchivedPartition) -> set[str]:
    """The files of the lake's snapshot that may have a row of the partition's range."""
    if seam.snapshot_id is None or seam.metadata_location is None:
        return set()
    where = seam.metadata_location, seam.snapshot_id
    return {file.path for file in snapshots.files_within(*where, table, partition.range)}


def _bad_files(
    table: Table, recorded: Sequence[RecordedFile], sums: dict[str, Checksum] | None = None
) -> Iterator[Fault]:
    """Read every byte. `sums` gets the checksums of sound files that have none yet."""
    for file in recorded:
        with store.reachable(f"read {file.path}"):
            size = paths.size_bytes(file.path)
        if size is None:
            yield Fault(file.path, MISSING)
        elif size != file.size_bytes:
            yield Fault(file.path, f"has {size} bytes instead of {file.size_bytes}")
        else:
            yield from _bad_content(table, file, {} if sums is None else sums)


def _bad_content(table: Table, file: RecordedFile, sums: dict[str, Checksum]) -> Iterator[Fault]:
    try:
        with damage.parsing(f"file {file.path}"):
            seal = fingerprint.sealed(file.path, as_written(table, file))
    except CorruptionError as error:
        yield Fault(file.path, f"cannot be read: {str(error.args[0]).partition(' is damaged: ')[2]}")
        return
    if seal.fingerprint != file.fingerprint:
        difference = _difference(file.fingerprint, seal.fingerprint)
        yield Fault(file.path, f"holds other values than were written: {difference}")
    elif file.sha256 is None:
        sums[file.path] = Checksum(file.size_bytes, seal.sha256)
    elif seal.sha256 != file.sha256:
        yield Fault(file.path, "has other bytes than were written, though its values are the same")


def _difference(wanted: Fingerprint, actual: Fingerprint) -> str:
    if wanted.rows != actual.rows:
        return f"{actual.rows} rows instead of {wanted.rows}"
    return f"hash sum {actual.hash_sum} instead of {wanted.hash_sum}"


def _different(
    connection: Connection, table: Table, partition: ArchivedPartition, files: Sequence[RecordedFile]
) -> Iterator[Fault]:
    """Rows changed since the export are marked, in the heap and below; all others must be the same in both tiers.

    A file that counts as a whole counts as it was recorded; after a fold one may hold rows of other ranges too.
    """
    marked = _marked_keys(connection, table, partition)
    in_heap = _heap_fingerprint(connection, table, partition.name)
    in_lake = NO_ROWS
    for file in files:
        if not marked and partition.range.covers(file.range) and file.fields is None:
            in_lake += file.fingerprint
        else:
            unmarked, _ = fingerprint.split(file.path, table, marked, within=partition.range)
            in_lake += unmarked
    if in_heap != in_lake:
        yield Fault(str(partition.name), f"differs from the lake: {_difference(in_heap, in_lake)}")


def _marked_keys(connection: Connection, table: Table, partition: ArchivedPartition) -> frozenset[int]:
    statement = _statement("marked_keys").format(
        key_hash=fingerprint.postgres_key_hash(table),
        overlay=names.overlay(table),
        condition=names.within(table, partition.lower, partition.upper),
    )
    return frozenset(key for (key,) in connection.execute(statement).fetchall())


def _heap_fingerprint(connection: Connection, table: Table, partition: Name) -> Fingerprint:
    key_is_marked = sql.SQL(" and ").join(
        sql.SQL("m.{0} = h.{0}").format(sql.Identifier(column)) for column in table.key
    )
    statement = _statement("heap_fingerprint").format(
        row_hash=fingerprint.postgres_row_hash(table),
        partition=names.identifier(partition),
        overlay=names.overlay(table),
        key_is_marked=key_is_marked,
    )
    rows, hash_sum = only_row(connection.execute(statement))
    return Fingerprint(rows, int(hash_sum))
