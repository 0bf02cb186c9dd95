"""A lake table of what a query gives or a table has: `frostline lake create --as`, `--from`.

docs/design/lake-tables.md, "A table of what a query gives".

Postgres runs the query once, into a staging table. Spark's tasks write its shards into files that nothing points to,
each proven by fingerprints. One transaction then makes the table with all of them.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import duckdb
import psycopg
from psycopg import sql
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from frostline import logs
from frostline.catalog import batches, facts, tables, trust
from frostline.catalog.connect import Connection
from frostline.catalog.pointers import LakePointer
from frostline.errors import ConflictError, CorruptionError, OutcomeUnknown, UsageError
from frostline.failpoints import Failpoint, reached
from frostline.lake import (
    duck,
    lake_commit,
    lake_publish,
    lake_rows,
    lake_table,
    paths,
    pg_types,
    publish,
    store,
    warehouse,
)
from frostline.lake.lake_commit import Added
from frostline.lake.lake_publish import Change
from frostline.lake.lake_table import Layout
from frostline.model.archive import BLOCK_BYTES, block_ranges
from frostline.model.names import Name
from frostline.model.tables import NO_ROWS, TableCopy
from frostline.pipeline import lake_tables
from frostline.pipeline.job import JobContext
from frostline.relation import lake_foreign, lake_staging, staging
from frostline.relation.lake_foreign import TakenOver
from frostline.tiers import moment, point, shards, survey, target
from frostline.tiers.proof import fingerprint
from frostline.tiers.shards import Shard
from frostline.tiers.target import Reader

_log = logging.getLogger(__name__)
_AGAIN = "run frostline lake create again"


@dataclass(frozen=True)
class Piece:
    """The part of the staging table that one task writes."""

    table: TableCopy
    reader: Reader
    shard: Shard
    metadata: TableMetadata
    memory_limit: str


@dataclass(frozen=True)
class Counted:
    """A file, for those who count."""

    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Made:
    """What a task has written."""

    files: tuple[DataFile, ...]

    @property
    def written(self) -> tuple[Counted, ...]:
        """All of it, for the progress."""
        return tuple(Counted(file.record_count, file.file_size_in_bytes) for file in self.files)


def create(context: JobContext, name: Name, query: str, layout: Layout) -> tuple[LakePointer, int]:
    """Make a lake table with the columns and rows of the query; gives it, and how many rows it has.

    All or nothing: until the end nobody sees it, and an error leaves no file. What a kill leaves is for the sweep.
    """
    connection = context.connection
    with warehouse.guarded(connection, context.settings.warehouse):
        _make_room(connection)
        with _dropped_afterwards(connection, _filled(connection, name, query)) as stage:
            return _created(context, name, stage, layout, Taken(_like(connection, stage)))


def create_from(context: JobContext, name: Name, source: Name, layout: Layout) -> tuple[LakePointer, int, TakenOver]:
    """Make a lake table of a table, of a managed one with the rows of both tiers, as they are at one moment.

    It has the columns, NOT NULL, defaults, CHECKs and comments that a lake table can have of it, and its rights. The
    source stays as it is. All or nothing, as for `create`.
    """
    connection = context.connection
    with warehouse.guarded(connection, context.settings.warehouse):
        _make_room(connection)
        with connection.transaction():
            stage, taken = _taken(connection, name, source)
        with _dropped_afterwards(connection, stage):
            made, rows = _created(context, name, stage, layout, taken)
        return made, rows, taken.like


@dataclass(frozen=True)
class Taken:
    """What the new table has of where its rows come from, besides these."""

    like: TakenOver
    rights: Sequence[sql.Composed] = ()
    """Statements that give them."""


def _created(context: JobContext, name: Name, stage: Name, layout: Layout, taken: Taken) -> tuple[LakePointer, int]:
    connection, settings = context.connection, context.settings
    folder = paths.new_lake_table(settings.warehouse, name.schema, name.table)
    with _emptied_on(BaseException, folder, name):
        with connection.transaction(force_rollback=True):  # what cannot be made is told before a row is copied
            probe = lake_tables.create(connection, settings, name, (), layout, taken.like, folder=folder)
            metadata = lake_table.state(probe.metadata_location).metadata
        lake_commit.discard([probe.metadata_location])
        with logs.stage(_log, "create", table=str(name)) as said:
            files = _copied(context, name, stage, metadata)
            said.update(files=len(files), rows=sum(file.record_count for file in files))
        reached(Failpoint.CREATE_WRITTEN)
    # Not after an interrupt: that may come when the commit has happened.
    with (
        _emptied_on(Exception, folder, name),
        publish.transaction(connection, f"making {name}", hint="frostline lake list"),
    ):
        made = lake_tables.create(connection, settings, name, (), layout, taken.like, folder=folder)
        for right in taken.rights:
            connection.execute(right)
        if files:
            base = lake_table.state(made.metadata_location)
            staged = lake_commit.stage(made.id, base, Added(files))
            lake_publish.within(connection, Change([staged.move]))
        reached(Failpoint.CREATE_BEFORE_COMMIT)
    reached(Failpoint.CREATE_PUBLISHED)
    return made, sum(file.record_count for file in files)


def _make_room(connection: Connection) -> None:
    staging.drop_abandoned(connection)
    batches.keep_session(connection)


def _filled(connection: Connection, name: Name, query: str) -> Name:
    """The rows of the query, in a staging table."""
    try:
        return Name(batches.SCHEMA, lake_staging.filled(connection, query))
    except psycopg.ProgrammingError as error:
        hint = (
            "a query without parameters, whose tables are named with their schemas: --as 'select * from public.events'"
        )
        raise UsageError(f"cannot make {name}: {error.diag.message_primary}", hint=hint) from error


def _like(connection: Connection, stage: Name) -> TakenOver:
    columns = lake_foreign.columns(connection, facts.oid(connection, stage))
    return TakenOver([(column.name, lake_foreign.declared(column)) for column in columns])


def _taken(connection: Connection, name: Name, source: Name) -> tuple[Name, Taken]:
    """In a transaction: the rows of a table in a staging table, and what else the lake table is to have of it.

    Once the rows are read, nobody alters the table before the transaction ends, so what it is like is looked at again.
    """
    managed = tables.find(connection, source)
    shown, heap = (managed.relation, managed.heap) if managed else (source, source)
    like = lake_foreign.like(connection, source)
    point.require_rights(connection, heap, source)
    (members,) = facts.members(connection, [facts.oid(connection, heap)]).values()
    trust.require_readable(connection, {member.oid: member.name for member in members})
    query = lake_staging.everything(shown, [column for column, _ in like.definitions])
    stage = _filled(connection, name, query.as_string(connection))
    relation, held = facts.relation(connection, shown), facts.relation(connection, heap)
    if relation is None or held is None or lake_foreign.like(connection, source) != like:
        raise ConflictError(f"{source} was altered just now", hint=_AGAIN)
    hides = "row security" if held.row_security else "a view" if held.relkind == "v" else None
    if hides:  # a lake table shows everybody the same rows, so whoever may read some of them could read all
        like = replace(like, left_behind=[*like.left_behind, f"rights of others than the owner: {hides} may hide rows"])
    rights = lake_foreign.rights(connection, relation, name, of_others=not hides)
    return stage, Taken(like, [*rights])


@contextmanager
def _dropped_afterwards(connection: Connection, stage: Name) -> Generator[Name]:
    """The staging table; where the process dies, a later write or sweep drops it."""
    reached(Failpoint.CREATE_STAGED)
    try:
        yield stage
    finally:
        if not connection.closed:
            staging.drop(connection, stage.table)


@contextmanager
def _emptied_on(kind: type[BaseException], folder: str, name: Name) -> Generator[None]:
    try:
        yield
    except OutcomeUnknown:
        raise  # the files may be needed; if not, they are swept
    except kind:
        with store.reachable(f"delete the files of {name}"):
            for _ in paths.delete_each([file.location for file in paths.below(folder)]):
                pass
        raise


def _copied(context: JobContext, name: Name, stage: Name, metadata: TableMetadata) -> list[DataFile]:
    table = TableCopy(name, pg_types.columns(metadata))
    with moment.exported(context.settings.dsn) as exported:
        with moment.joined(exported, purpose="export") as joined:
            read = target.find(joined, [stage])[stage]
        reader = Reader(exported, "export", _AGAIN)
        cuts = block_ranges(read.blocks, context.settings.export_shard_bytes // BLOCK_BYTES) if read.blocks else ()
        pieces = [
            Piece(
                table, reader, Shard(read, first_block=first, last_block=last), metadata, context.settings.export_memory
            )
            for first, last in cuts
        ]
        done = context.run_tasks(table, write_piece, pieces)
    return [file for made in done for file in made.files]


def write_piece(piece: Piece) -> Made:
    """Write the rows of a shard, a file for each partition, and prove that all of them are there.

    CorruptionError when they are not what Postgres has, UsageError for values that the lake cannot hold.
    """
    meant = survey.of_rows(piece.table, piece.reader, piece.shard).fingerprint
    if not meant.rows:
        return Made(())
    reached(Failpoint.CREATE_BEFORE_FILE)
    files = _written(piece)
    reached(Failpoint.CREATE_WROTE_FILE)
    seals = [fingerprint.sealed(file.file_path, piece.table) for file in files]
    written = sum((seal.fingerprint for seal in seals), start=NO_ROWS)
    if written != meant:
        raise CorruptionError(
            f"the files of {piece.table.name} are not what the query gave: {meant.rows} rows with hash sum "
            f"{meant.hash_sum} there, {written.rows} with {written.hash_sum} in the lake"
        )
    return Made(tuple(files))


def _written(piece: Piece) -> Sequence[DataFile]:
    columns = piece.table.columns
    names = [f"c{place}" for place in range(len(columns))]
    warehouse.prepare(f"{piece.metadata.location}/data/-")
    try:
        with duck.borrowed(piece.memory_limit) as connection:
            shards.attach(connection, piece.reader, piece.shard.target)
            query = shards.in_duck(None, piece.shard, zip(names, columns, strict=True))
            rows = connection.execute(query).to_arrow_table()
            shards.check_again(connection, piece.reader, piece.shard.target)
    except duckdb.Error as error:  # it may show the connection string, so neither it nor its traceback goes on
        raise shards.failure(error, piece.reader, piece.shard.target, f"copying rows of {piece.table.name}") from None
    return lake_rows.write(piece.metadata, columns, rows.cast(lake_rows.arrow_schema(columns, names)))
