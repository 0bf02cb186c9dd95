"""Columns that a transaction which is still open has added or changed: only the query of that transaction tells.

Its foreign table asks for `#7:text`: field 7, of type text. Either no file has the field yet, so every row has NULL in
it, or for `#7=5:integer` the missing value 5; or the field is known, and had a narrower type. Of a long name the parser
leaves 63 bytes, which are the column's name here. A missing value that is too long to be in each query is not announced
(`#7!:text`), so such a query fails until the transaction has ended.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from frostline.model.lake_tables import LakeTable, Remote, ServedTable
from frostline.model.names import MAX_BYTES, cut
from frostline.model.tables import Column, LakeFile
from frostline.model.types import TYPNAMES, Collation, PgType, encoding
from frostline.server.served_tables import ServedTables

_ANNOUNCED = re.compile(r'"(#(\d+)(?:=((?:[^"]|"")*))?:([^":]+))"')
_MODIFIED = re.compile(r"([a-z ]+)\((\d+)(?:,(-?\d+))?\)")


def announced_columns(sql: str) -> list[Column]:
    """The columns that the query announces."""
    announced = sorted({match.group(1, 2, 3, 4) for match in _ANNOUNCED.finditer(sql)}, key=repr)
    return [_column(name.replace('""', '"'), int(number), missing, kind) for name, number, missing, kind in announced]


def _column(name: str, field_id: int, missing: str | None, formatted: str) -> Column:
    modified = _MODIFIED.fullmatch(formatted)
    plain = modified[1] if modified else formatted
    precision, scale = (int(modified[2]), int(modified[3] or 0)) if modified and plain == "numeric" else (None, None)
    pg_type = PgType("text", "text", builtin=False)
    if formatted != "?":
        pg_type = PgType(formatted, TYPNAMES.get(plain, plain), builtin=True, precision=precision, scale=scale)
    collation = Collation.LINGUISTIC if pg_type.name in {"text", "varchar", "bpchar", "name"} else Collation.NONE
    return Column(
        name=cut(name, MAX_BYTES),
        attnum=-field_id,
        field_id=field_id,
        pg_type=pg_type,
        encoding=encoding(pg_type, collation),
        collation=collation,
        not_null=False,
        missing=missing and missing.replace('""', '"'),
    )


def _changed(known: Column, announced: Column | None) -> Column:
    """With the wider type that the transaction has given it, under the name that tells of it."""
    if announced is None:
        return known
    travels = replace(announced.encoding, pushable=known.encoding.pushable)
    return replace(known, name=announced.name, pg_type=announced.pg_type, encoding=travels)


@dataclass(frozen=True)
class Announced:
    """Implements `ServedTables`: the tables of another, with columns that it does not know yet."""

    tables: ServedTables
    columns: Sequence[Column]

    def resolve(self, remote: Remote) -> ServedTable:
        """The table that a foreign table asks for; raises UsageError when there is none."""
        table = self.tables.resolve(remote)
        if isinstance(table, LakeTable):
            return table  # nothing is announced of a lake table
        names = {column.name for column in table.columns}
        fresh = {column.field_id: column for column in self.columns if column.name not in names}
        renamed = {column.name: fresh[column.field_id].name for column in table.columns if column.field_id in fresh}
        changed = tuple(_changed(column, fresh.pop(column.field_id, None)) for column in table.columns)
        key = tuple(renamed.get(name, name) for name in table.key)
        return replace(table, columns=(*changed, *fresh.values()), key=key)

    def forget(self) -> None:
        """Ask for the tables' columns again: a query has named one that was not there."""
        self.tables.forget()

    def current_snapshot(self, remote: Remote) -> int | None:
        """The lake snapshot that the seam names now; None while nothing is archived."""
        return self.tables.current_snapshot(remote)

    def files(self, remote: Remote, snapshot_id: int) -> Sequence[LakeFile]:
        """The files of one snapshot."""
        return self.tables.files(remote, snapshot_id)

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """What is recorded of these files."""
        return self.tables.checksums(paths)
