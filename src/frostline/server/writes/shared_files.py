"""What the transactions of one commit have not written by themselves goes into files that they share.

So many small transactions make one small file, and pay for it once.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile

from frostline.lake import lake_commit, lake_rows, pg_types
from frostline.lake.lake_commit import Added
from frostline.lake.lake_rows import ValueRefused
from frostline.lake.lake_table import State
from frostline.model.lake_tables import Rows
from frostline.server.writes import rows as new_rows
from frostline.server.writes.rows import Row


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a transaction wants to do to one table."""

    base: State
    """What it has read."""
    added: Added
    """What it has written."""
    changed: Rows
    """The rows of the base that it has deleted or replaced."""
    rows: Sequence[Row] = ()
    """New rows that are in no file yet."""
    gone: Rows = field(default_factory=dict[str, AbstractSet[int]])
    """Deleted rows that are in no delete file yet."""
    files: Mapping[str, DataFile] = field(default_factory=dict[str, DataFile])
    """Those that `gone` names, and maybe others."""

    def __bool__(self) -> bool:
        return bool(self.added or self.rows or self.gone)

    def is_refused(self) -> bool:
        """Whether one of the new rows has a value which the lake, or no partition of it, can hold."""
        try:
            if self.rows:
                typed = new_rows.typed(self.base, self.rows)
                lake_rows.partitions(self.base.metadata.spec(), self.base.columns, typed)
        except ValueRefused:
            return True
        return False


class SharedFiles:
    """The common files of one group of transactions. Nothing points to them before its commit."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Sequence[Wanted], Added]] = {}

    def added(self, lake_table_id: int, wanted: Sequence[Wanted]) -> Added:
        """All files that these transactions add to a table. The common ones are written once for the same transactions.

        When one of them has left the group meanwhile, its rows must not be there: then they are written anew.
        """
        known, made = self._made.get(lake_table_id, ((), Added()))
        if list(known) != list(wanted):
            _discard(made)
            self._made.pop(lake_table_id, None)
            made = _written(wanted)
            self._made[lake_table_id] = wanted, made
        data = [file for change in wanted for file in change.added.data]
        deletes = [file for change in wanted for file in change.added.deletes]
        return Added([*made.data, *data], [*made.deletes, *deletes])

    def discard(self, but: Collection[int] = ()) -> None:
        """They came to nothing, but those of some tables."""
        for number in self._made.keys() - set(but):
            _discard(self._made.pop(number)[1])


def _discard(made: Added) -> None:
    lake_commit.discard([file.file_path for file in (*made.data, *made.deletes)])


def _written(wanted: Sequence[Wanted]) -> Added:
    """Those whose table looks the same write together: somebody may have changed its columns between their cuts."""
    made, alike = Added(), dict[object, list[Wanted]]()
    for change in wanted:
        alike.setdefault(_look(change.base), []).append(change)
    for group in alike.values():
        base = group[0].base
        made.data += new_rows.written(base, [row for change in group for row in change.rows])
        gone, files = dict[str, AbstractSet[int]](), dict[str, DataFile]()
        for change in group:
            for path, places in change.gone.items():
                gone[path] = gone.get(path, frozenset[int]()) | places
                files[path] = change.files[path]
        if gone:
            made.deletes += lake_rows.write_deletes(base.metadata, files, gone)
    return made


def _look(base: State) -> object:
    now = base.metadata
    pg_columns = now.properties.get(pg_types.PG_COLUMNS)
    return now.current_schema_id, now.default_spec_id, now.default_sort_order_id, pg_columns
