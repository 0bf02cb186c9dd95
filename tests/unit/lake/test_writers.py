"""Who writes to a warehouse and deletes from it: each place is known, and says where it looks for the marker."""

import re
from pathlib import Path

import frostline

CHANGES = re.compile(r"\b(?:paths\.(?:delete|delete_each|make_parent|store_clock)|new_output)\(")
PLACES = {
    "lake/paths.py": "the functions themselves",
    "lake/warehouse.py": "the marker itself, and `prepare`, which looks",
    "lake/commit.py": "`Staging.write` and `stage_copy`: `stage`, `stage_copy` and `stage_expiry` look",
    "lake/lake_rows.py": "`TableChanges` looks before it writes, and the leader of a commit before the pointers move",
    "lake/lake_commit.py": "the same; and inside `guarded` in `pipeline/lake_tables.py`",
    "lake/lake_rewrite.py": "inside `guarded` in `pipeline/lake_compact.py`; `publish.transaction` looks again",
    "lake/lake_upkeep.py": "inside `guarded` in `pipeline/lake_expire.py`, `lake_sweep.py` and `lake_properties.py`",
    "lake/lake_folder.py": "inside `guarded` in `pipeline/lake_tables.py`; `LakeTransaction.define` looks before a request",
    "pipeline/lake_expire.py": "inside `guarded`; `publish.transaction` looks again",
    "pipeline/lake_sweep.py": "inside `guarded`; `publish.transaction` of the fence looks again",
    "pipeline/lake_create_as.py": "inside `guarded`; deletes what it has just written",
    "pipeline/job.py": "`remove_leftovers`, after `guarded` or, in undo, `require`",
    "pipeline/fold.py": "deletes the empty file that it has just written, after `prepare`",
    "pipeline/expire.py": "inside `job.on_table`; `commit.stage_expiry` and `publish.transaction` look again",
    "pipeline/sweep.py": "inside `job.on_table`; a dry run calls `require`",
    "pipeline/snapshot_drop.py": "inside `guarded`",
    "pipeline/leaving.py": "inside `guarded`",
    "server/rest/staging.py": "inside `guarded`; `write` looks again, and `discard` deletes what it has just written",
    "observe/doctor/store.py": "after `require`",
}
"""Module and why it is right. DuckDB's COPY needs a folder first, which `warehouse.prepare` makes."""


def test_every_place_that_changes_a_warehouse_is_known() -> None:
    package = Path(frostline.__file__).parent
    changing = {
        str(file.relative_to(package)) for file in package.rglob("*.py") if CHANGES.search(file.read_text("utf-8"))
    }
    assert changing == set(PLACES)


def test_every_parquet_file_is_written_after_a_look() -> None:
    package = Path(frostline.__file__).parent
    copying = {
        file for file in package.rglob("*.py") if re.search(r'"copy \(.*\) to \{location\}', file.read_text("utf-8"))
    }
    assert {file.name for file in copying} == {"export.py", "copying.py", "snapshot_copy.py"}
    assert all("warehouse.prepare(location)" in file.read_text("utf-8") for file in copying)
