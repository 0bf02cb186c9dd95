"""Tables in partition mode: their partitions are made ahead of time, and expire. They keep their names."""

from frostline.catalog import facts as catalog_facts
from frostline.catalog import jobs, leases, tables
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model import registration as rules
from frostline.model.policy import Mode
from frostline.model.registration import HeapFacts
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.partitions import premake
from frostline.partitions.dropping import Result, expirable, expire
from frostline.relation import policy
from frostline.relation.registration import Added, Request, refuse

__all__ = ["Result", "add", "expirable", "expire", "remove"]


def add(connection: Connection, request: Request, *, dry_run: bool = False) -> Added:
    """Manage the partitions of a table. Changes nothing about the table itself; running it again is a no-op."""
    existing = tables.find(connection, request.name)
    if existing is not None:
        tables.require_mode(existing, Mode.PARTITION)
        return Added(existing, changed=False, statements=())
    with connection.transaction(force_rollback=dry_run):
        facts = catalog_facts.read(connection, request.name)
        table = _table(connection, facts, request, _check(connection, facts, request))
        tables.insert(connection, table)
        table = tables.by_id(connection, table.id)
        _check_grid(connection, table)
        return Added(table, changed=True, statements=())


def _check(connection: Connection, facts: HeapFacts, request: Request) -> TierKind:
    """Refuse with all reasons at once."""
    reasons = rules.partition_refusals(facts)
    if request.lake_partition is not None:
        reasons.append(rules.Refusal("in partition mode it has no lake", "leave --lake-partition out"))
    if request.relation_name is not None:
        reasons.append(rules.Refusal("in partition mode it has no relation", "leave --relation out"))
    if request.foreign_keys is not None:
        reasons.append(rules.Refusal("in partition mode it has no lake", "leave --foreign-keys out"))
    refuse("manage", request.name, reasons)
    kind = facts.tier_kind
    assert kind is not None
    policy.check(connection, kind, Mode.PARTITION, request.policy)
    return kind


def _table(connection: Connection, facts: HeapFacts, request: Request, kind: TierKind) -> Table:
    tier = facts.tier_column
    assert tier is not None
    table_id, token = tables.number(connection)
    return Table(
        id=table_id,
        token=token,
        name=request.name,
        columns=(),
        key=(),
        tier_key=tier.name,
        tier_kind=kind,
        lake_partition=None,
        policy=request.policy,
        mode=Mode.PARTITION,
    )


def _check_grid(connection: Connection, table: Table) -> None:
    """Partitions can be made ahead only on a grid."""
    problem = premake.plan(connection, table).problem
    if problem:
        hint = "say how wide new partitions are, for example --every '1 month', or --premake 0"
        raise UsageError(f"cannot manage {table.name}: {problem}", hint=hint)


def remove(connection: Connection, table: Table, *, dry_run: bool = False) -> tuple[str, ...]:
    """Forget the table. Nothing of it changes, also if it is gone already."""
    with jobs.exclusive(connection, table), connection.transaction(force_rollback=dry_run):
        leases.require(connection, table)
        if catalog_facts.exists(connection, table.name):
            premake.clean_up(connection, table)
        tables.delete(connection, table, with_jobs=True)
    return ()
