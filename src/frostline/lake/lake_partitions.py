"""Which partition a file of a lake table is in, as a key to group files by."""

import math
import struct
from collections.abc import Hashable
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile


def key(file: DataFile) -> Hashable:
    """Equal for two files if they are in one partition: of one spec, with the same values.

    A PyIceberg record will not do. Its text, and with it its hash, has NULL like 'None', and `a, b` and `c` like `a`
    and `b, c`; it takes 0.0 and -0.0 for equal, which are two partitions for Iceberg, and no NaN for another one.
    """
    return file.spec_id, *(value_key(file.partition[place]) for place in range(len(file.partition)))


def value_key(value: Any) -> tuple[str, Hashable]:
    """The same for a value that was written here and for one that was read from a manifest."""
    if isinstance(value, float):
        value = struct.pack("<d", math.nan if math.isnan(value) else value)
    elif isinstance(value, UUID):
        value = value.bytes
    return type(value).__name__, value
