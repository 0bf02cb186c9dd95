"""Makes a table a managed one and gives it back, each in one transaction: there is no moment without the table."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from frostline.catalog import facts as catalog_facts
from frostline.catalog import generator, leases, locks, made, seams, tables
from frostline.catalog.connect import Connection
from frostline.catalog.locks import Lock
from frostline.catalog.made import Purpose
from frostline.catalog.patience import set_lock_timeout
from frostline.errors import UnavailableError, UsageError
from frostline.model import registration as rules
from frostline.model.names import Name, quoted
from frostline.model.partitions import bounds
from frostline.model.policy import ForeignKeys, Mode, Policy
from frostline.model.registration import HeapFacts, Refusal
from frostline.model.tables import Table
from frostline.model.tiers import TierKind
from frostline.model.types import encoding
from frostline.relation import dependents, foreign_keys, foreign_server, names, objects, policy, renewal
from frostline.relation.definition import comments, default_partition
from frostline.relation.objects import SequenceRight, template
from frostline.relation.views import domain_name, needs_domain

LOCK_TIMEOUT_MS = 5_000
"""How long registration may wait for the table's lock; everybody else queues behind it meanwhile."""


@dataclass(frozen=True)
class Added:
    """What `table add` did, or with `dry_run` would do."""

    table: Table
    changed: bool
    statements: tuple[str, ...]
    foreign_keys: tuple[str, ...] = ()
    """What each foreign key of the table means for rows in the lake, and what it costs."""


@dataclass(frozen=True)
class Origin:
    """What a table was in a catalog that is lost, as its lake tells."""

    table_id: int
    token: str
    lake_partition: str
    field_ids: Mapping[str, int]
    """By the names of the columns."""
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Their missing values, of those that have one."""

    @staticmethod
    def of(table: Table) -> "Origin":
        """Of a table as it is to be again."""
        assert table.lake_partition is not None
        fields = {column.name: column.field_id for column in table.columns}
        missing = {column.name: column.missing for column in table.columns if column.missing is not None}
        return Origin(table.id, table.token, table.lake_partition, fields, missing)


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    name: Name
    policy: Policy
    lake_partition: str | None = None
    relation_name: str | None = None
    """The table keeps its name, and the relation gets this one, in the same schema."""
    origin: Origin | None = None
    """Of a table whose lake is there already: docs/design/guards.md."""
    foreign_keys: ForeignKeys | None = None


def add(connection: Connection, request: Request, *, dry_run: bool = False) -> Added:
    """Register a table. Running it again is a no-op.

    ACCESS EXCLUSIVE on the table for as long as the catalog changes take, and SHARE ROW EXCLUSIVE on the tables that
    its foreign keys reference, after a wait of at most 5 s for each.
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
            _limit_waiting(connection)
            locks.take(connection, Lock.ACCESS_EXCLUSIVE, request.name)
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


@contextmanager
def changing(connection: Connection, table: Table, name: Name, *, dry_run: bool = False) -> Generator[None]:
    """The one transaction in which a managed table changes its form or ceases to be one; the caller holds its lease.

    UnavailableError, under the name that the user said, when a lock cannot be had within 5 s.
    """
    try:
        with connection.transaction(force_rollback=dry_run):
            leases.require(connection, table)
            _limit_waiting(connection)
            yield
    except psycopg.errors.LockNotAvailable:
        hint = "end the transactions that use it, then try again"
        raise UnavailableError(f"{name} is busy", hint=hint) from None


def _limit_waiting(connection: Connection) -> None:
    """For the rest of the transaction: no lock is waited for long, and Postgres prints every name in full."""
    set_lock_timeout(connection, LOCK_TIMEOUT_MS)
    connection.execute(sql.SQL("set local search_path = pg_catalog, pg_temp"))
    renewal.let_guard_pass(connection)


