"""Makes a table a managed one and gives it back, each in one transaction: there is no moment without the table."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline.catalog import facts as catalog_facts
from frostline.catalog import made, seams, tables
from frostline.catalog.connect import Connection
from frostline.catalog.made import Purpose
from frostline.errors import UnavailableError, UsageError
from frostline.model import registration as rules
from frostline.model.names import Name, quoted
from frostline.model.partitions import bounds
from frostline.model.policy import Mode, Policy
from frostline.model.registration import HeapFacts, Refusal
from frostline.model.tables import Column, Table
from frostline.model.tiers import TierKind
from frostline.model.types import encoding
from frostline.relation import dependents, foreign_server, names, plans, policy, renewal
from frostline.relation.definition import Definition
from frostline.relation.lakecolumns import domain_name, needs_domain
from frostline.relation.objects import template
from frostline.relation.refusal import refuse

LOCK_TIMEOUT_MS = 5_000
"""How long registration may wait for the table's lock; everybody else queues behind it meanwhile."""


@dataclass(frozen=True)
class Added:
    """What `table add` did, or with `dry_run` would do."""

    table: Table
    changed: bool
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    name: Name
    policy: Policy
    lake_partition: str | None = None
    relation_name: str | None = None
    """The table keeps its name, and the relation gets this one, in the same schema."""


def add(connection: Connection, request: Request, *, dry_run: bool = False) -> Added:
    """Register a table. Running it again is a no-op.

    ACCESS EXCLUSIVE on the table for as long as the catalog changes take, after a wait of at most 5 s.
    """
    existing = tables.find(connection, request.name)
    if existing is not None:
        tables.require_mode(existing, Mode.TIERED)
        _require_form(existing, request)
        return Added(existing, changed=False, statements=())
    if request.name in tables.heaps(connection).values():
        raise UsageError(f"{request.name} is the heap of a managed table", hint="frostline table list")
    _check(connection, request)
    try:
        with connection.transaction(force_rollback=dry_run):
            limit_waiting(connection)
            connection.execute(sql.SQL("lock table {} in access exclusive mode").format(names.identifier(request.name)))
            return _add(connection, request)
    except psycopg.errors.LockNotAvailable:
        raise UnavailableError(
            f"{request.name} is busy: its lock could not be had within {LOCK_TIMEOUT_MS // 1000} s",
            hint="find who holds it: select * from pg_stat_activity where state = 'idle in transaction'",
        ) from None


def _require_form(table: Table, request: Request) -> None:
    """UsageError when its relation has another name than the request gives it."""
    if request.relation_name not in (None, table.relation.table):
        hint = f"frostline table set {table.name} --relation {quoted(request.relation_name or '')}"
        raise UsageError(f"{table.name} is managed already, and its relation is {table.relation}", hint=hint)


def limit_waiting(connection: Connection) -> None:
    """For the rest of the transaction: no lock is waited for long, and Postgres prints every name in full."""
    connection.execute(sql.SQL("set local lock_timeout = {}").format(LOCK_TIMEOUT_MS))
    connection.execute(sql.SQL("set local search_path = pg_catalog, pg_temp"))
    renewal.let_guard_pass(connection)


def _check(connection: Connection, request: Request) -> TierKind:
    """Refuse with all reasons at once, before anything is locked."""
    found = catalog_facts.read(connection, request.name)
    reasons = form_refusals(connection, found, request.relation_name)
    kind = found.tier_kind
    if kind is not None and request.lake_partition is not None:
        problem = rules.check_lake_partition(request.lake_partition, kind)
        reasons += [problem] if problem else []
    refuse("manage", request.name, reasons)
    assert kind is not None
    policy.check(connection, kind, Mode.TIERED, request.policy)
    return kind


def form_refusals(connection: Connection, found: HeapFacts, relation_name: str | None) -> list[Refusal]:
    """Why the table cannot have its relation in its place, or beside it under another name."""
    if relation_name is None:
        return rules.refusals(found)
    relation = Name(found.name.schema, relation_name)
    is_taken = catalog_facts.rows(connection, "type_name_exists", schema=relation.schema, name=relation.table)[0][0]
    return rules.refusals_beside(found, relation, is_taken=is_taken)


