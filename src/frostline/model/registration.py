"""What a table must be to be managed: the facts read from Postgres, and the reasons to refuse it."""

from dataclasses import dataclass

from frostline.model import lake_grid
from frostline.model.names import MAX_BYTES, Name
from frostline.model.partitions import bounds
from frostline.model.tiers import BY_TYPNAME, TierKind
from frostline.model.types import Collation, PgType

RESERVED_PREFIX = "frostline_"
MOST_COLUMNS = 799
"""An UPDATE passes the old and the new row through one view, and Postgres allows a view 1,600 columns."""
MOST_SECURED_COLUMNS = 100
"""Policies are asked by functions with an argument for each column, and Postgres allows this many arguments."""
_EXACT_KEYS = frozenset(
    (
        *("bool", "int2", "int4", "int8", "oid", "date", "timestamp", "timestamptz", "time", "timetz", "uuid", "bytea"),
        *("text", "varchar", "bpchar", "name", "char", "bit", "varbit"),
        *("inet", "cidr", "macaddr", "macaddr8", "pg_lsn"),
        *("int4range", "int8range", "daterange", "tsrange", "tstzrange"),
    )
)
"""Postgres' own types of which two values are equal exactly when their lake forms are. Of others we cannot know."""


@dataclass(frozen=True)
class HeapColumn:
    """A column of the table as Postgres' catalogs describe it."""

    attnum: int
    name: str
    pg_type: PgType
    not_null: bool
    generated: bool
    identity: str
    """`a` always, `d` by default, empty when the column is not an identity."""
    default: str | None
    collation: Collation
    collation_name: str | None
    """Quoted and qualified, when it is not the database's default."""
    comment: str | None
    identity_sequence: str | None
    """Quoted and qualified."""


@dataclass(frozen=True)
class KeyType:
    """What a column of the primary key is made of: the type inside its domains and arrays."""

    column: str
    formatted: str
    """The column's own type, as SQL writes it."""
    inside: str
    """`pg_type.typname` of the type inside."""
    builtin: bool
    is_enum: bool
    has_modifier: bool
    has_strange_domain: bool = False
    """A role that is neither ours nor a superuser can give it a check, which would run when we look a key up."""

    @property
    def is_exact(self) -> bool:
        """Whether equal values have one lake form. A numeric with a scale has one, without it 1.0 and 1.00 are two."""
        if not self.builtin:
            return self.is_enum
        return self.inside in _EXACT_KEYS or (self.inside == "numeric" and self.has_modifier)


@dataclass(frozen=True)
class HeapPartition:
    """A partition with its bounds as Postgres prints them."""

    name: Name
    relkind: str
    bound: str
    oid: int
    size_bytes: int
    rows_estimate: int
    is_unlogged: bool = False

    @property
    def is_default(self) -> bool:
        """Whether it takes what no other partition does."""
        return self.bound == "DEFAULT"


@dataclass(frozen=True)
class Refusal:
    """One reason why a table cannot be managed, and what to do about it."""

    reason: str
    hint: str


@dataclass(frozen=True)
class HeapFacts:
    """Everything registration needs to know about the user's table."""

    name: Name
    oid: int
    relkind: str
    persistence: str
    owner: str
    owner_is_ours: bool
    """The connected role may act as the owner."""
    strategy: str | None
    key_parts: int
    tier_attnum: int | None
    is_partition: bool
    row_security: bool
    columns: tuple[HeapColumn, ...]
    primary_key: tuple[str, ...]
    partitions: tuple[HeapPartition, ...]
    default_has_rows: bool
    inbound_foreign_keys: tuple[str, ...]
    materialized_views: tuple[str, ...]
    row_type_users: tuple[str, ...]
    heap_name_taken: bool
    comment: str | None
    is_typed: bool = False
    """CREATE TABLE OF: whoever alters the type alters its columns."""
    default_name_taken: bool = False
    """Something else has the name that our DEFAULT partition would get."""
    key_types: tuple[KeyType, ...] = ()
    checked_views: tuple[str, ...] = ()
    """Views on it WITH CHECK OPTION."""
    grouping_views: tuple[str, ...] = ()
    """Views that rely on its primary key: GROUP BY id, and columns that it does not name."""
    other_policies: tuple[str, ...] = ()
    """Policies of other tables that read it."""
    dangers: tuple[Refusal, ...] = ()
    """Code of a role with fewer rights than ours that would run with ours."""
    loud: tuple[Refusal, ...] = ()
    """Triggers that would fire when a fold deletes rows."""

    @property
    def tier_column(self) -> HeapColumn | None:
        """The one column the table is partitioned by, if that is what it is."""
        return next((column for column in self.columns if column.attnum == self.tier_attnum), None)

    @property
    def tier_kind(self) -> TierKind | None:
        """The type of that column, if it is one of the six that can decide a tier."""
        column = self.tier_column
        if column is None or not column.pg_type.builtin:
            return None
        return BY_TYPNAME.get(column.pg_type.name)


