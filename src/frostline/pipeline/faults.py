"""What `frostline verify` finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Something that is not what it must be."""

    where: str
    """A file of the lake, or a partition of the heap."""
    what: str
