"""The commit to tables of a REST catalog by a node: docs/design/rest-nodes.md, "COMMIT".

One request has all tables, with what must still be true of them, so it can be sent again when its answer was lost:
it happens once. What was staged in vain is deleted, and nothing is once an answer was lost.
"""

import time
from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    SetSnapshotRefUpdate,
)

from frostline.errors import FrostlineError, OutcomeUnknown, UnavailableError
from frostline.lake import lake_commit, recording, rest, transaction
from frostline.lake.lake_publish import Outcome
from frostline.lake.recording import TableChange
from frostline.lake.rest import Catalog
from frostline.lake.transaction import Reply
from frostline.model import outcomes
from frostline.model.outcomes import Answer, Fate, Sighting, Trace

PATIENCE_S = 30.0
"""How long it is looked what has become of a commit before that is given up."""
_PAUSES_S = (0.2, 0.5, 1.0)
"""Before the request is sent again; the last one from then on."""
_LOST = (Answer.CONFLICT, Answer.NO_TABLE)
_LOOK = "look whether the rows are there before you write them again"


def change(identifier: tuple[str, ...], base: TableMetadata, new: TableMetadata) -> TableChange:
    """The one snapshot that the new metadata has more than the base, for a catalog that writes the metadata itself."""
    branch = new.refs[MAIN_BRANCH]
    moved = {
        "ref-name": MAIN_BRANCH,
        "type": branch.snapshot_ref_type,
        "snapshot-id": branch.snapshot_id,
        "max-ref-age-ms": branch.max_ref_age_ms,
        "max-snapshot-age-ms": branch.max_snapshot_age_ms,
        "min-snapshots-to-keep": branch.min_snapshots_to_keep,
    }
    updates = (AddSnapshotUpdate(snapshot=new.snapshots[-1]), SetSnapshotRefUpdate.model_validate(moved))
    same_rules = (
        AssertCurrentSchemaId.model_validate({"current-schema-id": base.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": base.default_spec_id}),
    )
    return recording.follows(TableChange(identifier, base, new, (), updates, same_rules))


def publish(catalog: Catalog, changes: Sequence[TableChange], written: Sequence[str]) -> Outcome:
    """Do it, or delete what was staged for it. After OutcomeUnknown nobody knows, and nothing is deleted.

    LOST: a table has moved, and nothing was changed. KeysRefused, UnavailableError, UsageError: nothing was changed.
    """
    try:
        reply = transaction.send(catalog, changes)
        outcome = _told(catalog, changes, reply)
    except Exception:  # not after an interrupt: that may come when the commit has happened
        lake_commit.discard(written)
        raise
    if outcome is None:
        return _found_out(catalog, changes, reply)
    if outcome is not Outcome.DONE:
        lake_commit.discard(written)
    return outcome


def _told(catalog: Catalog, changes: Sequence[TableChange], reply: Reply) -> Outcome | None:
    """What an answer to the first request means; None if it does not tell.

    Whoever stands in between may have sent the request twice, so that the conflict is with itself.
    """
    if reply.answer is Answer.COMMITTED:
        return Outcome.DONE
    if reply.answer is Answer.UNKNOWN:
        return None
    if reply.answer in (*_LOST, Answer.REFUSED):
        try:
            fate, traces = _fate(catalog, changes)
        except FrostlineError:
            return None
        if Trace.HAS in traces:
            return Outcome.DONE if fate is Fate.HAPPENED else None
        if reply.answer in _LOST or _have_moved(catalog, changes):
            return Outcome.LOST  # refused, as if a snapshot was added to another branch: ours would have an old number
    transaction.raise_refusal(catalog, reply)
    raise AssertionError(reply)


def _fate(catalog: Catalog, changes: Sequence[TableChange]) -> tuple[Fate, Sequence[Trace]]:
    traces = [recording.trace(each, rest.load(catalog, each.identifier)) for each in changes]
    return outcomes.fate(traces), traces


def _have_moved(catalog: Catalog, changes: Sequence[TableChange]) -> bool:
    for each in changes:
        table = rest.load(catalog, each.identifier)
        if table is None or each.base is None or table.metadata.last_updated_ms != each.base.last_updated_ms:
            return True
    return False


def _found_out(catalog: Catalog, changes: Sequence[TableChange], reply: Reply) -> Outcome:
    """The answer is lost: look, and send the very same again, until one of the two tells."""
    deadline, cause, tries = time.monotonic() + PATIENCE_S, reply.words, 0
    traces: Sequence[Trace] = [Trace.UNCLEAR] * len(changes)
    while time.monotonic() < deadline:
        try:
            fate, traces = _fate(catalog, changes)
            if fate is Fate.HAPPENED:
                return Outcome.DONE
            if fate is Fate.NEVER:
                return Outcome.LOST
            if fate is Fate.TORN:
                break
            if set(traces) == {Trace.STANDS} and transaction.send(catalog, changes).answer is Answer.COMMITTED:
                return Outcome.DONE
        except FrostlineError as error:
            cause = rest.short(error)
        time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1
    seen = Sighting.of({each.name: trace is Trace.HAS for each, trace in zip(changes, traces, strict=True)})
    raise OutcomeUnknown(outcomes.unknown(seen, catalog.uri, cause), hint=_LOOK)


def require_transactions(catalog: Catalog) -> None:
    """UnavailableError for a catalog that does not commit many tables at once: no transaction could be promised."""
    if not rest.takes_transactions(catalog):
        raise UnavailableError(
            f"catalog {catalog.uri!r} cannot commit many tables at once, so it has no nodes",
            hint="use a catalog with POST transactions/commit",
        )
