"""Keys that stand in two places: in two lake files, twice in one, or in a lake file and without a mark in the heap.

The tier key is part of every primary key, so only files whose ranges meet can have a key in common.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.archived_partitions import ArchivedPartition
from frostline.catalog.connect import Connection
from frostline.model.names import quoted
from frostline.model.tables import RecordedFile, Table
from frostline.pipeline.verify_metadata import Fault
from frostline.relation import names
from frostline.tiers.proof import fingerprint
from frostline.tiers.proof.fingerprint import Hashes, Key

_PASS_ROWS = 16_000_000
"""This many keys are in memory at once; more are looked at in several passes."""
_MOST_NAMED = 10_000
"""At most this many keys that look the same are looked up."""


def in_lake(table: Table, files: Sequence[RecordedFile]) -> Iterator[Fault]:
    """Keys of which the lake has more than one row. The files are known to be sound."""
    for cluster in _clusters(files):
        suspects = _same_hashes(table, cluster)[:_MOST_NAMED]
        if len(suspects):
            yield from _named(table, cluster, suspects)


def _clusters(files: Sequence[RecordedFile]) -> Iterator[list[RecordedFile]]:
    """Files whose ranges meet, together."""
    cluster: list[RecordedFile] = []
    for file in sorted(files, key=lambda file: file.lower):
        if cluster and file.lower > max(other.upper for other in cluster):
            yield cluster
            cluster = []
        cluster.append(file)
    if cluster:
        yield cluster


def _same_hashes(table: Table, files: Sequence[RecordedFile]) -> Hashes:
    """The hashes that more than one key of the files has."""
    passes = 1 + sum(file.fingerprint.rows for file in files) // _PASS_ROWS
    repeated = [np.zeros(0, np.int64)]
    for number in range(passes):
        keys = [
            hashes[hashes.view(np.uint64) % np.uint64(passes) == number]
            for file in files
            for hashes in fingerprint.key_hashes(file.path, table)
        ]
        sorted_hashes = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]))
        repeated.append(np.unique(sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]]))
    return np.concatenate(repeated)


def _named(table: Table, files: Sequence[RecordedFile], suspects: Hashes) -> Iterator[Fault]:
    """By file. Two keys may have one hash, so they are compared as they are."""
    where: defaultdict[Key, list[str]] = defaultdict(list)
    for file in files:
        for _, key in fingerprint.keys_of(file.path, table, suspects):
            where[key].append(file.path)
    together = Counter(tuple(paths) for paths in where.values() if len(paths) > 1)
    for paths, count in sorted(together.items()):
        key = next(key for key, in_files in where.items() if tuple(in_files) == paths)
        others = sorted(set(paths[1:]) - {paths[0]})
        also = f"that are also in {', '.join(others)}" if others else "twice"
        yield Fault(paths[0], f"has {count} keys {also}: {_shown(table, key)}")


def _shown(table: Table, key: Key) -> str:
    return f"({', '.join(map(quoted, table.key))}) = ({', '.join(key)})"


def in_both(
    connection: Connection,
    table: Table,
    frost_line: int,
    archived: Sequence[ArchivedPartition],
    files: Sequence[RecordedFile],
) -> Iterator[Fault]:
    """Rows below the frost line that the heap has without a mark, while the lake has their keys.

    Archived partitions that are not cleaned are left out: they have the rows of the lake, and are compared with it.
    """
    unmarked = _unmarked(connection, table, frost_line, archived)
    wanted = np.array(sorted({key for _, key in unmarked}), np.int64)
    for file in files if len(wanted) else ():
        for key_hash, key in fingerprint.keys_of(file.path, table, wanted)[:1]:
            partition = next(name for name, unmarked_hash in unmarked if unmarked_hash == key_hash)
            yield Fault(partition, f"has a row without a mark whose key is also in {file.path}: {_shown(table, key)}")


def _unmarked(
    connection: Connection, table: Table, frost_line: int, archived: Sequence[ArchivedPartition]
) -> list[tuple[str, int]]:
    statement = sql.SQL(sqlfiles.load(__package__ or "", "verify")["unmarked_keys"]).format(
        key_hash=fingerprint.postgres_key_hash(table),
        heap=names.identifier(table.heap),
        overlay=names.overlay(table),
        condition=names.within(table, None, frost_line),
        key_is_marked=sql.SQL(" and ").join(
            sql.SQL("m.{0} = h.{0}").format(sql.Identifier(column)) for column in table.key
        ),
        archived=sql.SQL(", ").join(
            sql.SQL("{}::regclass").format(sql.Literal(names.identifier(partition.name).as_string()))
            for partition in archived
        )
        if archived
        else sql.SQL("0"),
    )
    return connection.execute(statement).fetchall()
