"""Which states of a lake may go: a pure decision from what the catalog and the lake's metadata say."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LakeState:
    """A state that the lake of a table has, or has had."""

    metadata_location: str
    snapshot_id: int | None
    replaced_xid: str | None
    """The transaction that put another in its place; None for the current one."""
    is_over: bool
    """It was replaced longer ago than the table's policy keeps it."""
    is_seen: bool
    """A live Postgres snapshot may be older than that transaction."""


@dataclass(frozen=True)
class Expiry:
    """What is to go: states by their metadata location, and snapshots of the lake's current metadata."""

    locations: frozenset[str]
    snapshots: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.snapshots)


NOTHING = Expiry(frozenset(), frozenset())


def expiry(
    states: Iterable[LakeState], pinned: Collection[str], present: Collection[int], needed: Collection[int]
) -> Expiry:
    """The states that nobody can need any more, and the snapshots that no other state has.

    `present` are the snapshots of the current metadata, `needed` those that a branch or a tag of it names. States
    without a snapshot to remove are no reason to commit: each commit leaves one behind, and there would be no end.
    """
    all_states = tuple(states)
    gone = [
        state for state in all_states if state.is_over and not state.is_seen and state.metadata_location not in pinned
    ]
    locations = frozenset(state.metadata_location for state in gone)
    kept = {state.snapshot_id for state in all_states if state.metadata_location not in locations} | set(needed)
    snapshots = frozenset(state.snapshot_id for state in gone if state.snapshot_id is not None) - kept
    snapshots &= frozenset(present)
    return Expiry(locations, snapshots) if snapshots else NOTHING