def refusals(facts: HeapFacts) -> list[Refusal]:
    """Every reason at once; an empty list means that a relation can take the table's place."""
    if facts.relkind != "p":
        return [_not_partitioned(facts)]
    return [*_of_itself(facts), *_surroundings(facts), *_readers(facts)]


def refusals_beside(facts: HeapFacts, relation: Name, *, is_taken: bool) -> list[Refusal]:
    """The same for a relation beside the table. What names the table goes on naming it, so nothing of that counts."""
    if facts.relkind != "p":
        return [_not_partitioned(facts)]
    refusals = [*_of_itself(facts), *_secured(facts)]
    if is_taken or relation in (facts.name, facts.name.default_partition()):
        refusals.append(Refusal(f"the name {relation} is already taken", "give the relation another one"))
    if len(relation.table.encode()) > MAX_BYTES:
        refusals.append(Refusal(f"the name {relation} is too long", f"use at most {MAX_BYTES} bytes"))
    return refusals


def _of_itself(facts: HeapFacts) -> list[Refusal]:
    """What is wrong with the table, wherever its relation stands."""
    own = [*_shape(facts), *column_refusals(facts), *_keys(facts), *_partitions(facts)]
    return [*own, *facts.dangers, *facts.loud]


def partition_refusals(facts: HeapFacts) -> list[Refusal]:
    """The same for a table of which only the partitions are to be managed: it may be almost any."""
    kind = facts.tier_kind
    if facts.relkind != "p":
        return [_not_partitioned(facts)]
    ranges = [partition for partition in facts.partitions if not partition.is_default] if kind is not None else []
    unreadable = (refusal for partition in ranges if kind for refusal in _unreadable_bound(kind, partition))
    return [*_shape(facts), *unreadable, *facts.dangers]


def _not_partitioned(facts: HeapFacts) -> Refusal:
    if facts.relkind == "r":
        return Refusal(
            f"{facts.name} is not partitioned",
            "make it a table PARTITION BY RANGE (tier key), for instance with one partition a month",
        )
    return Refusal(f"{facts.name} is not a table", "name an ordinary partitioned table")


def _shape(facts: HeapFacts) -> list[Refusal]:
    refusals: list[Refusal] = []
    if facts.persistence != "p":
        refusals.append(Refusal("the table is temporary or unlogged", "only permanent tables can be archived"))
    if facts.is_partition:
        refusals.append(Refusal("the table is itself a partition", "register the table it is a partition of"))
    if facts.is_typed:
        refusals.append(Refusal("it is a typed table", f"alter table {facts.name} not of"))
    if not facts.owner_is_ours:
        reason = f"the connected role may not act as its owner {facts.owner}"
        refusals.append(Refusal(reason, f"grant {facts.owner} to it"))
    if facts.strategy != "r" or facts.key_parts != 1 or facts.tier_column is None:
        reason = "it is not RANGE-partitioned by exactly one column"
        refusals.append(Refusal(reason, "partition it by range of one time or integer column"))
    elif facts.tier_kind is None:
        kind = facts.tier_column.pg_type.formatted
        refusals.append(
            Refusal(
                f"its tier key {facts.tier_column.name} is of type {kind}",
                "partition it by a timestamptz, timestamp, date, smallint, integer or bigint column",
            )
        )
    return refusals


def column_refusals(facts: HeapFacts) -> list[Refusal]:
    """What is against the table's columns."""
    refusals: list[Refusal] = []
    if not facts.primary_key:
        refusals.append(Refusal("it has no primary key", f"alter table {facts.name} add primary key (...)"))
    if len(facts.columns) > MOST_COLUMNS:
        hint = "put the columns that are seldom used into another table"
        refusals.append(Refusal(f"it has more than {MOST_COLUMNS} columns", hint))
    tier = facts.tier_column
    if tier is not None and not tier.not_null:
        hint = f"alter table {facts.name} alter column {tier.name} set not null"
        refusals.append(Refusal(f"its tier key {tier.name} is nullable", hint))
    reserved = [column.name for column in facts.columns if column.name.startswith(RESERVED_PREFIX)]
    hint = f"rename it: {RESERVED_PREFIX}* is Frostline's"
    return refusals + [Refusal(f"column {name} has a reserved name", hint) for name in reserved]


