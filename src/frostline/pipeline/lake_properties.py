"""Properties of lake tables: the policy of their upkeep, which is in their own metadata, for every engine and node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from frostline.catalog import lake_tables, periods
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, UsageError
from frostline.lake import lake_publish, lake_table, lake_upkeep, publish, warehouse
from frostline.lake.lake_publish import Change, Outcome
from frostline.lake.lake_table import State
from frostline.model import lake_upkeep as rules
from frostline.pipeline import lake_expire
from frostline.settings import Settings

_MOST_AGE_S = 36_500 * 86_400


@dataclass(frozen=True)
class Wanted:
    """What is to change of a policy; None for what stays."""

    snapshot_retention: str | None = None
    min_snapshots: int | None = None
    target_file_size: int | None = None
    former_metadata: int | None = None
    unset: Sequence[str] = ()
    """What is to be as if nobody had set it, as options are called."""


def set_policy(connection: Connection, settings: Settings, chosen: LakePointer, wanted: Wanted) -> State:
    """Commit other properties; nothing is committed if they are so already. Gives what the table is then."""
    changes = properties(connection, wanted)
    if not changes:
        raise UsageError("nothing is to change", hint="say for example --snapshot-retention '1 day'")
    with warehouse.guarded(connection, settings.warehouse):
        state = commit(connection, chosen, lambda _: changes)
        lake_expire.record(connection, chosen.id, state)
        return state


def properties(connection: Connection, wanted: Wanted) -> dict[str, str | None]:
    """What is wanted as Iceberg's properties; None for one that is to go. UsageError for what makes no sense."""
    age = None if wanted.snapshot_retention is None else _age_ms(connection, wanted.snapshot_retention)
    given = {
        "snapshot-retention": age,
        "min-snapshots": wanted.min_snapshots,
        "target-file-size": wanted.target_file_size,
        "former-metadata": wanted.former_metadata,
    }
    chosen = {option: str(value) for option, value in given.items() if value is not None}
    both = sorted(chosen.keys() & set(wanted.unset))
    if both:
        raise UsageError(f"--{both[0]} is to be set and unset", hint="say one of the two")
    return {rules.POLICY[option]: chosen.get(option) for option in (*chosen, *wanted.unset)}


def _age_ms(connection: Connection, text: str) -> int:
    periods.check_interval(connection, "snapshot-retention", text)
    seconds = periods.seconds(connection, text)
    if seconds < rules.LEAST_AGE.total_seconds():
        hint = "for example '10 minutes': commits in doubt need the history so long"
        raise UsageError(f"--snapshot-retention {text!r} is less than ten minutes", hint=hint)
    if seconds > _MOST_AGE_S:
        raise UsageError(f"--snapshot-retention {text!r} is more than a hundred years", hint="say '36500 days'")
    return int(seconds * 1000)


def commit(connection: Connection, chosen: LakePointer, wanted: Callable[[State], Mapping[str, str | None]]) -> State:
    """Commit other properties of a table upon what is there, whoever else commits. Inside of `warehouse.guarded`."""

    def now() -> State:
        return lake_table.state(lake_tables.by_id(connection, chosen.id).metadata_location)

    def stage() -> tuple[Change, State] | None:
        state = now()
        changes = wanted(state)
        if all(state.metadata.properties.get(name) == value for name, value in changes.items()):
            return None
        staged = lake_upkeep.stage_properties(chosen.id, state, changes)
        return Change([staged.move], staged.written), staged.state

    hint = f"frostline lake show {chosen.name}"
    opened = partial(publish.transaction, connection, f"committing to {chosen.name}", hint=hint)
    outcome, made = lake_publish.commit(stage, opened, reconnects=False)
    if outcome is Outcome.LOST:
        raise ConflictError(f"others keep committing to {chosen.name}", hint="run it again")
    if made is None:
        return now()
    lake_table.remember(made)
    return made