def _add(connection: Connection, request: Request) -> Added:
    # Read again under the lock: the table may have changed since the check.
    kind = _check(connection, request)
    found = catalog_facts.read(connection, request.name)
    foreign_server.require(connection)
    table = _table(connection, found, request, kind)
    tables.insert(connection, table)
    seams.insert(connection, table)
    # Beside the table, what names the table goes on reading it.
    before = dependents.NONE if table.relation_name else dependents.read(connection, found.oid)
    done: list[str] = []
    for statement in _statements(connection, table, found, before):
        done.append(statement.as_string(connection))
        connection.execute(statement)
    renewal.record(connection, Definition(table, found))
    if not any(partition.is_default for partition in found.partitions):
        ours = request.name.default_partition(otherwise=found.default_name_taken)
        made.record(connection, table, ours, Purpose.DEFAULT)
    return Added(table, changed=True, statements=tuple(done))


def _table(connection: Connection, found: HeapFacts, request: Request, kind: TierKind) -> Table:
    tier = found.tier_column
    assert tier is not None
    table_id, token = tables.number(connection)
    return Table(
        id=table_id,
        token=token,
        name=request.name,
        columns=tuple(_columns(found)),
        key=found.primary_key,
        tier_key=tier.name,
        tier_kind=kind,
        lake_partition=request.lake_partition or rules.default_lake_partition(kind, _widths(found, kind)),
        policy=request.policy,
        relation_name=request.relation_name,
    )


def _columns(found: HeapFacts) -> Iterator[Column]:
    for position, column in enumerate(found.columns, start=1):
        yield tables.column(column, position, encoding(column.pg_type, column.collation))


def _widths(found: HeapFacts, kind: TierKind) -> list[int]:
    limits = [bounds(kind, partition.bound) for partition in found.partitions if not partition.is_default]
    return [upper - lower for lower, upper in limits if lower is not None and upper is not None]


def _statements(
    connection: Connection, table: Table, found: HeapFacts, before: dependents.Dependents
) -> Iterator[sql.Composed]:
    yield from _domains(connection, table)
    yield from Definition(table, found).statements()
    yield from plans.statements(connection, table)
    yield from _rights(connection, table, found)
    yield from dependents.statements(before)


def _domains(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    wanted = {domain_name(column): column.pg_type.formatted for column in table.columns if needs_domain(column)}
    for domain, base in sorted(wanted.items()):
        if not catalog_facts.rows(connection, "domain_exists", domain=domain)[0][0]:
            yield template("domain").format(domain=sql.Identifier(domain), base=names.trusted(base))


def _rights(connection: Connection, table: Table, found: HeapFacts) -> Iterator[sql.Composed]:
    relation, owner = names.identifier(table.relation), sql.Identifier(found.owner)
    yield template("grant_inner").format(inner=names.inner(table), owner=owner)
    yield template("owner").format(relation=relation, owner=owner)
    yield from grants(connection, found.oid, relation)
    # An identity column needs no right on its sequence, but a view's default does.
    for column in found.columns:
        if column.identity_sequence:
            for grantee in _inserters(connection, found.oid):
                sequence = names.trusted(column.identity_sequence)
                yield template("grant_sequence").format(sequence=sequence, grantee=_grantee(grantee))


def grants(connection: Connection, oid: int, target: sql.Identifier) -> Iterator[sql.Composed]:
    """What was granted on one relation, to be granted on another of the same columns."""
    for grantee, privilege, grantable in catalog_facts.rows(connection, "table_grants", oid=oid):
        if privilege in _VIEW_PRIVILEGES:
            yield _grant(target, privilege, None, grantee, grantable=grantable)
    for column, grantee, privilege, grantable in catalog_facts.rows(connection, "column_grants", oid=oid):
        yield _grant(target, privilege, column, grantee, grantable=grantable)


def _inserters(connection: Connection, oid: int) -> list[str | None]:
    on_table = catalog_facts.rows(connection, "table_grants", oid=oid)
    on_columns = catalog_facts.rows(connection, "column_grants", oid=oid)
    found = [(row[0], row[1]) for row in on_table] + [(row[1], row[2]) for row in on_columns]
    return sorted({grantee for grantee, privilege in found if privilege == "INSERT"}, key=lambda role: role or "")


_VIEW_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "REFERENCES", "TRIGGER")


def _grant(
    relation: sql.Identifier, privilege: str, column: str | None, grantee: str | None, *, grantable: bool
) -> sql.Composed:
    return template("grant").format(
        privilege=names.trusted(privilege),
        columns=sql.SQL("") if column is None else sql.SQL(" ({})").format(sql.Identifier(column)),
        relation=relation,
        grantee=_grantee(grantee),
        option=sql.SQL(" with grant option" if grantable else ""),
    )


def _grantee(role: str | None) -> sql.Composable:
    return sql.SQL("public") if role is None else sql.Identifier(role)
