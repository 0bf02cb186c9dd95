"""What the lake server asks of the lake: which tables there are, and which files a snapshot of one consists of."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from frostline.errors import UsageError
from frostline.model.lake_tables import Remote, RemoteLakeTable, ServedTable
from frostline.model.tables import LakeFile, Table


class ManagedTables(Protocol):
    """The managed tables, by their ids. Called from many threads at once."""

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


class ServedTables(Protocol):
    """All tables that a query can name, by what foreign tables ask for; else as `ManagedTables`."""

    def resolve(self, remote: Remote) -> ServedTable:
        """The table that is asked for; raises UsageError when there is none."""
        ...

    def forget(self) -> None: ...  # noqa: D102
    def current_snapshot(self, remote: Remote) -> int | None: ...  # noqa: D102
    def files(self, remote: Remote, snapshot_id: int) -> Sequence[LakeFile]: ...  # noqa: D102
    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]: ...  # noqa: D102


@dataclass(frozen=True)
class OnlyManaged:
    """Implements `ServedTables` for queries that name no lake table: of those, only a transaction knows the cut."""

    managed: ManagedTables

    def resolve(self, remote: Remote) -> Table:
        """The managed table; UsageError for a lake table."""
        return self.managed.resolve(_id(remote))

    def forget(self) -> None:
        """Ask for the tables' columns again."""
        self.managed.forget()

    def current_snapshot(self, remote: Remote) -> int | None:
        """The lake snapshot that the seam names now."""
        return self.managed.current_snapshot(_id(remote))

    def files(self, remote: Remote, snapshot_id: int) -> Sequence[LakeFile]:
        """The files of one snapshot."""
        return self.managed.files(_id(remote), snapshot_id)

    def checksums(self, paths: Collection[str]) -> Mapping[str, bytes]:
        """What is recorded of these files."""
        return self.managed.checksums(paths)


def _id(remote: Remote) -> int:
    if isinstance(remote, RemoteLakeTable):
        raise UsageError(f"there is no lake table {remote.lake_table_id} here", hint="frostline lake list")
    return remote.table_id
