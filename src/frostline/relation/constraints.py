"""Constraints that the heap holds, and that rows in the lake were not looked at for: docs/design/constraints.md.

With event triggers there are none but those of an older version. Without them, this finds and asks them afterwards.
"""

import psycopg
from psycopg import errors

from frostline.catalog import generator, jobs
from frostline.catalog.connect import Connection, first_line
from frostline.errors import UnavailableError, UsageError
from frostline.model.tables import Table


def record_all(connection: Connection) -> None:
    """Write down what the heaps have now: what is new and finds rows in the lake was not looked at for them."""
    generator.record_constraints(connection)


def unseen(connection: Connection, table: Table) -> str | None:
    """Which constraints rows in the lake were not looked at for, in words; None when there are none. Takes no lock."""
    listed = generator.unseen_constraints(connection, table.id) if table.has_lake else []
    return ", ".join(map(str, listed)) or None


def look(connection: Connection, table: Table) -> tuple[str, ...]:
    """Ask the lake for each of them whether its rows hold it; returns those that they hold.

    UsageError for the first that a row breaks, UnavailableError when the lake cannot be asked. Under the table's lease,
    a transaction for each. No table is locked, so nobody waits for the lake.
    """
    with jobs.exclusive(connection, table):
        return tuple(
            _held(connection, table, constraint) for constraint in generator.unseen_constraints(connection, table.id)
        )


def _held(connection: Connection, table: Table, constraint: generator.Constraint) -> str:
    try:
        with connection.transaction():
            generator.look_at_cold_rows(connection, table.id, constraint)
    except (errors.CheckViolation, errors.NotNullViolation, errors.ForeignKeyViolation) as error:
        hint = f"{error.diag.message_hint}; change them, or drop the constraint"
        raise UsageError(str(error.diag.message_primary), hint=hint) from error
    except psycopg.OperationalError as error:
        raise UnavailableError(first_line(error), hint="frostline doctor") from error
    return str(constraint)
