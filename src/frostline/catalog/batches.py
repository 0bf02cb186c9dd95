"""Batches of rows on their way into a managed table: their labels, and the tables where they wait.

Everything here works with the rights of a role that has only grants: docs/design/spark-writes.md.
"""

from dataclasses import dataclass

from frostline import sqlfiles
from frostline.catalog import facts
from frostline.catalog.connect import Connection, fetch
from frostline.errors import UsageError
from frostline.model.names import Name

_statement = sqlfiles.statements(__name__, "queries/batch")

SCHEMA = "frostline_stage"


@dataclass(frozen=True)
class Target:
    """A column that a batch may write."""

    name: str
    formatted: str
    """Its type, as SQL writes it."""
    collation: str | None
    """Quoted and qualified, when it is not the database's default."""
    type_name: str
    """What its type is made of: a domain's base, an array's element, as `pg_type` calls it."""
    is_array: bool
    not_null: bool
    generated: bool
    has_default: bool
    is_tier_key: bool


@dataclass(frozen=True)
class Relation:
    """A managed table as a batch sees it."""

    name: Name
    columns: tuple[Target, ...]
    key: tuple[str, ...]

    def column(self, name: str) -> Target | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def tier_key(self) -> Target:
        """The column that decides the tier."""
        return next(column for column in self.columns if column.is_tier_key)


@dataclass(frozen=True)
class Claim:
    """What became of a batch's label."""

    is_new: bool
    """Nobody applied it before; the transaction has it now."""
    mode: str
    rows: int


def relation(connection: Connection, name: Name) -> Relation:
    """The columns and the key of a managed table, or of the one with that relation; UsageError when there is none."""
    row = connection.execute(_statement("relation"), {"schema": name.schema, "table": name.table}).fetchone()
    if row is None:
        raise not_managed(name)
    relation_name, view, heap = row
    ((key,),) = facts.rows(connection, "primary_key", oid=heap)
    return Relation(Name(name.schema, relation_name), columns(connection, view, heap), tuple(key or ()))


def columns(connection: Connection, relation: int, heap: int) -> tuple[Target, ...]:
    """The columns of a heap, with the defaults of its relation, by their oids."""
    return tuple(fetch(connection, Target, _statement("columns"), {"relation": relation, "heap": heap}))


def begin(connection: Connection, name: Name, label: str | None, mode: str, rows: int) -> Claim:
    """Inside the transaction that writes the batch: claim its label, and keep the table managed until the end."""
    values = {"schema": name.schema, "table": name.table, "label": label, "mode": mode, "rows": rows}
    for claim in fetch(connection, Claim, _statement("begin"), values):
        return claim
    raise not_managed(name)


def keep_session(connection: Connection) -> None:
    """Do not let Postgres end this session because it waits for Spark."""
    connection.execute(_statement("keep_session"))


def hold(connection: Connection, stage: str) -> None:
    """Say, for as long as this session lives, that the stage is in use; in the transaction that makes it."""
    connection.execute(_statement("hold"), {"stage": stage})


def abandoned(connection: Connection) -> list[str]:
    """The stages that this role may drop and that no session holds."""
    return [stage for (stage,) in connection.execute(_statement("abandoned")).fetchall()]


def not_managed(name: Name) -> UsageError:
    """The error for a name that is no managed table with a lake."""
    return UsageError(f"{name} is not a table that Frostline manages in two tiers", hint="frostline table list")
