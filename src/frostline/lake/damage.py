"""Errors for lake files that are not what was written. All of them name the file and the way out."""

from collections.abc import Generator
from contextlib import contextmanager

from frostline.errors import CorruptionError, FrostlineError, UnavailableError
from frostline.lake import store

_ANY = "TABLE"


class UnreadableFile(UnavailableError):
    """A data file is missing, or its store does not answer."""

    sqlstate = "58030"


def hint(table: object = _ANY) -> str:
    """What to do about a damaged file of a table."""
    return f"restore the file from a backup; frostline verify {table}; in the grace period: frostline undo {table}"


def damaged(what: str, reason: str, table: object = _ANY) -> CorruptionError:
    """The error for a file that is there and is not what was written: `what` is a kind of file and its location."""
    return CorruptionError(f"lake {what} is damaged: {reason}", hint=hint(table))


def wrong_size(path: str, size_bytes: int, meant: int, table: object = _ANY) -> CorruptionError:
    """The error for a file of another size than was recorded."""
    return damaged(f"file {path}", f"it has {size_bytes} bytes instead of {meant}", table)


def wrong_checksum(what: str, table: object = _ANY) -> CorruptionError:
    """The error for a file whose bytes are not those that were written."""
    return damaged(what, "its checksum is not the recorded one", table)


def missing(path: str) -> UnreadableFile:
    """The error for a data file that is not there, which may be because nothing else is either."""
    return UnreadableFile(
        f"cannot read {path}: it is not there", hint=f"check that the warehouse is mounted; else {hint()}"
    )


def gone(path: str, table: object = _ANY) -> CorruptionError:
    """The error for a recorded file that is not there, while its folder is."""
    return CorruptionError(f"lake file {path} is missing", hint=hint(table))


@contextmanager
def parsing(what: str, table: object = _ANY) -> Generator[None]:
    """Name the file whose content is being read. Whatever a parser stumbles over is damage, the store's own errors not.

    Parsers say it in many ways: of JSON, of Avro, of compressed blocks, of missing fields.
    """
    try:
        yield
    except FrostlineError:
        raise
    except OSError as error:
        if error.errno is not None or store.trouble(error):  # of the system or the store; pyarrow's own have no number
            raise store.unreadable(what, error) from error
        raise damaged(what, _said(error), table) from error
    except Exception as error:
        raise damaged(what, _said(error), table) from error


def _said(error: Exception) -> str:
    """What a parser says, in one line of bounded length."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
