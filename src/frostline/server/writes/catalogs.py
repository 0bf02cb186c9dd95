"""What the lake server asks of the catalog of lake tables, whichever kind it is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import State

Stage = Callable[[], tuple[Change, Sequence[State]] | None]
"""Gives the commit of a group of transactions, and what the tables are then, one for each move; None for nothing."""


class LakeCatalog(Protocol):
    """A catalog. Its tables have numbers that stay when they are renamed. Called from many threads at once."""

    @property
    def is_ours(self) -> bool:
        """Whether it is our own: then metadata files are written here, and CHECKs by Postgres only."""
        ...

    def cut(self) -> Mapping[int, LakePointer]:
        """Where all lake tables are, by their numbers, as of one moment after the call."""
        ...

    def places(self, wanted: Collection[int]) -> Mapping[int, LakePointer]:
        """Where these are, and maybe others, each at a moment of its own after the call."""
        ...

    def require_warehouse(self, wanted: Collection[int] = ()) -> None:
        """UnavailableError when the warehouse is not there, or not where these tables are."""
        ...

    def commit(self, stage: Stage) -> tuple[Outcome, Sequence[State] | None]:
        """As `lake_publish.commit`. For one thread at a time."""
        ...

    def connection(self) -> AbstractContextManager[Connection]:
        """The Postgres that a catalog of ours is in."""
        ...

    def close(self) -> None:
        """Give its connections back."""
        ...
