"""Failpoints: named places where a process can be made to die, so that tests can show that nothing is lost there.

There is one before and one after every effect of a job. `FROSTLINE_FAILPOINT=archive_captured` kills the process that
gets there, with SIGKILL: nothing is cleaned up, as when the machine loses power. `archive_captured:pause` stops it with
SIGSTOP, until somebody sends it SIGCONT.
"""

import os
import signal
from enum import StrEnum

VARIABLE = "FROSTLINE_FAILPOINT"
PAUSE = ":pause"


class Failpoint(StrEnum):
    """Where a process may be killed. A member is named after what has just been done, or is about to be."""

    ARCHIVE_BEFORE_START = "archive_before_start"
    ARCHIVE_STARTED = "archive_started"
    ARCHIVE_CAPTURED_ONE = "archive_captured_one"
    ARCHIVE_CAPTURED = "archive_captured"
    EXPORT_BEFORE_FILE = "export_before_file"
    EXPORT_WROTE_FILE = "export_wrote_file"
    ARCHIVE_EXPORTED = "archive_exported"
    ARCHIVE_STAGED = "archive_staged"
    ARCHIVE_RAISED_BOUND = "archive_raised_bound"
    ARCHIVE_BEFORE_COMMIT = "archive_before_commit"
    ARCHIVE_PUBLISHED = "archive_published"
    ARCHIVE_ANALYZED = "archive_analyzed"

    FOLD_BEFORE_START = "fold_before_start"
    FOLD_STARTED = "fold_started"
    FOLD_REMEMBERED = "fold_remembered"
    REWRITE_BEFORE_FILE = "rewrite_before_file"
    REWRITE_WROTE_FILE = "rewrite_wrote_file"
    FOLD_REWRITTEN = "fold_rewritten"
    FOLD_STAGED = "fold_staged"
    FOLD_BEFORE_COMMIT = "fold_before_commit"
    FOLD_PUBLISHED = "fold_published"

    CLEAN_BEFORE_VERIFY = "clean_before_verify"
    CLEAN_VERIFIED = "clean_verified"
    CLEAN_BEFORE_COMMIT = "clean_before_commit"
    CLEAN_EMPTIED = "clean_emptied"
    CLEAN_DROPPED = "clean_dropped"
    CLEAN_MERGED = "clean_merged"

    VERIFY_BEFORE_FILES = "verify_before_files"
    VERIFY_AFTER_FILES = "verify_after_files"

    UNDO_BEFORE_START = "undo_before_start"
    UNDO_STARTED = "undo_started"
    TRIM_BEFORE_FILE = "trim_before_file"
    TRIM_WROTE_FILE = "trim_wrote_file"
    UNDO_TRIMMED = "undo_trimmed"
    UNDO_STAGED = "undo_staged"
    UNDO_BEFORE_COMMIT = "undo_before_commit"
    UNDO_PUBLISHED = "undo_published"
    UNDO_LOWERED_BOUND = "undo_lowered_bound"

    THAW_BEFORE_START = "thaw_before_start"
    THAW_STARTED = "thaw_started"
    THAW_CREATED_ONE = "thaw_created_one"
    THAW_CREATED = "thaw_created"
    THAW_BEFORE_COPY = "thaw_before_copy"
    THAW_COPIED = "thaw_copied"
    THAW_FILLED = "thaw_filled"
    THAW_VERIFIED = "thaw_verified"
    THAW_CAUGHT_UP = "thaw_caught_up"
    THAW_BEFORE_ATTACH = "thaw_before_attach"
    THAW_ATTACHED = "thaw_attached"
    THAW_WAITED = "thaw_waited"

    PREMAKE_BEFORE_START = "premake_before_start"
    PREMAKE_STARTED = "premake_started"
    PREMAKE_GUARDED = "premake_guarded"
    PREMAKE_CREATED_ONE = "premake_created_one"
    PREMAKE_BEFORE_COMMIT = "premake_before_commit"
    PREMAKE_ATTACHED_ONE = "premake_attached_one"
    PREMAKE_MADE = "premake_made"

    PARTITION_BEFORE_START = "partition_before_start"
    PARTITION_STARTED = "partition_started"
    PARTITION_MARKED = "partition_marked"
    PARTITION_BEFORE_COMMIT = "partition_before_commit"
    PARTITION_BEFORE_NOTE = "partition_before_note"
    PARTITION_DETACHED_ONE = "partition_detached_one"
    PARTITION_DROPPED_ONE = "partition_dropped_one"

    CONVERT_BEFORE_START = "convert_before_start"
    CONVERT_PREPARED = "convert_prepared"
    CONVERT_FORBADE_NULL = "convert_forbade_null"
    CONVERT_VALIDATED = "convert_validated"
    CONVERT_SYNCED = "convert_synced"
    CONVERT_COPIED_ONE = "convert_copied_one"
    CONVERT_FILLED = "convert_filled"
    CONVERT_ANALYZED = "convert_analyzed"
    CONVERT_VERIFIED = "convert_verified"
    CONVERT_BEFORE_COMMIT = "convert_before_commit"
    CONVERT_SWAPPED = "convert_swapped"
    CONVERT_DROPPED = "convert_dropped"

    COMPACT_BEFORE_START = "compact_before_start"
    COMPACT_STARTED = "compact_started"
    COMPACT_BEFORE_FILE = "compact_before_file"
    COMPACT_WROTE_FILE = "compact_wrote_file"
    COMPACT_MERGED = "compact_merged"
    COMPACT_STAGED = "compact_staged"
    COMPACT_BEFORE_COMMIT = "compact_before_commit"
    COMPACT_PUBLISHED = "compact_published"

    RETAIN_BEFORE_START = "retain_before_start"
    RETAIN_STARTED = "retain_started"
    RETAIN_TRIMMED = "retain_trimmed"
    RETAIN_STAGED = "retain_staged"
    RETAIN_BEFORE_COMMIT = "retain_before_commit"
    RETAIN_PUBLISHED = "retain_published"

    TRUNCATE_BEFORE_START = "truncate_before_start"
    TRUNCATE_STARTED = "truncate_started"
    TRUNCATE_STAGED = "truncate_staged"
    TRUNCATE_EMPTIED = "truncate_emptied"
    TRUNCATE_BEFORE_COMMIT = "truncate_before_commit"
    TRUNCATE_PUBLISHED = "truncate_published"
    TRUNCATE_LOWERED_BOUND = "truncate_lowered_bound"

    ADOPT_BEFORE_START = "adopt_before_start"
    ADOPT_STAGED = "adopt_staged"
    ADOPT_TOOK_OVER = "adopt_took_over"
    ADOPT_BEFORE_COMMIT = "adopt_before_commit"
    ADOPT_PUBLISHED = "adopt_published"

    WORKER_BEFORE_ACTION = "worker_before_action"
    WORKER_AFTER_ACTION = "worker_after_action"

    EXPIRE_BEFORE_START = "expire_before_start"
    EXPIRE_STARTED = "expire_started"
    EXPIRE_STAGED = "expire_staged"
    EXPIRE_BEFORE_COMMIT = "expire_before_commit"
    EXPIRE_PUBLISHED = "expire_published"
    EXPIRE_DELETED_ONE = "expire_deleted_one"
    EXPIRE_DELETED = "expire_deleted"

    SWEEP_BEFORE_START = "sweep_before_start"
    SWEEP_STARTED = "sweep_started"
    SWEEP_FENCED = "sweep_fenced"
    SWEEP_DELETED_ONE = "sweep_deleted_one"
    SWEEP_DELETED = "sweep_deleted"
    LEAVE_DELETED_ONE = "leave_deleted_one"

    FILL_BEGUN = "fill_begun"
    FILL_FILLED_ONE = "fill_filled_one"

    SNAPSHOT_BEFORE_START = "snapshot_before_start"
    SNAPSHOT_STARTED = "snapshot_started"
    SNAPSHOT_HELD = "snapshot_held"
    SNAPSHOT_BEFORE_FILE = "snapshot_before_file"
    SNAPSHOT_WROTE_FILE = "snapshot_wrote_file"
    SNAPSHOT_COPIED = "snapshot_copied"
    SNAPSHOT_STAGED_ONE = "snapshot_staged_one"
    SNAPSHOT_STAGED = "snapshot_staged"
    SNAPSHOT_BEFORE_COMMIT = "snapshot_before_commit"
    SNAPSHOT_PUBLISHED = "snapshot_published"
    SNAPSHOT_DROP_BEFORE_COMMIT = "snapshot_drop_before_commit"
    SNAPSHOT_DROPPED = "snapshot_dropped"
    SNAPSHOT_DELETED_ONE = "snapshot_deleted_one"
    REST_COMMITTED = "rest_committed"

    WRITE_MADE_STAGE = "write_made_stage"
    WRITE_BEFORE_COPY = "write_before_copy"
    WRITE_COPIED = "write_copied"
    WRITE_STAGED = "write_staged"
    WRITE_BEFORE_COMMIT = "write_before_commit"
    WRITE_APPLIED = "write_applied"

    CREATE_STAGED = "create_staged"
    CREATE_BEFORE_FILE = "create_before_file"
    CREATE_WROTE_FILE = "create_wrote_file"
    CREATE_WRITTEN = "create_written"
    CREATE_BEFORE_COMMIT = "create_before_commit"
    CREATE_PUBLISHED = "create_published"

    APPEND_BEFORE_FILE = "append_before_file"
    APPEND_WROTE_FILE = "append_wrote_file"
    APPEND_WRITTEN = "append_written"
    APPEND_STAGED = "append_staged"
    APPEND_BEFORE_COMMIT = "append_before_commit"
    APPEND_PUBLISHED = "append_published"

    LOAD_BEFORE_START = "load_before_start"
    LOAD_STARTED = "load_started"
    LOAD_EXPORTED = "load_exported"
    LOAD_STAGED = "load_staged"
    LOAD_CLAIMED = "load_claimed"
    LOAD_BEFORE_COMMIT = "load_before_commit"
    LOAD_PUBLISHED = "load_published"


def reached(place: Failpoint) -> None:
    """Die here if the environment says so, or stand still."""
    wanted = os.environ.get(VARIABLE)
    if wanted == place.value:
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted == place.value + PAUSE:
        os.kill(os.getpid(), signal.SIGSTOP)
