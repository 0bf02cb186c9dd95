"""`frostline table alter`: what ALTER TABLE does, or its steps where each old row needs a value of its own.

docs/design/added-columns.md has the steps. Killed anywhere, the same command goes on.
"""

import logging
import shlex
from collections.abc import Iterator

from psycopg import sql

from frostline import logs
from frostline.catalog import fillings, lake_files, seams, tables
from frostline.catalog.fillings import Filling
from frostline.errors import UsageError
from frostline.failpoints import Failpoint, reached
from frostline.model.tables import Table
from frostline.pipeline import fold
from frostline.pipeline.job import JobContext
from frostline.relation import altering, columns, filling, heap, names

_log = logging.getLogger(__name__)


def alter(context: JobContext, chosen: Table, change: str) -> int | None:
    """Run `alter table HEAP change`; returns how many rows were given values in steps, None if there were no steps.

    UsageError when Postgres or the relation refuses it, and while another change is being filled.
    """
    pending = fillings.list_all(context.connection, chosen)
    if not pending:
        if altering.alter(context.connection, chosen, change):
            return None
        _begin(context, chosen, change)
        pending = fillings.list_all(context.connection, chosen)
    for column in pending:
        if column.change != change:
            hint = f"first: frostline table alter {chosen.name} {shlex.quote(column.change)}"
            raise UsageError(f"column {column.name} of {chosen.heap} is being filled", hint=hint)
    return sum(_filled(context, tables.by_id(context.connection, chosen.id), column) for column in pending)


def _begin(context: JobContext, chosen: Table, change: str) -> None:
    columns.require(context.connection, chosen)  # a column is not followed behind one that cannot be
    added = filling.planned(context.connection, chosen, change)
    if not added:
        raise UsageError(
            "a column that needs a value of its own in each row is not all that the change adds",
            hint=f"frostline table alter {chosen.name} 'add column ...', with each new column in a command of its own; "
            "a CHECK comes behind it: 'add constraint ... not valid'",
        )
    filling.begin(context.connection, chosen, change, added)
    reached(Failpoint.FILL_BEGUN)


def _filled(context: JobContext, chosen: Table, column: Filling) -> int:
    table = tables.get(context.connection, chosen.name)
    if column.becomes is None:
        filling.set_default(context.connection, table, column)
    rows = 0
    for inside, is_cold in _ranges(context, table):
        if column.becomes is not None and not is_cold:
            continue  # Postgres has computed it there
        done = filling.fill(context.connection, table, column, inside)
        rows += done
        _log.info("%s", logs.fields(stage="fill", table=str(table.name), column=column.name, rows=done))
        reached(Failpoint.FILL_FILLED_ONE)
        if is_cold and done:
            fold.fold_table(context, table)
    filling.finish(context.connection, table, column)
    return rows


def _ranges(context: JobContext, table: Table) -> Iterator[tuple[sql.Composable, bool]]:
    """Conditions of so many rows each as a file of the lake or a partition of the heap has, and whether they are cold.

    The last one is no condition: of DEFAULT, of what was written meanwhile, and of what has moved.
    """
    line = seams.get(context.connection, table).frost_line
    reach: int | None = None
    lower: int | None = None
    for file in sorted(lake_files.recorded(context.connection, table), key=lambda file: file.lower):
        if reach is not None and lower is not None and file.lower > reach:
            yield names.within(table, lower, reach + 1), True
            lower = None
        lower = file.lower if lower is None else lower
        reach = file.upper if reach is None else max(reach, file.upper)
    if reach is not None and lower is not None:
        yield names.within(table, lower, reach + 1), True
    for partition in heap.partitions(context.connection, table, sizes=False):
        if not partition.is_default and partition.reaches_above(line):
            first = line if partition.lower is None else max(partition.lower, line)
            yield names.within(table, first, partition.upper), False
    yield sql.SQL("true"), True
