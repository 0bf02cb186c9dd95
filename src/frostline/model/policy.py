"""The policy of a managed table: how long rows stay where, and when upkeep is due."""

from dataclasses import dataclass
from enum import StrEnum

MIN_FILE_SIZE = 1_000_000


class Mode(StrEnum):
    """What is managed of a table."""

    TIERED = "tiered"
    """Its old rows go to the lake."""
    PARTITION = "partition"
    """Its partitions only: they are made ahead of time, and expire. It has no lake."""

    @property
    def has_lake(self) -> bool:
        """Whether rows can be in the lake, and with it a relation above the heap, an overlay, and lake files."""
        return self is Mode.TIERED

    @property
    def has_line(self) -> bool:
        """Whether a frost line divides the tiers, so that rows become cold with age."""
        return self is Mode.TIERED


class ExpireBy(StrEnum):
    """What becomes of a partition of a table without a lake when its retention period is over."""

    DROP = "drop"
    DETACH = "detach"


class ForeignKeys(StrEnum):
    """What becomes of rows in the lake when a row goes that a foreign key of theirs references."""

    HOLD = "hold"
    """What Postgres does with rows of the heap."""
    IGNORE = "ignore"
    """Nothing: they stay as they are."""


@dataclass(frozen=True)
class Policy:
    """Periods are intervals as Postgres writes them; of an integer tier key, numbers in its own units."""

    hot_period: str | None = None
    """How long rows stay hot. None for a table without a lake."""
    grace_period: str = "1 day"
    """How long archived rows also stay in the heap."""
    retention_period: str | None = None
    """Rows older than this are removed for good. None: rows are kept for ever."""
    partition_interval: str | None = None
    """The width of a partition; None: as the partitions that are there."""
    premake: int = 4
    """How many partitions there are to be ahead of the current one."""
    expire_by: ExpireBy = ExpireBy.DROP
    fold_rows: int = 100_000
    """A fold is due from this many marks on."""
    fold_age: str = "1 day"
    """A mark this old makes a fold due."""
    snapshot_retention: str = "7 days"
    """How long a lake snapshot that was replaced can still be read."""
    target_file_size: int = 256_000_000
    """Bytes. Compaction merges smaller files to about this size."""
