"""Which files of a lake table are in one partition."""

import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from frostline.lake import lake_rows

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
ID = uuid.UUID(int=7)


def file(*values: Any, spec_id: int = 0) -> DataFile:
    made = DataFile.from_args(partition=Record(*values))
    made.spec_id = spec_id
    return made


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ((None,), ("None",)),
        (("a, b", "c"), ("a", "b, c")),
        (("a", None), ("a", "None")),
        ((1,), ("1",)),
        ((True,), (1,)),
        ((b"a",), ("a",)),
        ((0.0,), (-0.0,)),
        ((), (None,)),
    ],
)
def test_partitions_of_other_values_are_others_however_they_are_printed(
    values: tuple[Any, ...], others: tuple[Any, ...]
) -> None:
    assert lake_rows.partition_key(file(*values)) != lake_rows.partition_key(file(*others))


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ((None, "a", 1), (None, "a", 1)),
        ((math.nan,), (OTHER_NAN,)),
        ((Decimal("1.50"),), (Decimal("1.5"),)),
        ((ID,), (ID.bytes,)),
    ],
)
def test_equal_values_are_one_partition_of_a_spec(values: tuple[Any, ...], same: tuple[Any, ...]) -> None:
    assert lake_rows.partition_key(file(*values)) == lake_rows.partition_key(file(*same))
    assert len({lake_rows.partition_key(file(*values)), lake_rows.partition_key(file(*same))}) == 1
    assert lake_rows.partition_key(file(*values)) != lake_rows.partition_key(file(*values, spec_id=1))
