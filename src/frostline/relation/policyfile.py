"""Brings the managed tables to what a document of policies says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frostline.catalog import facts, locks, tables
from frostline.catalog.connect import Connection
from frostline.catalog.locks import Lock
from frostline.catalog.patience import patiently
from frostline.errors import UsageError
from frostline.model.names import Name, quoted
from frostline.model.policyfile import Entry
from frostline.model.tables import Table
from frostline.partitions import partition_mode
from frostline.relation import policy, registration


@dataclass(frozen=True)
class Imported:
    """What became of one table: `added`, `changed` or `unchanged`."""

    name: Name
    what: str


def apply(connection: Connection, entries: Sequence[Entry], *, dry_run: bool = False) -> list[Imported]:
    """All tables or none. Tables that the document does not name stay as they are.

    ACCESS EXCLUSIVE on the tables that become tiered, all at once in brief tries: nobody waits for one table while we
    wait for the next.
    """
    new = [entry.name for entry in entries if entry.mode.has_lake and tables.find(connection, entry.name) is None]

    def act() -> list[Imported]:
        for name in new:
            if facts.relation(connection, name) is not None:
                locks.take(connection, Lock.ACCESS_EXCLUSIVE, name)
        return list(_applied(connection, entries))

    return patiently(connection, new[0] if new else Name("frostline", "managed_table"), act, dry_run=dry_run)


def _applied(connection: Connection, entries: Sequence[Entry]) -> Iterator[Imported]:
    for entry in entries:
        try:
            yield Imported(entry.name, _bring(connection, entry, tables.find(connection, entry.name)))
        except UsageError as error:
            raise UsageError(f"{entry.name}: {error.message}", hint=error.hint) from None


def _bring(connection: Connection, entry: Entry, present: Table | None) -> str:
    if present is None:
        request = registration.Request(
            entry.name, entry.policy, entry.lake_partition, entry.relation_name, foreign_keys=entry.foreign_keys
        )
        (registration if entry.mode.has_lake else partition_mode).add(connection, request)
        return "added"
    if present.mode is not entry.mode:
        hint = f"frostline table remove {entry.name}, then import again"
        raise UsageError(f"it is in mode {present.mode}, not {entry.mode}", hint=hint)
    if entry.relation_name not in (None, present.relation_name):
        hint = f"frostline table set {entry.name} --relation {quoted(entry.relation_name or '')}"
        raise UsageError(f"its relation is {present.relation}, not {entry.relation_name}", hint=hint)
    if entry.foreign_keys not in (None, present.foreign_keys):
        hint = f"frostline table set {entry.name} --foreign-keys {entry.foreign_keys}, then import again"
        raise UsageError(f"its foreign_keys is {present.foreign_keys}, not {entry.foreign_keys}", hint=hint)
    if entry.lake_partition is not None and not present.has_lake:
        raise UsageError("in partition mode it has no lake", hint="take lake_partition out")
    if entry.lake_partition not in (None, present.lake_partition):
        hint = "the files of its lake are cut that way: take lake_partition out"
        raise UsageError(f"its lake partition is {present.lake_partition}, not {entry.lake_partition}", hint=hint)
    after = policy.put(connection, present, entry.policy)
    return "unchanged" if after == present else "changed"
