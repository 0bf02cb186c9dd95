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
    UNDO_BEFORE_FILE = "undo_before_file"
    UNDO_WROTE_FILE = "undo_wrote_file"
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


def reached(place: Failpoint) -> None:
    """Die here if the environment says so, or stand still."""
    wanted = os.environ.get(VARIABLE)
    if wanted == place.value:
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted == place.value + PAUSE:
        os.kill(os.getpid(), signal.SIGSTOP)
