"""The table where the rows of a batch wait until they are applied: docs/design/spark-writes.md."""

import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from frostline import logs, sqlfiles
from frostline.catalog import batches, patience
from frostline.catalog.batches import Relation, Target
from frostline.catalog.connect import Connection
from frostline.errors import ConflictError, UsageError
from frostline.model.names import quoted
from frostline.relation import names

statement = sqlfiles.statements(__name__, "staging")
"""A template of `sql/staging.sql`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """A staging table and what its columns are for."""

    relation: Relation
    table: str
    columns: tuple[Target, ...]
    """In the order of the batch."""

    @property
    def identifier(self) -> sql.Identifier:
        """The table, qualified."""
        return identifier(self.table)

    def staged(self, column: str) -> str:
        """What the table calls the column of that name."""
        return position_name([target.name for target in self.columns].index(column))


def identifier(table: str) -> sql.Identifier:
    """A staging table, qualified."""
    return sql.Identifier(batches.SCHEMA, table)


def position_name(position: int) -> str:
    """What a staging table calls the batch's column at that position."""
    return f"c{position}"


def make(connection: Connection, relation: Relation, columns: Sequence[Target]) -> Stage:
    """Make a staging table for a batch with these columns. It is held for as long as the session lives."""
    stage = Stage(relation, f"batch_{secrets.token_hex(12)}", tuple(columns))
    try:
        with connection.transaction():
            connection.execute(statement("create").format(stage=stage.identifier, columns=_columns(columns)))
            batches.hold(connection, stage.table)
    except psycopg.errors.InsufficientPrivilege as error:
        raise may_not_stage(connection, error) from None
    return stage


def may_not_stage(connection: Connection, error: psycopg.Error) -> UsageError:
    """The error for a role that lacks a grant, with the grants."""
    role = quoted(connection.info.user)
    hint = (
        f"grant usage, create on schema {batches.SCHEMA} to {role}; "
        f"grant execute on all functions in schema {batches.SCHEMA} to {role}"
    )
    return UsageError(f"role {role} may not write from Spark: {error.diag.message_primary}", hint=hint)


def _columns(columns: Iterable[Target]) -> sql.Composed:
    parts: list[sql.Composable] = []
    for position, column in enumerate(columns):
        collate = sql.SQL(" collate {}").format(names.trusted(column.collation)) if column.collation else sql.SQL("")
        name = sql.Identifier(position_name(position))
        parts.append(sql.SQL("{} {}{}").format(name, names.trusted(column.formatted), collate))
    return sql.SQL(", ").join(parts)


def require_unaltered(stage: Stage, now: Relation) -> None:
    """ConflictError if the key, or a column of the batch, is not called as it was when the batch was staged.

    Its values would go into other columns, or none, and its keys would be looked for in others.
    """
    gone = [column.name for column in stage.columns if now.column(column.name) is None]
    if gone or now.key != stage.relation.key:
        raise ConflictError(
            f"{now.name} was altered while the batch was staged: "
            + (f"it has no column {quoted(gone[0])} any more" if gone else "its key has another name"),
            hint="write again with the names that the columns have now; nothing was written",
        )


def won(stage: Stage, attempts: Iterable[int]) -> sql.Composed:
    """The rows of these attempts, for a FROM."""
    literal = sql.Literal("{" + ",".join(str(attempt) for attempt in attempts) + "}")
    return statement("won").format(stage=stage.identifier, attempts=literal)


def analyze(connection: Connection, stage: Stage) -> None:
    """Let Postgres know how much there is in it."""
    connection.execute(statement("analyze").format(stage=stage.identifier))


def drop(connection: Connection, table: str) -> bool:
    """Drop a staging table, unless it cannot be had at once or is not ours to drop: then the next sweep tries again."""
    try:
        with connection.transaction():
            patience.set_lock_timeout(connection)
            connection.execute(statement("drop").format(stage=identifier(table)))
    except psycopg.Error as error:
        _log.warning("%s", logs.fields(stage="drop", table=table, warning=str(error.diag.message_primary or error)))
        return False
    return True


def drop_abandoned(connection: Connection) -> int:
    """Drop the staging tables whose drivers are gone, as far as this role may, and say how many."""
    return sum(drop(connection, table) for table in batches.abandoned(connection))
