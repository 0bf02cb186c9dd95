"""What the lake server asks of the lake: which tables there are, and which files a snapshot of one consists of."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from frostline.model.tables import LakeFile, Table


class LakeTables(Protocol):
    """The tables that the server serves. Called from many threads at once."""

    def resolve(self, table_id: int) -> Table:
        """The table with that id; raises UsageError when there is none."""
        ...

    def forget(self) -> None:
        """Ask for the tables' columns again: a query has named one that was not there."""
        ...

    def current_snapshot(self, table_id: int) -> int | None:
        """The lake snapshot that the seam names now; None while nothing is archived."""
        ...

    def files(self, table_id: int, snapshot_id: int) -> Sequence[LakeFile]:
        """The files of one snapshot. A snapshot never changes, so neither does the answer."""
        ...

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """What is recorded of these files; nothing of those from before checksums were kept."""
        ...
