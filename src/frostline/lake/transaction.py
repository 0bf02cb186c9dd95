"""Committing many tables to an Iceberg REST catalog, all or none, and finding out what happened when nobody says.

One request carries every table with what must still be true of it. A catalog without that request gets one commit per
table, and the outcome says so. See docs/design/rest-catalog.md.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import requests
from pyiceberg.table import Table
from urllib3.exceptions import NewConnectionError

from frostline.errors import ConflictError, FrostlineError, OutcomeUnknown, UnavailableError, UsageError
from frostline.lake import rest
from frostline.lake.recording import TableChange, follows, kept, numbered_alike, rebased
from frostline.lake.rest import Catalog
from frostline.model import outcomes
from frostline.model.outcomes import Answer, Sighting, Verdict

LOOKS_S = (0.0, 0.5, 1.0, 2.0, 4.0)
"""How long to wait before each look for a commit whose outcome nobody told."""
_LOADERS = 8
_LOOK = "look at these tables in the catalog, then run the command again: it makes a new version of all of them"


@dataclass(frozen=True)
class Outcome:
    """A commit that has happened."""

    atomic: bool
    """Whether all tables changed at one moment; else one after the other."""
    locations: Mapping[tuple[str, ...], str]
    """By table: its metadata, which has the commit."""
    created_first: tuple[tuple[str, ...], ...] = ()
    """The new tables that were there, empty, before the others changed: the catalog makes none inside a transaction."""


@dataclass(frozen=True)
class Reply:
    """What came back for a request."""

    answer: Answer
    words: str


def refuse_unless_atomic(catalog: Catalog) -> None:
    """UsageError if the catalog cannot commit many tables at once."""
    if not rest.takes_transactions(catalog):
        raise _not_atomic(catalog)


def commit_all(catalog: Catalog, changes: Sequence[TableChange], *, require_atomic: bool = False) -> Outcome:
    """Commit the changes, all or none where the catalog can.

    ConflictError, UsageError, UnavailableError: nothing has changed, but that empty tables may have been made.
    OutcomeUnknown: some or all tables may have it or get it later, so no file of it may be deleted.
    """
    new = _new(changes)
    wanted = [follows(change) for change in changes]
    if len(wanted) < 2:  # one table is atomic in every catalog
        return Outcome(atomic=True, locations=_one_by_one(catalog, wanted), created_first=new)
    if require_atomic:
        refuse_unless_atomic(catalog)
    if catalog.says_transactions is not False:
        wanted, reply = _together(catalog, wanted)
        if reply.answer is not Answer.NO_ENDPOINT:
            made = tuple(name for name in new if name not in _new(wanted))
            return Outcome(atomic=True, locations=_settled(catalog, wanted, reply), created_first=made)
        if require_atomic:
            raise _not_atomic(catalog)
    return Outcome(atomic=False, locations=_one_by_one(catalog, wanted), created_first=new)


def _together(catalog: Catalog, changes: Sequence[TableChange]) -> tuple[list[TableChange], Reply]:
    """All in one request. What is left of the changes once the tables are made that had to be, and the answer."""
    changes = [change if change.fits_creation else _made(catalog, change) for change in changes]
    reply = send(catalog, changes)
    if _new(changes) and reply.answer in (Answer.NO_TABLE, Answer.REFUSED):
        changes = [_made(catalog, change) for change in changes]
        reply = send(catalog, changes)
    return changes, reply


def _new(changes: Sequence[TableChange]) -> tuple[tuple[str, ...], ...]:
    return tuple(change.identifier for change in changes if change.base is None)


def _one_by_one(catalog: Catalog, changes: Sequence[TableChange]) -> dict[tuple[str, ...], str]:
    """One request a table. A new one is made first, empty: only then is it known how the catalog numbers its schema."""
    done: dict[tuple[str, ...], str] = {}
    for position, change in enumerate(changes):
        try:
            left = _made(catalog, change)
            reply = Reply(Answer.COMMITTED, "made empty")
            if left.updates:
                reply = _post(catalog, left.identifier, left.request())
            done |= _settled(catalog, [left], reply)
        except FrostlineError as error:
            if not done:
                raise
            names = tuple(change.name for change in changes)
            seen = Sighting(names[:position], names[position:])
            raise OutcomeUnknown(outcomes.unknown(seen, catalog.uri, rest.short(error)), hint=_LOOK) from error
    return done


def _made(catalog: Catalog, change: TableChange) -> TableChange:
    """Make the table of a change if it is new, empty; the rest of the change.

    If anything fails afterwards the table stays: it is empty, and the next run takes it as it is.
    """
    if change.base is not None:
        return change
    made = _empty(catalog, change, _post(catalog, change.identifier, change.creating()))
    if not numbered_alike(change.metadata, made.metadata):
        numbering = change.numbering(made.metadata)
        made = _empty(catalog, change, _post(catalog, change.identifier, numbering))
    return rebased(change, made.metadata)


def _empty(catalog: Catalog, change: TableChange, reply: Reply) -> Table:
    """The new table of a change, if it is ours, after a request whose answer may have been lost."""
    raise_refusal(catalog, reply)
    table = rest.load(catalog, change.identifier)
    if table is None:
        raise rest.unavailable(catalog.uri, f"table {change.name} was not made ({reply.words})")
    if not change.marks(table):
        raise _conflict(catalog, f"{change.name} is not the one that was made")
    return table


def send(catalog: Catalog, changes: Sequence[TableChange]) -> Reply:
    """All changes in one request, which is sent once. UnavailableError: it was never sent."""
    parts = ",".join(change.request() for change in changes)
    return _post(catalog, None, f'{{"table-changes":[{parts}]}}')


def _post(catalog: Catalog, identifier: tuple[str, ...] | None, body: str) -> Reply:
    """Send a commit, of one table or of many, once."""
    try:
        if identifier is None:
            response = rest.post_transaction(catalog, body)
        else:
            response = catalog.post(catalog.path_of(identifier), body)
    except requests.RequestException as error:
        if _never_sent(error):
            raise rest.unavailable(catalog.uri, rest.short(error)) from error
        return Reply(Answer.UNKNOWN, rest.short(error))
    words = f"HTTP {response.status_code} {rest.short(ValueError(response.text))}".strip()
    return Reply(outcomes.answer(response.status_code, rest.error_type(response)), words)


def _never_sent(error: requests.RequestException) -> bool:
    """Whether there was no connection to send anything on."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError)


