"""Where lake files live: locations that PyIceberg, DuckDB, Spark and other Iceberg readers all understand.

A location is a URI whose path is taken as it stands, never percent-decoded, because that is what all of these readers
do with it: `file:///data/my lake/public/events_7`. Characters that one of them would take for a pattern, a fragment
or a partition column are refused in the warehouse, and encoded in the parts Frostline adds.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow.fs import FileSelector
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from frostline.errors import UsageError
from frostline.lake import objectstore
from frostline.model.names import Name
from frostline.model.tables import Table

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_REFUSED = re.compile(r"[*?\[\]{}#=\\\x00-\x1f\x7f]")
_S3 = re.compile(r"s3[an]?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_OF_A_NAME = 120
"""Of a name in a folder's: percent-encoded, one of 255 characters is longer than file systems take."""
_CHECKED = "frostline.lake.expected.CheckedIO"
_FOLDERS = ("data", "metadata")
_PROBE = ".frostline-clock"
_LOCAL = "file://"
_OTHER_SCHEMES = re.compile(r"^(?:(s3[an]://)|file:/(?=[^/]))")
"""Hadoop's ways to write s3:// and file:///."""


@dataclass(frozen=True)
class StoredFile:
    """A file that is there, whoever wrote it."""

    location: str
    size_bytes: int
    modified_at: datetime
    """By the store's clock."""


def warehouse_location(warehouse: str) -> str:
    """The one form of a warehouse, given as a path or a URI; a relative path starts at the current directory."""
    refused = _REFUSED.search(warehouse)
    if refused:
        raise UsageError(
            f"warehouse {warehouse!r} has the character {refused[0]!r}, which lake readers take for a pattern",
            hint="choose a path without * ? [ ] { } # = \\ and control characters",
        )
    parts = _SCHEME.fullmatch(warehouse)
    if parts and _S3.fullmatch(parts[1]):
        return _in_a_bucket(warehouse, parts[2])
    if parts and parts[1] != "file":
        return f"{parts[1]}://{parts[2].rstrip('/')}"
    path = parts[2] if parts else warehouse.removeprefix("file:")
    return "file://" + os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow symbolic links


def _in_a_bucket(warehouse: str, place: str) -> str:
    """The one form of a place in an object store, however its scheme and its slashes are written."""
    bucket, *parts = place.split("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(
            f"warehouse {warehouse!r} does not name a bucket", hint="say s3://BUCKET or s3://BUCKET/PREFIX"
        )
    if {".", ".."} & set(parts):
        hint = "object stores know no such folders: leave them out"
        raise UsageError(f"warehouse {warehouse!r} has the part '.' or '..'", hint=hint)
    return objectstore.SCHEME + "/".join((bucket, *filter(None, parts)))


def table_location(warehouse: str, table: Table) -> str:
    """The folder of one managed table, which no other table has, not even one of the same name in another database."""
    folder = f"{_part(table.lake_name.table)}_{table.id}-{table.token}"
    return "/".join((warehouse_location(warehouse), _part(table.lake_name.schema), folder))


def snapshot_root(warehouse: str, snapshot: str) -> str:
    """The folder of all copies of a named snapshot. No schema's folder is called so: `_part` writes no ~."""
    return f"{warehouse_location(warehouse)}/~snapshots/{snapshot}"


def copy_location(warehouse: str, snapshot: str, name: Name, token: str) -> str:
    """The folder of one table's copies. The token is of the run that made it first."""
    return f"{snapshot_root(warehouse, snapshot)}/{_part(name.schema)}/{_part(name.table)}-{token}"


def lake_tables_root(warehouse: str) -> str:
    """The folder of all tables that live in the lake alone. No schema's folder is called so: `_part` writes no ~."""
    return f"{warehouse_location(warehouse)}/~lake"


def new_lake_table(warehouse: str, namespace: str, table: str) -> str:
    """A folder for such a table, which no other one has: a table of the same name may have been dropped before."""
    names = (_part(name)[:_MOST_OF_A_NAME] for name in (namespace, table))
    return f"{lake_tables_root(warehouse)}/{'/'.join(names)}-{uuid.uuid4().hex[:12]}"


def is_pattern(place: str) -> bool:
    """Whether a lake reader would take it for a pattern, or something else than a place."""
    return _REFUSED.search(place) is not None


def is_inside(place: str, folder: str) -> bool:
    """Whether a file is in a folder, however somebody's library writes the same store."""
    return inside(place, folder) is not None


def inside(place: str, folder: str) -> str | None:
    """A file in a folder as a listing of the folder names it, whoever's library has written it; None if elsewhere."""
    plain = _OTHER_SCHEMES.sub(lambda scheme: "s3://" if scheme[1] else "file:///", place)
    parts = plain.removeprefix(f"{folder}/").split("/")
    is_there = plain.startswith(f"{folder}/") and not {"", ".", ".."} & set(parts) and "\0" not in place
    return plain if is_there else None


def _part(text: str) -> str:
    """One part of a path: everything but letters, digits, _ . - is percent-encoded, and so is a leading dot."""
    encoded = quote(text, safe="").replace("~", "%7E")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def data_file(table: str, job_id: int) -> str:
    """A new name for a data file of this table location: no two calls give the same, so attempts never meet."""
    return f"{table}/data/job-{job_id}-{uuid.uuid4().hex}.parquet"


