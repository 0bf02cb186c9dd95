"""Where lake files live: locations that PyIceberg, DuckDB, Spark and other Iceberg readers all understand.

A location is a URI whose path is taken as it stands, never percent-decoded, because that is what all of these readers
do with it: `file:///data/my lake/public/events_7`. Characters that one of them would take for a pattern, a fragment
or a partition column are refused in the warehouse, and encoded in the parts Frostline adds.
"""

import os
import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io

from frostline.errors import UsageError
from frostline.model.names import Name

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_REFUSED = re.compile(r"[*?\[\]{}#=\\\x00-\x1f\x7f]")
_PYARROW = "pyiceberg.io.pyarrow.PyArrowFileIO"


def warehouse_location(warehouse: str) -> str:
    """The one form of a warehouse, given as a path or a URI; a relative path starts at the current directory."""
    refused = _REFUSED.search(warehouse)
    if refused:
        raise UsageError(
            f"warehouse {warehouse!r} has the character {refused[0]!r}, which lake readers take for a pattern",
            hint="choose a path without * ? [ ] { } # = \\ and control characters",
        )
    found = _SCHEME.fullmatch(warehouse)
    if found and found[1] != "file":
        return f"{found[1]}://{found[2].rstrip('/')}"
    path = found[2] if found else warehouse.removeprefix("file:")
    return "file://" + os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow symbolic links


def table_location(warehouse: str, name: Name, table_id: int) -> str:
    """The folder of one managed table. The id keeps it apart from an older table of the same name."""
    return "/".join((warehouse_location(warehouse), _part(name.schema), f"{_part(name.table)}_{table_id}"))


def _part(text: str) -> str:
    """One part of a path: everything but letters, digits, _ . - is percent-encoded, and so is a leading dot."""
    encoded = quote(text, safe="").replace("~", "%7E")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def data_file(table: str, job_id: int) -> str:
    """A new name for a data file of this table location: no two calls give the same, so attempts never meet."""
    return f"{table}/data/job-{job_id}-{uuid.uuid4().hex}.parquet"


def job_of(data_file_location: str) -> int | None:
    """The job that wrote a data file, as its name tells; None for a file that no job named."""
    found = re.search(r"/job-(\d+)-[0-9a-f]{32}\.parquet$", data_file_location)
    return int(found[1]) if found else None


def file_io(location: str) -> FileIO:
    """PyIceberg's access to the store of this location."""
    return load_file_io({PY_IO_IMPL: _PYARROW}, location)


def open_input(location: str) -> Any:
    """Open a file for reading at any position."""
    return file_io(location).new_input(location).open()


def size_bytes(location: str) -> int | None:
    """The file's size, or None when it is not there."""
    try:
        return len(file_io(location).new_input(location))
    except FileNotFoundError:
        return None


def delete(location: str) -> None:
    """Delete a file; it is no error when it is gone already."""
    try:
        file_io(location).delete(location)
    except FileNotFoundError:
        return


def make_parent(location: str) -> None:
    """Make the folder that a file will be written into, in stores that have folders."""
    path = local_path(location)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)


def local_path(location: str) -> Path | None:
    """The path in the local file system; None for object stores."""
    return Path(location.removeprefix("file://")) if location.startswith("file://") else None