def _settled(catalog: Catalog, changes: Sequence[TableChange], reply: Reply) -> dict[tuple[str, ...], str]:
    """Where the metadata is, once every table has its change. An answer that nobody got is found out by looking."""
    raise_refusal(catalog, reply)
    seen, cause = Sighting((), tuple(change.name for change in changes)), reply.words
    for wait_s in LOOKS_S:
        time.sleep(wait_s)
        try:
            with ThreadPoolExecutor(_LOADERS) as pool:
                tables = list(pool.map(partial(rest.load, catalog), (change.identifier for change in changes)))
        except FrostlineError as error:
            cause = rest.short(error)
            continue
        pairs = list(zip(changes, tables, strict=True))
        seen = Sighting.of({change.name: change.is_in(table) for change, table in pairs})
        if seen.verdict is Verdict.ALL:
            return {change.identifier: kept(change, table).metadata_location for change, table in pairs if table}
    raise OutcomeUnknown(outcomes.unknown(seen, catalog.uri, cause), hint=_LOOK)


def raise_refusal(catalog: Catalog, reply: Reply) -> None:
    """Raise what an answer means that is neither done nor unknown."""
    if reply.answer in (Answer.CONFLICT, Answer.NO_TABLE):
        raise _conflict(catalog, reply.words)
    if reply.answer is Answer.FORBIDDEN:
        raise rest.refused_keys(catalog.uri)
    if reply.answer is Answer.BUSY:
        raise UnavailableError(f"catalog {catalog.uri!r} is busy: {reply.words}", hint="run the command again later")
    if reply.answer in (Answer.REFUSED, Answer.NO_ENDPOINT):
        hint = "see what the catalog says, and its log"
        raise UsageError(f"catalog {catalog.uri!r} refuses the commit: {reply.words}", hint=hint)


def _conflict(catalog: Catalog, words: str) -> ConflictError:
    return ConflictError(
        f"somebody else changed a table in catalog {catalog.uri!r}: {words}", hint="run the command again"
    )


def _not_atomic(catalog: Catalog) -> UsageError:
    return UsageError(
        f"catalog {catalog.uri!r} cannot commit many tables at once",
        hint="leave out --require-atomic, or use a catalog with POST transactions/commit",
    )