def commit_uuid(job_id: int) -> uuid.UUID:
    """A new name for a commit: random, but its last twelve digits are the job. The names of all its files have it."""
    low, mid, high, sequence, sequence_low, _ = uuid.uuid4().fields
    return uuid.UUID(fields=(low, mid, high & 0x0FFF | 0x8000, sequence, sequence_low, job_id))


def job_of(file_name: str) -> int | None:
    """The job that wrote a data or metadata file, as its name tells; None for a file that no job named."""
    data = re.search(r"\bjob-(\d+)-[0-9a-f]{32}\.parquet$", file_name)
    if data:
        return int(data[1])
    metadata = re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-([0-9a-f]{12})(\.|-m\d+\.)", file_name)
    return int(metadata[1], 16) if metadata else None


def written_by(table: str, job_id: int) -> list[str]:
    """All files of a table location that this job wrote, as their names tell."""
    return [
        f"{table}/{folder}/{name}"
        for folder in _FOLDERS
        for name in (entry.base_name for entry in _entries(f"{table}/{folder}"))
        if job_of(name) == job_id
    ]


def stored(table: str) -> Iterator[StoredFile]:
    """All data and metadata files of a table location, whoever wrote them. Folders inside are passed over."""
    for folder in _FOLDERS:
        for entry in _entries(f"{table}/{folder}"):
            if entry.is_file and not entry.base_name.startswith(_PROBE):
                yield StoredFile(f"{table}/{folder}/{entry.base_name}", entry.size, entry.mtime)


def below(root: str) -> Iterator[StoredFile]:
    """All files in a folder and in the folders inside it; nothing when it is not there."""
    io = file_io(root)
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(root)
    chosen = FileSelector(path, recursive=True, allow_not_found=True)
    entries: list[Any] = io.fs_by_scheme(scheme, netloc).get_file_info(chosen)
    for entry in entries:
        if entry.is_file:
            yield StoredFile(root + entry.path[len(path.rstrip("/")) :], entry.size, entry.mtime)


def store_clock(table: str) -> datetime:
    """What time it is for the store: it is asked by writing an empty file, which is gone afterwards."""
    name = f"{_PROBE}-{uuid.uuid4().hex}"
    probe = f"{table}/metadata/{name}"
    make_parent(probe)
    try:
        with file_io(probe).new_output(probe).create(overwrite=True):
            pass
        (entry,) = (entry for entry in _entries(f"{table}/metadata") if entry.base_name == name)
        return entry.mtime
    finally:
        delete(probe)


def names_in(folder: str, *, or_say_why: bool = False) -> frozenset[str]:
    """The names of what is in a folder; none when it is not there. With `or_say_why` a missing bucket is an error."""
    try:
        return frozenset(entry.base_name for entry in _entries(folder, allow_not_found=not or_say_why))
    except FileNotFoundError:
        return frozenset()


def _entries(folder: str, *, allow_not_found: bool = True) -> list[Any]:
    """What is in a folder, as PyArrow describes it; nothing when the folder is not there."""
    io = file_io(folder)
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(folder)
    return io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=allow_not_found))


def file_io(location: str) -> FileIO:
    """PyIceberg's access to the store of this location."""
    if objectstore.holds(location):
        return objectstore.file_io()
    return load_file_io({PY_IO_IMPL: _CHECKED}, location)


def open_input(location: str) -> Any:
    """Open a file for reading at any position."""
    return file_io(location).new_input(location).open()


def size_bytes(location: str) -> int | None:
    """The file's size, or None when it is not there."""
    try:
        return len(file_io(location).new_input(location))
    except FileNotFoundError:
        return None


def stamp(location: str) -> tuple[int, int] | None:
    """The file's size and when it was changed last, in nanoseconds; None when it is not there."""
    if location.startswith(_LOCAL):
        try:
            status = os.stat(location.removeprefix(_LOCAL))  # noqa: PTH116  (a Path takes longer than the look)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size, status.st_mtime_ns
    io = file_io(location)
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(location)
    info: Any = io.fs_by_scheme(scheme, netloc).get_file_info(path)
    return (info.size, info.mtime_ns or 0) if info.is_file else None


def changed_at(location: str) -> float:
    """When the store says that the file was written, in seconds since 1970."""
    io = file_io(location)
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(location)
    written_ns: int | None = io.fs_by_scheme(scheme, netloc).get_file_info(path).mtime_ns
    if written_ns is None:
        raise FileNotFoundError(location)
    return written_ns / 1e9


def delete(location: str) -> None:
    """Delete a file; it is no error when it is gone already."""
    try:
        file_io(location).delete(location)
    except FileNotFoundError:
        return


def delete_each(locations: Iterable[str]) -> Iterator[str]:
    """Delete files, of one store or several, and say of each when it is gone; no error when it was gone already."""
    stores: dict[str, FileIO] = {}
    for location in locations:
        scheme = location.partition("://")[0]
        if scheme not in stores:
            stores[scheme] = file_io(location)
        with suppress(FileNotFoundError):
            stores[scheme].delete(location)
        yield location


def make_parent(location: str) -> None:
    """Make the folder that a file will be written into, in stores that have folders."""
    path = local_path(location)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)


def local_path(location: str) -> Path | None:
    """The path in the local file system; None for object stores."""
    return Path(location.removeprefix(_LOCAL)) if location.startswith(_LOCAL) else None
