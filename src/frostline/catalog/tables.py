"""Managed tables: reading, adding and removing their rows in the catalog."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection, fetch, first_value, only_row, only_value
from frostline.errors import ConflictError, CorruptionError, UsageError
from frostline.model.names import Name
from frostline.model.policy import ExpireBy, ForeignKeys, Mode, Policy
from frostline.model.registration import HeapColumn
from frostline.model.tables import Column, Table
from frostline.model.tiers import TierKind
from frostline.model.types import LakeEncoding

_statement = sqlfiles.statements(__name__, "queries/table")


@dataclass(frozen=True)
class _Row:
    """A row of `managed_table`; periods as text, whatever they count in."""

    table_id: int
    schema_name: str
    table_name: str
    relation_name: str | None
    tier_key: str
    tier_kind: str
    lake_partition: str | None
    mode: str
    held_from: int | None
    token: str
    foreign_keys: str
    first_schema: str | None
    first_name: str | None
    hot_period: str | None
    grace_period: str
    retention_period: str | None
    partition_interval: str | None
    premake: int
    expire_by: str
    fold_rows: int
    fold_age: str
    snapshot_retention: str
    target_file_size: int


@dataclass(frozen=True)
class _Carried:
    """A row of `managed_column`, with the column's number today."""

    attnum: int
    field_id: int
    lake_type: str
    as_text: bool
    pushable: bool
    is_later: bool
    missing: str | None
    remote_name: str | None

    @property
    def encoding(self) -> LakeEncoding:
        return LakeEncoding(self.lake_type, self.as_text, self.pushable)


def _rows(connection: Connection, *, name: Name | None = None, table_id: int | None = None) -> list[_Row]:
    """All rows, by name, or the one of a name or of a number."""
    values = {"table_id": table_id, "schema": name and name.schema, "table": name and name.table}
    return fetch(connection, _Row, _statement("find"), values)


def list_all(connection: Connection) -> list[Table]:
    """All managed tables, by name."""
    return [_table(connection, row) for row in _rows(connection)]


def names(connection: Connection) -> list[Name]:
    """The names of all managed tables, whatever state their heaps are in."""
    return [Name(*row) for row in connection.execute(_statement("names")).fetchall()]


def heaps(connection: Connection) -> dict[Name, Name]:
    """By the names of all managed tables, what their heaps are called."""
    return {Name(schema, table): Name(schema, heap) for schema, table, heap in connection.execute(_statement("heaps"))}


def own_name(connection: Connection, name: Name) -> Name:
    """The managed table's own name, where this is what its relation is called; any other name as it is."""
    row = connection.execute(_statement("own_name"), {"schema": name.schema, "table": name.table}).fetchone()
    return name if row is None else Name(*row)


def tiered(connection: Connection) -> list[Table]:
    """The managed tables that have a lake, by name."""
    return [table for table in list_all(connection) if table.has_lake]


def find(connection: Connection, name: Name) -> Table | None:
    """The managed table of that name, or with a relation of that name, if there is one."""
    return next((_table(connection, row) for row in _rows(connection, name=name)), None)


def get(connection: Connection, name: Name) -> Table:
    """The managed table of that name; UsageError when it is not managed."""
    table = find(connection, name)
    if table is None:
        raise UsageError(f"{name} is not managed by Frostline", hint="frostline table list")
    return table


def with_lake(connection: Connection, name: Name) -> Table:
    """The managed table of that name; UsageError when it is not managed, or has no lake."""
    table = get(connection, name)
    if not table.has_lake:
        hint = "only its partitions are managed: frostline premake, frostline retain"
        raise UsageError(f"{name} is in partition mode and has no lake", hint=hint)
    return table


def require_mode(table: Table, mode: Mode) -> None:
    """UsageError when the table is managed in another mode."""
    if table.mode is not mode:
        hint = f"frostline table remove {table.name}, then add it again"
        raise UsageError(f"{table.name} is managed already, in mode {table.mode}", hint=hint)


def without_columns(connection: Connection, name: Name) -> Table:
    """The managed table of that name as far as the catalog alone knows it, whether or not its heap is there."""
    for row in _rows(connection, name=name):
        return _bare(row)
    raise UsageError(f"{name} is not managed by Frostline", hint="frostline table list")


def by_id(connection: Connection, table_id: int) -> Table:
    """The managed table with that number; UsageError when there is none."""
    for row in _rows(connection, table_id=table_id):
        return _table(connection, row)
    raise UsageError(f"there is no managed table {table_id}", hint="frostline table list")


def _table(connection: Connection, row: _Row) -> Table:
    table = _bare(row)
    return _described(connection, table) if table.has_lake else table