def _check(connection: Connection, request: Request) -> tuple[HeapFacts, TierKind]:
    """What the table is, or all reasons why it is refused at once. Locks nothing."""
    heap = catalog_facts.read(connection, request.name)
    reasons = form_refusals(connection, heap, request.relation_name)
    kind = heap.tier_kind
    if kind is not None and request.lake_partition is not None:
        problem = rules.check_lake_partition(request.lake_partition, kind)
        reasons += [problem] if problem else []
    if request.foreign_keys is not ForeignKeys.IGNORE:
        reasons += foreign_keys.refusals(connection, request.name)
    refuse("manage", request.name, reasons)
    assert kind is not None
    policy.check(connection, kind, Mode.TIERED, request.policy)
    return heap, kind


def refuse(doing: str, name: Name, reasons: Sequence[Refusal]) -> None:
    """Raise UsageError if there is any reason: with all of them, each with what to do about it."""
    if reasons:
        reason = "; ".join(refusal.reason for refusal in reasons)
        raise UsageError(f"cannot {doing} {name}: {reason}", hint="\n".join(refusal.hint for refusal in reasons))


def form_refusals(connection: Connection, heap: HeapFacts, relation_name: str | None) -> list[Refusal]:
    """Why the table cannot have its relation in its place, or beside it under another name."""
    if relation_name is None:
        return rules.refusals(heap)
    relation = Name(heap.name.schema, relation_name)
    return rules.refusals_beside(heap, relation, is_taken=catalog_facts.is_taken(connection, relation))


def _add(connection: Connection, request: Request) -> Added:
    # Read again under the lock: the table may have changed since the check.
    heap, kind = _check(connection, request)
    foreign_server.require(connection)
    table = _table(connection, heap, request, kind)
    if request.origin is not None:
        tables.leave_out(connection, table.id)
    tables.insert(connection, table)
    seams.insert(connection, table)
    # Beside the table, what names the table goes on reading it.
    before = dependents.NONE if table.relation_name else dependents.read(connection, heap.oid)
    granted = missing_rights(connection, heap)
    done: list[str] = []
    with generator.making(connection, table.id):
        for statement in _statements(connection, table, heap, before):
            done.append(statement.as_string(connection))
            connection.execute(statement)
    renewal.record(connection, table, granted)
    generator.record_constraints(connection, table.id)
    generator.note_generations(connection, table.id)
    generator.note_rights(connection, table.id)
    if not any(partition.is_default for partition in heap.partitions):
        ours = request.name.default_partition(otherwise=heap.default_name_taken)
        made.record(connection, table, ours, Purpose.DEFAULT)
    return Added(table, changed=True, statements=tuple(done), foreign_keys=tuple(foreign_keys.told(connection, table)))


def planned(connection: Connection, request: Request) -> Table:
    """The table that a request with an origin leads to; UsageError when it would be refused. Changes nothing."""
    assert request.origin is not None
    heap, kind = _check(connection, request)
    return _table(connection, heap, request, kind)


def _fresh(connection: Connection, heap: HeapFacts, request: Request, kind: TierKind) -> Origin:
    """What a table is that comes from nowhere."""
    table_id, token = tables.number(connection)
    lake_partition = request.lake_partition or rules.default_lake_partition(kind, _widths(heap, kind))
    fields = {column.name: position for position, column in enumerate(heap.columns, start=1)}
    return Origin(table_id, token, lake_partition, fields)


def _table(connection: Connection, heap: HeapFacts, request: Request, kind: TierKind) -> Table:
    tier = heap.tier_column
    assert tier is not None
    origin = request.origin or _fresh(connection, heap, request, kind)
    return Table(
        id=origin.table_id,
        token=origin.token,
        name=request.name,
        columns=tuple(
            replace(
                tables.column(column, origin.field_ids[column.name], encoding(column.pg_type, column.collation)),
                missing=origin.missing.get(column.name),
            )
            for column in heap.columns
        ),
        key=heap.primary_key,
        tier_key=tier.name,
        tier_kind=kind,
        lake_partition=origin.lake_partition,
        policy=request.policy,
        relation_name=request.relation_name,
        foreign_keys=request.foreign_keys or ForeignKeys.HOLD,
    )


def _widths(heap: HeapFacts, kind: TierKind) -> list[int]:
    limits = [bounds(kind, partition.bound) for partition in heap.partitions if not partition.is_default]
    return [upper - lower for lower, upper in limits if lower is not None and upper is not None]


