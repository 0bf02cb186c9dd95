"""Descriptions of data files."""

import dataclasses
import pickle
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import LongType, StringType
from tests.fixtures.lake_tables import events, lake_location, written_events

from frostline.errors import CorruptionError
from frostline.lake import datafiles, ducksql, schema
from frostline.lake.datafiles import Seal
from frostline.model.tables import Fingerprint
from frostline.model.tiers import TierKind, from_text

TABLE = events()


@pytest.fixture
def written(tmp_path: Path):
    return written_events(TABLE, lake_location(tmp_path, TABLE), "2024-03-05")


def test_a_description_tells_range_and_partition(written: datafiles.WrittenFile):
    assert written.lower == from_text(TierKind.TIMESTAMPTZ, "2024-03-05 00:00:00+00")
    assert written.upper == from_text(TierKind.TIMESTAMPTZ, "2024-03-05 01:39:00+00")
    assert written.partition == (2024 - 1970) * 12 + 2
    assert written.rows == 100
    assert written.size_bytes == Path(written.path.removeprefix("file://")).stat().st_size


def test_a_description_has_the_statistics_of_every_column(written: datafiles.WrittenFile):
    assert written.value_counts == {1: 100, 2: 100, 3: 100}
    assert written.null_value_counts == {1: 0, 2: 0, 3: 0}
    assert from_bytes(LongType(), written.upper_bounds[1]) == 99
    assert from_bytes(StringType(), written.lower_bounds[3]) == "n0"
    assert written.split_offsets == (4,)


def test_a_description_survives_pickle(written: datafiles.WrittenFile):
    assert pickle.loads(pickle.dumps(written)) == written


def test_a_file_over_two_partitions_is_refused(tmp_path: Path):
    with pytest.raises(CorruptionError, match="more than one lake partition"):
        written_events(TABLE, lake_location(tmp_path, TABLE), "2024-03-31 23:00:00")


def test_a_file_with_other_rows_than_its_fingerprint_is_refused(written: datafiles.WrittenFile):
    with pytest.raises(CorruptionError, match="100 rows instead of 99"):
        datafiles.describe(written.path, TABLE, Seal(written.sha256, Fingerprint(99, 0)), in_order=True)


def test_only_files_in_order_claim_the_sort_order(written: datafiles.WrittenFile):
    assert datafiles.to_data_file(written, TABLE).sort_order_id == 1
    unordered = dataclasses.replace(written, in_order=False)
    assert datafiles.to_data_file(unordered, TABLE).sort_order_id is None


def test_a_row_group_is_small_enough_to_be_decoded_for_one_row(tmp_path: Path):
    """DuckDB writes each column of a row group as one page, which a look-up has to unpack as a whole."""
    file = tmp_path / "f.parquet"
    options = datafiles.copy_options(TABLE, dictionaries=True)
    names = ", ".join(ducksql.identifier(name) for name in schema.parquet_names(TABLE))
    with duckdb.connect() as connection:
        connection.execute("set preserve_insertion_order = false")
        rows = "select i, timestamptz '2024-03-05', 'n' || i from range(100000) numbers(i)"
        connection.execute(f"copy (select * from ({rows}) r({names})) to '{file}' ({options})")
    groups = pq.ParquetFile(file).metadata
    assert groups.num_rows == 100_000
    assert max(groups.row_group(number).num_rows for number in range(groups.num_row_groups)) <= 40_960