def _bare(row: _Row) -> Table:
    return Table(
        id=row.table_id,
        name=Name(row.schema_name, row.table_name),
        columns=(),
        key=(),
        tier_key=row.tier_key,
        tier_kind=TierKind(row.tier_kind),
        lake_partition=row.lake_partition,
        policy=_policy(row),
        mode=Mode(row.mode),
        held_from=row.held_from,
        relation_name=row.relation_name,
        token=row.token,
        foreign_keys=ForeignKeys(row.foreign_keys),
        first_name=Name(row.first_schema, row.first_name) if row.first_schema and row.first_name else None,
    )


def _policy(row: _Row) -> Policy:
    return Policy(
        hot_period=row.hot_period,
        grace_period=row.grace_period,
        retention_period=row.retention_period,
        partition_interval=row.partition_interval,
        premake=row.premake,
        expire_by=ExpireBy(row.expire_by),
        fold_rows=row.fold_rows,
        fold_age=row.fold_age,
        snapshot_retention=row.snapshot_retention,
        target_file_size=row.target_file_size,
    )


def _described(connection: Connection, table: Table) -> Table:
    """With the columns and the key of a table with a lake. Without one nobody asks, and the table may be gone."""
    oid = heap_oid(connection, table)
    rows = fetch(connection, _Carried, _statement("columns"), {"table_id": table.id, "oid": oid})
    carried = {row.attnum: row for row in rows}
    key = only_value(connection.execute(_statement("key"), {"table_id": table.id, "oid": oid}))
    columns = (
        replace(
            column(heap, known.field_id, known.encoding, is_later=known.is_later),
            missing=known.missing,
            remote_name=known.remote_name,
        )
        for heap in facts.read_columns(connection, oid, defaults=False)
        if (known := carried.get(heap.attnum)) is not None
    )
    return replace(table, columns=tuple(columns), key=tuple(key or ()))


def heap_oid(connection: Connection, table: Table) -> int:
    """The heap of a managed table; CorruptionError when it is gone."""
    heap, name = table.heap, table.name
    row = connection.execute(_statement("heap_oid"), {"schema": heap.schema, "table": heap.table}).fetchone()
    if row is None:
        adopt, give_up = f"frostline table adopt {name}", f"frostline table remove {name}"
        raise CorruptionError(
            f"the heap {heap} of managed table {name} is gone",
            hint=f"restore it, or: {adopt if table.has_lake else give_up}",
        )
    return row[0]


def require_unaltered(connection: Connection, table: Table) -> Table:
    """The table as it is; ConflictError when its columns or its key are not those that it had when it was read."""
    current = by_id(connection, table.id)
    changed = current.difference(table)
    if changed is not None:
        raise altered(table, changed)
    return current


def altered(table: Table, changed: str | None = None) -> ConflictError:
    """What a job says that finds other columns than it has planned with, and what has changed, if it is known."""
    what = f"the columns of {table.name} have changed since the run began"
    return ConflictError(what if changed is None else f"{what}: {changed}", hint="try again")


def column(heap: HeapColumn, field_id: int, encoding: LakeEncoding, *, is_later: bool = False) -> Column:
    """A heap column with the way it travels."""
    return Column(
        name=heap.name,
        attnum=heap.attnum,
        field_id=field_id,
        pg_type=heap.pg_type,
        encoding=encoding,
        collation=heap.collation,
        not_null=heap.not_null,
        collation_name=heap.collation_name,
        generated=heap.generated,
        is_later=is_later,
    )


def number(connection: Connection) -> tuple[int, str]:
    """The number and the token of a table that is about to be inserted."""
    table_id, token = only_row(connection.execute(_statement("number")))
    return table_id, token


def is_taken(connection: Connection, table_id: int) -> bool:
    """Whether a managed table has that number."""
    return bool(_rows(connection, table_id=table_id))


def leave_out(connection: Connection, table_id: int) -> None:
    """No table that comes later gets this number."""
    connection.execute(_statement("leave_out"), {"table_id": table_id})


def insert(connection: Connection, table: Table) -> None:
    """Add the table's rows."""
    values = {
        "table_id": table.id,
        "token": table.token,
        "schema": table.name.schema,
        "table": table.name.table,
        "relation": table.relation_name,
        "tier_key": table.tier_key,
        "tier_kind": table.tier_kind.value,
        "lake_partition": table.lake_partition,
        "mode": table.mode.value,
        "foreign_keys": table.foreign_keys.value,
        **_policy_values(table.tier_kind, table.policy),
    }
    connection.execute(_statement("insert"), values)
    replace_columns(connection, table, table.columns)


def replace_columns(connection: Connection, table: Table, columns: Iterable[Column]) -> None:
    """Write down how the table's columns travel, these and no others."""
    connection.execute(_statement("delete_columns"), {"table_id": table.id})
    for added in columns:
        connection.execute(_statement("insert_column"), _column_values(table, added))


