"""Adoption: rows that somebody else put into the lake as files come into the table as an INSERT would bring them.

They pass Postgres' own input functions, NOT NULL, CHECKs and the primary key in a table of the heap's shape. Cold ones
then go into files of our own, as batches from Spark do, proven by fingerprints.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import psycopg

from frostline.catalog import jobs, seams
from frostline.catalog.connect import Connection, Dsn, first_line
from frostline.errors import ConflictError, UsageError
from frostline.lake import foreign, parquet, store
from frostline.lake.commit import StagedCommit
from frostline.lake.difference import Held
from frostline.model.names import quoted
from frostline.model.tables import NO_ROWS, RecordedFile, Table
from frostline.model.tiers import to_text
from frostline.pipeline import job, load, refill
from frostline.pipeline.job import Exchange
from frostline.pipeline.proof import fingerprint
from frostline.pipeline.refill import Piece
from frostline.relation import loading
from frostline.relation.loading import Loading
from frostline.settings import Settings


@contextmanager
def loaded(
    connection: Connection, settings: Settings, table: Table, files: Mapping[str, Held]
) -> Generator["Adoption"]:
    """The rows of these files, ready to be published; UsageError when the table would not take one of them.

    The caller holds the table's lease. An error leaves the table as it was and the job row failed.
    """
    obstacle = loading.obstacle(connection, table)
    if obstacle:
        raise _refused(table, f"{obstacle}, which a commit to the lake does not heed")
    with loading.empty(connection, table) as rows:
        _fill(connection, settings, table, rows, files)
        adoption = Adoption(connection, settings, table, rows)
        with job.failure_recorded(connection, adoption.job_id):
            adoption.write(None)
            yield adoption


def _fill(connection: Connection, settings: Settings, table: Table, rows: Loading, files: Mapping[str, Held]) -> None:
    try:
        with connection.transaction():
            for path, held in files.items():
                _copy(settings, table, rows, path, held)
        line = seams.get(connection, table).frost_line
        rows.settle(line, [(one.lower, one.upper) for one in jobs.uncleaned(connection, table)])
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        raise _refused(table, _said(error)) from error
    removed = seams.retained(connection, table)
    if removed is not None and rows.has_row(None, removed):
        text = to_text(table.tier_kind, removed)
        raise _refused(table, f"a row is older than {text}, where the retention period has removed all rows")


def _copy(settings: Settings, table: Table, rows: Loading, path: str, held: Held) -> None:
    """Bring in the rows of one file. All of them have to arrive: a row without a tier key lies in no range."""
    with store.reachable(f"read {path}"):
        if _field_ids(path) != {column.field_id for column in table.columns}:
            raise _refused(table, f"the columns of {path} do not have the ids of the table's")
        kind = table.tier_kind
        file = RecordedFile(path, held.size_bytes, kind.lowest, kind.highest, NO_ROWS)
        piece = Piece(table, Dsn(settings.dsn), rows.name, kind.lowest, kind.highest, file, settings.export_memory)
        count = rows.copy(refill.lines(piece))
    if count != held.rows:
        raise _refused(
            table, f"{held.rows - count} rows of {path} have no {quoted(table.tier_key)} that a row can have"
        )


def _field_ids(path: str) -> set[int]:
    try:
        return set(parquet.names(path))
    except (KeyError, TypeError):  # a file that was not written for Iceberg
        return set()


def _said(error: psycopg.Error) -> str:
    """What Postgres has against a row. Of a key that is there twice it names an index that nobody knows."""
    said, detail = error.diag.message_primary or first_line(error), error.diag.message_detail
    if isinstance(error, psycopg.errors.UniqueViolation) and detail:
        return f"a key is there twice: {detail}"
    return f"{said} ({detail})" if detail else said


def _refused(table: Table, why: str) -> UsageError:
    return UsageError(
        f"the rows that somebody else appended to {table.name} cannot be adopted: {why}; nothing was changed",
        hint=f"frostline repair {table.name} --restore, and insert the right rows in Postgres",
    )


class Adoption(load.Job):
    """The files of our own that hold the adopted rows."""

    kind = "repair"
    rows = 0
    """How many were adopted, once they are."""

    def again(self) -> str:
        """The command."""
        return f"frostline repair {self.table.name} --adopt"

    def stage(self, change: Exchange) -> StagedCommit | None:
        """Upon the seam's state, whatever the catalog points to: it will point back first."""
        if not change.written:
            return None
        standing = seams.standing(self.connection, self.table)
        return change.stage_upon(foreign.sound(self.connection, self.table, standing), self.settings)

    def known(self, key_hash: int) -> Exception:
        """The error for a key that the lake has, or another key of the same hash."""
        key = self.load.key_of(fingerprint.postgres_key_hash(self.table), key_hash)
        columns, values = ", ".join(map(quoted, self.table.key)), ", ".join(key)
        return _refused(self.table, f"the lake has a row with ({columns}) = ({values})")

    def publish_all(self) -> None:
        """Inside the publishing transaction, after the catalog points to the seam's state again."""
        try:
            if not self.load.claim():
                hint = f"frostline repair {self.table.name} --adopt"
                raise ConflictError(f"others write the same keys of {self.table.name}, or have changed it", hint=hint)
            rest = self.load.insert_rest()
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            raise _refused(self.table, _said(error)) from error
        self.publish()
        self.load.unclaim()
        self.rows = self.load.live + rest
        jobs.describe(self.connection, self.job_id, f"adopted {self.rows} rows")