def _keys(facts: HeapFacts) -> list[Refusal]:
    """Marks find their rows in the lake by the form that the key has there, so equal keys must have the same."""
    hint = "use a key of integer, text, uuid, date, timestamp or numeric(p,s) columns"
    refusals = [
        Refusal(
            f"its key column {key_type.column} is of type {key_type.formatted}, "
            "whose equal values can be written in two ways",
            hint,
        )
        for key_type in facts.key_types
        if not key_type.is_exact
    ]
    refusals.extend(
        Refusal(
            f"its key column {key_type.column} is of another role's domain {key_type.formatted}, "
            "whose checks would run as ours",
            "use the type that the domain is made of, or let a superuser own the domain",
        )
        for key_type in facts.key_types
        if key_type.has_strange_domain
    )
    for column in facts.columns:
        if column.name in facts.primary_key and column.collation is Collation.NONDETERMINISTIC:
            reason = f"its key column {column.name} has the nondeterministic collation {column.collation_name}"
            refusals.append(Refusal(reason, "give it a collation under which only the same text is equal"))
    return refusals


def _partitions(facts: HeapFacts) -> list[Refusal]:
    refusals: list[Refusal] = []
    for partition in facts.partitions:
        if partition.relkind != "r":
            hint = "detach it, or merge its sub-partitions"
            refusals.append(Refusal(f"partition {partition.name} is not a plain table", hint))
            continue
        if partition.is_unlogged:
            reason = f"partition {partition.name} is unlogged: a crash of Postgres would empty it"
            refusals.append(Refusal(reason, f"alter table {partition.name} set logged"))
        if facts.tier_kind is not None and not partition.is_default:
            refusals.extend(_unreadable_bound(facts.tier_kind, partition))
    if facts.default_has_rows:
        refusals.append(Refusal("its DEFAULT partition holds rows", "move them into partitions of their own first"))
    return refusals


def _unreadable_bound(kind: TierKind, partition: HeapPartition) -> list[Refusal]:
    try:
        bounds(kind, partition.bound)
    except ValueError as error:
        return [Refusal(f"partition {partition.name}: {error}", "give it plain bounds")]
    return []


def _surroundings(facts: HeapFacts) -> list[Refusal]:
    keys, views, users = facts.inbound_foreign_keys, facts.materialized_views, facts.row_type_users
    of_keys = "drop it, or let the table keep its name: --relation NAME"
    of_views = "drop it, register, and create it again"
    refusals = [
        *(Refusal(f"foreign key {key} points at it", of_keys) for key in keys),
        *(Refusal(f"materialized view {view} reads it", of_views) for view in views),
        *(Refusal(f"{user} uses its row type", "change it to named columns") for user in users),
    ]
    if facts.heap_name_taken:
        refusals.append(Refusal(f"the name {facts.name.heap} is already taken", "rename that one"))
    if len(facts.name.heap.table.encode()) > MAX_BYTES:
        refusals.append(Refusal("its name is too long to put _ before it", f"use at most {MAX_BYTES - 1} bytes"))
    return refusals


def _readers(facts: HeapFacts) -> list[Refusal]:
    """What names the table and could not go on as it is when a view takes its place."""
    anew = "drop it, register, and create it again"
    refusals = [
        *(Refusal(f"policy {policy} reads it", anew) for policy in facts.other_policies),
        *(
            Refusal(
                f"view {view} has WITH CHECK OPTION, which does nothing above it",
                f"alter view {view} reset (check_option)",
            )
            for view in facts.checked_views
        ),
        *(
            Refusal(f"view {view} groups by its primary key alone", "name every column of the view in its GROUP BY")
            for view in facts.grouping_views
        ),
    ]
    return [*refusals, *_secured(facts)]


def _secured(facts: HeapFacts) -> list[Refusal]:
    refusals: list[Refusal] = []
    if facts.row_security and len(facts.columns) > MOST_SECURED_COLUMNS:
        reason = f"it has row security and more than {MOST_SECURED_COLUMNS} columns"
        refusals.append(Refusal(reason, "let roles read it through views with conditions of their own"))
    return refusals


def default_lake_partition(kind: TierKind, widths: list[int]) -> str:
    """The grid for a table whose finite partitions have these widths: months, or the commonest integer width."""
    if kind.is_time:
        return "month"
    return f"truncate[{max(set(widths), key=widths.count) if widths else 1_000_000}]"


def check_lake_partition(transform: str, kind: TierKind) -> Refusal | None:
    """Why the requested `--lake-partition` cannot be had, if so."""
    problem = lake_grid.check(transform, kind)
    return None if problem is None else Refusal(f"lake partition {problem}", "choose one of those, or leave it out")