def insert_dropped(connection: Connection, table: Table, dropped: Mapping[int, tuple[str, str]]) -> None:
    """Write down which fields an adopted lake had, by id, with name and lake type: none is given to a new column."""
    values = {
        "table_id": table.id,
        "field_ids": list(dropped),
        "names": [name for name, _ in dropped.values()],
        "lake_types": [kind for _, kind in dropped.values()],
    }
    connection.execute(_statement("insert_dropped"), values)


def _column_values(table: Table, added: Column) -> dict[str, Any]:
    return {
        "table_id": table.id,
        "attnum": added.attnum,
        "field_id": added.field_id,
        "lake_type": added.encoding.lake_type,
        "as_text": added.encoding.as_text,
        "pushable": added.encoding.pushable,
        "is_later": added.is_later,
        "missing": added.missing,
        "name": added.name,
        "remote_name": added.remote_name or added.name,
    }


def delete(connection: Connection, table: Table, *, with_jobs: bool = False) -> None:
    """Forget the table; its seam and records go with it. Its jobs stay under its name, unless told otherwise."""
    connection.execute(_statement("delete_pins"), {"table_id": table.id})
    jobs = [job_id for (job_id,) in connection.execute(_statement("name_jobs"), {"table_id": table.id})]
    connection.execute(_statement("delete"), {"table_id": table.id})
    if with_jobs:
        connection.execute(_statement("delete_jobs"), {"jobs": jobs})


def _policy_values(kind: TierKind, policy: Policy) -> dict[str, Any]:
    """The policy as the catalog keeps it: periods of times as intervals, of integers as numbers."""
    periods = {"hot": policy.hot_period, "retention": policy.retention_period, "every": policy.partition_interval}
    unit, other = ("interval", "span") if kind.is_time else ("span", "interval")
    return {
        **{f"{name}_{unit}": value for name, value in periods.items()},
        **{f"{name}_{other}": None for name in periods},
        "grace": policy.grace_period,
        "premake": policy.premake,
        "expire_by": policy.expire_by.value,
        "fold_rows": policy.fold_rows,
        "fold_age": policy.fold_age,
        "snapshot_retention": policy.snapshot_retention,
        "target_file_size": policy.target_file_size,
    }


def set_policy(connection: Connection, table: Table, policy: Policy) -> None:
    """Change the table's policy; it is a valid one."""
    connection.execute(_statement("set_policy"), {"table_id": table.id, **_policy_values(table.tier_kind, policy)})


def set_relation(connection: Connection, table: Table, relation_name: str | None) -> Table:
    """Write down what the relation is called, None for the table's own name, and return the table as it is then."""
    connection.execute(_statement("set_relation"), {"table_id": table.id, "relation": relation_name})
    return replace(table, relation_name=relation_name)


def set_foreign_keys(connection: Connection, table: Table, foreign_keys: ForeignKeys) -> Table:
    """Write down what the table's foreign keys mean for rows in the lake, and return the table as it is then."""
    connection.execute(_statement("set_foreign_keys"), {"table_id": table.id, "foreign_keys": foreign_keys.value})
    return replace(table, foreign_keys=foreign_keys)


def now(connection: Connection) -> datetime:
    """What time it is in Postgres."""
    return only_value(connection.execute(_statement("now")))


def swept_at(connection: Connection, table: Table) -> datetime:
    """When the table's folder was last swept, or the table added."""
    return only_value(connection.execute(_statement("swept_at"), {"table_id": table.id}))


def set_swept(connection: Connection, table: Table) -> None:
    """Write down that the table's folder was swept now."""
    connection.execute(_statement("set_swept"), {"table_id": table.id})


def has_row_security(connection: Connection, table: Table) -> bool:
    """Whether row security of the heap is switched on."""
    return bool(first_value(connection.execute(_statement("has_row_security"), {"table_id": table.id})))


def strayed_row_security(connection: Connection, only: Table | None = None) -> dict[Name, str]:
    """The tables whose row security is not what their relation applies, and how it differs; of all, or of one."""
    rows = connection.execute(_statement("strayed_row_security"), {"table_id": None if only is None else only.id})
    return {Name(schema, table): problem for schema, table, problem in rows}


def hold(connection: Connection, table: Table, line: int) -> None:
    """Write down, in the transaction that lowers the frost line, that archive must not raise it again by itself."""
    connection.execute(_statement("hold"), {"table_id": table.id, "line": line})


def release(connection: Connection, table: Table) -> None:
    """Let archive go on."""
    connection.execute(_statement("release"), {"table_id": table.id})


def lower(connection: Connection, table: Table) -> None:
    """Write down, in the transaction that empties the table, that the frost line is lower, and that nothing is held."""
    connection.execute(_statement("lower"), {"table_id": table.id})


def lowered_xid(connection: Connection, table: Table) -> str | None:
    """The transaction that lowered the frost line last, if one did on this server."""
    return first_value(connection.execute(_statement("lowered_xid"), {"table_id": table.id}))
