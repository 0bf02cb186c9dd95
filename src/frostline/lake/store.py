"""A store that does not do its part: full, forbidden, slow to fail, or gone. Whatever it is, one tries again later."""

from collections.abc import Generator
from contextlib import contextmanager

import duckdb

from frostline.errors import UnavailableError

HINT = "check that the warehouse is mounted, may be written and is not full; then run the command again"


@contextmanager
def reachable(doing: str) -> Generator[None]:
    """Turn what the system says about a file into an UnavailableError."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        raise UnavailableError(f"cannot {doing}: {' '.join(str(error).split())}", hint=HINT) from error


def unreadable(what: str, error: OSError) -> UnavailableError:
    """The error for a file of the lake that cannot be read."""
    reason = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
    return UnavailableError(f"lake {what} {reason}", hint="check that the warehouse is mounted, then retry")
