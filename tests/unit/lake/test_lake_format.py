"""Which formats of Iceberg are read, and which are written."""

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frostline.lake import lake_format
from frostline.lake.lake_format import OtherFormat


def of_format(version: int) -> TableMetadata:
    properties = {"format-version": str(version)}
    return new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake/t", properties)


def test_what_lake_tables_have_is_read_and_written() -> None:
    table = of_format(2)
    lake_format.require_read(table)
    assert lake_format.written(table) is table


def test_an_older_one_is_read_and_not_written_and_a_newer_one_is_neither() -> None:
    lake_format.require_read(of_format(1))
    with pytest.raises(OtherFormat, match="is of format 1, and lake tables are of format 2: it is read and not"):
        lake_format.written(of_format(1))
    for refuses in (lake_format.require_read, lake_format.written):
        with pytest.raises(OtherFormat, match="is of format 3, and lake tables are of format 2"):
            refuses(of_format(3))
