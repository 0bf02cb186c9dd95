"""Lake files against what is known of them: an old one must be what was recorded, a new one what was meant."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import duckdb

from frostline.errors import CorruptionError, FrostlineError
from frostline.lake import checksums, damage, datafiles
from frostline.lake.datafiles import WrittenFile
from frostline.model.range import EVERYTHING, Range
from frostline.model.tables import Column, Fingerprint, RecordedFile, StoredTable, TableCopy
from frostline.model.types import Collation, LakeEncoding, PgType
from frostline.tiers.proof import fingerprint


def checked(file: RecordedFile, table: StoredTable, within: Range) -> Fingerprint:
    """The fingerprint of the file's rows in the range; CorruptionError unless the whole file is as it was recorded."""
    is_proved = checksums.check(file, table.name)
    with damage.parsing(f"file {file.path}", table.name):
        part, _ = fingerprint.split(file.path, table, frozenset(), within=within)
        of_file = part if file.fields is None and within.covers(file.range) else None
        if of_file is None and not is_proved:
            of_file = fingerprint.of_parquet([file.path], as_written(table, file))
    if of_file not in (None, file.fingerprint):
        raise damage.damaged(f"file {file.path}", "it is not what was written", table.name)
    return part


def as_written(table: StoredTable, file: RecordedFile) -> StoredTable:
    """The table with the columns that the file's recorded fingerprint is of, as they were: some may be dropped."""
    if file.fields is None:
        return table
    if file.types is None:
        known = tuple(column for column in table.columns if column.field_id in file.fields)
    else:
        now = {column.field_id: column for column in table.columns}
        known = tuple(_as_it_was(now, *field) for field in zip(file.fields, file.types, strict=True))
    return TableCopy(table.name, known, table.tier)


def _as_it_was(now: Mapping[int, Column], field_id: int, lake_type: str) -> Column:
    """A column of which only the file tells what it was: its name and what Postgres had are of no use."""
    column = now.get(field_id)
    if column is not None and column.encoding.lake_type == lake_type:
        return column
    travelled, pg_type = (
        LakeEncoding(lake_type, as_text=False, pushable=False),
        PgType(lake_type, lake_type, builtin=False),
    )
    if column is not None:
        return replace(column, encoding=travelled)
    return Column(f"frostline_{field_id}", -field_id, field_id, pg_type, travelled, Collation.NONE, not_null=False)


def fingerprint_now(table: StoredTable, file: RecordedFile) -> Fingerprint:
    """The fingerprint of all rows of the file, of the columns that the table has now.

    It is the recorded one, unless a column was added since: then CorruptionError if the file is not as it was recorded.
    """
    return file.fingerprint if file.fields is None else checked(file, table, EVERYTHING)


def sound(file: RecordedFile, table: StoredTable) -> None:
    """CorruptionError unless the whole file is what was recorded: by its checksum, or if it has none by its rows."""
    if not checksums.check(file, table.name):
        checked(file, table, EVERYTHING)


@contextmanager
def blamed(table: StoredTable, files: Sequence[RecordedFile]) -> Generator[None]:
    """Where something fails while these files are read, name the one that is damaged, if one is."""
    try:
        yield
    except (FrostlineError, duckdb.OutOfMemoryException):
        raise
    except Exception:
        blame(table, files)
        raise


def blame(table: StoredTable, files: Sequence[RecordedFile]) -> None:
    """Raise CorruptionError for the first file that is not what was recorded. Reads every byte of them."""
    for file in files:
        checked(file, table, EVERYTHING)


def proved(table: StoredTable, location: str, meant: Fingerprint, doing: str, *, in_order: bool = True) -> WrittenFile:
    """Describe the new file if it holds what it must, by other code than that which wrote it."""
    seal = fingerprint.sealed(location, table)
    if seal.fingerprint != meant:
        raise different(table, seal.fingerprint, meant, doing)
    return datafiles.describe(location, table, seal, in_order=in_order)


def different(table: StoredTable, written: Fingerprint, meant: Fingerprint, doing: str) -> CorruptionError:
    """The error for new files that do not hold what they must, while no old one is to blame."""
    return CorruptionError(
        f"{doing} of {table.name}: {written.rows} rows with hash sum {written.hash_sum} were written, "
        f"but {meant.rows} with {meant.hash_sum} were meant"
    )