def _statements(
    connection: Connection, table: Table, heap: HeapFacts, before: dependents.Dependents
) -> Iterator[sql.Composed]:
    """Each is run before the next is asked for: what is made depends on what is there."""
    yield from domains(connection, table)
    if table.relation_name is None:
        yield objects.rename_table(table.relation, table.heap)
    yield from default_partition(table, heap)
    for database_object in objects.read(connection, table.id):
        if database_object.is_wanted:
            yield from database_object.create
    yield from comments(table, heap)
    yield from renewal.kept_plans(connection, table)
    yield from rights(connection, table, heap)
    yield from dependents.statements(before)


def domains(connection: Connection, table: Table) -> Iterator[sql.Composed]:
    """Makes the domains that columns of the lake's tables need and that are not there yet."""
    wanted = {domain_name(column): column.pg_type.formatted for column in table.columns if needs_domain(column)}
    for domain, base in sorted(wanted.items()):
        if not catalog_facts.rows(connection, "domain_exists", domain=domain)[0][0]:
            yield template("domain").format(domain=sql.Identifier(domain), base=names.trusted(base))


def rights(connection: Connection, table: Table, heap: HeapFacts) -> Iterator[sql.Composed]:
    """The relation gets the heap's owner and grants, and whoever inserts the sequences of its defaults."""
    relation, owner = names.identifier(table.relation), sql.Identifier(heap.owner)
    yield template("grant_inner").format(inner=names.inner(table), owner=owner)
    yield template("owner").format(relation=relation, owner=owner)
    view = catalog_facts.relation(connection, table.relation)
    if view is not None:  # default privileges have given what nobody had on the table
        yield from revocations(connection, view.oid, heap.oid, relation)
    yield from grants(connection, heap.oid, relation)
    for right in missing_rights(connection, heap):
        yield template("grant_sequence").format(sequence=names.trusted(right.sequence), grantee=grantee(right.role))


def missing_rights(connection: Connection, heap: HeapFacts) -> list[SequenceRight]:
    """An identity column needs no right on its sequence, but a view's default does: whoever may insert and has none."""
    inserters = _inserters(connection, heap.oid)
    return [
        SequenceRight(column.identity_sequence, role)
        for column in heap.columns
        if column.identity_sequence
        for role in inserters
        if (role,) not in catalog_facts.rows(connection, "sequence_users", sequence=column.identity_sequence)
    ]


def grants(connection: Connection, oid: int, target: sql.Identifier) -> Iterator[sql.Composed]:
    """What was granted on one relation, to be granted on another of the same columns."""
    for grant in catalog_facts.grants(connection, oid):
        if grant.privilege in _VIEW_PRIVILEGES:
            option = sql.SQL(" with grant option" if grant.is_grantable else "")
            yield template("grant").format(**_parts(grant, target), option=option)


def revocations(connection: Connection, oid: int, wanted: int, target: sql.Identifier) -> Iterator[sql.Composed]:
    """What is granted on one relation, called `target`, and not on the wanted one, to be revoked."""
    kept = {(grant.grantee, grant.privilege, grant.column) for grant in catalog_facts.grants(connection, wanted)}
    for grant in catalog_facts.grants(connection, oid):
        if grant.privilege in _VIEW_PRIVILEGES and (grant.grantee, grant.privilege, grant.column) not in kept:
            yield template("revoke").format(**_parts(grant, target))


def _parts(grant: catalog_facts.Grant, target: sql.Identifier) -> dict[str, sql.Composable]:
    column = grant.column
    return {
        "privilege": names.trusted(grant.privilege),
        "columns": sql.SQL("") if column is None else sql.SQL(" ({})").format(sql.Identifier(column)),
        "relation": target,
        "grantee": grantee(grant.grantee),
    }


def _inserters(connection: Connection, oid: int) -> list[str | None]:
    granted = catalog_facts.grants(connection, oid)
    return sorted({grant.grantee for grant in granted if grant.privilege == "INSERT"}, key=lambda role: role or "")


_VIEW_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "REFERENCES", "TRIGGER")


def grantee(role: str | None) -> sql.Composable:
    """A role in a GRANT or REVOKE; None is for all."""
    return sql.SQL("public") if role is None else sql.Identifier(role)
