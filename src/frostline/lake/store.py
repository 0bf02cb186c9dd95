"""A store that does not do its part: full, forbidden, slow to fail, or gone. Whatever it is, one tries again later."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from frostline.errors import UnavailableError
from frostline.lake import objectstore

HINT = "check that the warehouse is mounted, may be written and is not full; then run the command again"
_FROM_AN_OBJECT_STORE = re.compile(r"AWS Error|^HTTP Error|error for HTTP |\bcurlCode\b|Timeout was reached")
UNREADABLE = "check that the warehouse is mounted, then retry; a file that is lost has to come from a backup"
_AGAIN = "; then run the command again"


@dataclass(frozen=True)
class Trouble:
    """What an object store has against a request, in our words."""

    reason: str
    hint: str
    passes: bool = False
    """It may be over in a moment, without anybody doing anything about it."""


_TROUBLES = (
    (
        r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId",
        Trouble("the object store does not know the access key", "correct s3_access_key" + _AGAIN),
    ),
    (
        r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch",
        Trouble("the secret key is not the one of the access key", "correct s3_secret_key" + _AGAIN),
    ),
    (
        r"EXPIRED_TOKEN|ExpiredToken|INVALID_TOKEN|InvalidToken|INVALID_CLIENT_TOKEN_ID",
        Trouble("the session token is not valid any more", "set new s3_* keys and s3_session_token" + _AGAIN),
    ),
    (
        r"NO_SUCH_BUCKET|NoSuchBucket",
        Trouble("there is no such bucket", "make the bucket, or correct warehouse" + _AGAIN),
    ),
    (
        r"PERMANENT_REDIRECT|PermanentRedirect|AuthorizationHeaderMalformed|HTTP (code )?301",
        Trouble("the bucket is in another region", "correct s3_region" + _AGAIN),
    ),
    (
        r"ACCESS_DENIED|AccessDenied|HTTP (code )?403",
        Trouble(
            "the object store forbids it",
            "check the keys, and that they may list, read, write and delete there" + _AGAIN,
        ),
    ),
    (
        r"NETWORK_CONNECTION|curlCode|Could not connect|Timeout was reached|resolve|error for HTTP ",
        Trouble("the object store does not answer", "check that it runs, and s3_endpoint" + _AGAIN, passes=True),
    ),
    (
        r"SLOW_DOWN|SlowDown|SERVICE_UNAVAILABLE|ServiceUnavailable|INTERNAL_|InternalError|HTTP (code )?5\d\d",
        Trouble("the object store cannot do it at the moment", "run the command again", passes=True),
    ),
)


def trouble(error: BaseException) -> Trouble | None:
    """What the error says about an object store that cannot be used; None for an error of another kind.

    That a file is not there is no trouble with the store.
    """
    text = str(error)
    is_of_a_store = isinstance(error, OSError | duckdb.IOException) and _FROM_AN_OBJECT_STORE.search(text)
    return next((known for pattern, known in _TROUBLES if re.search(pattern, text)), None) if is_of_a_store else None


@contextmanager
def reachable(doing: str) -> Generator[None]:
    """Turn what the system says about a file into an UnavailableError."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        problem = trouble(error) or Trouble(" ".join(str(error).split()), HINT)
        raise UnavailableError(f"cannot {doing}: {problem.reason}{_place(error)}", hint=problem.hint) from error


def may_pass(error: BaseException) -> bool:
    """Whether the error is one of `reachable`, about an object store that may be back in a moment."""
    problem = trouble(error.__cause__) if error.__cause__ else None
    return problem is not None and problem.passes


def refuse_if_away(doing: str, error: Exception) -> None:
    """Raise UnavailableError if the error says nothing about a file, only that its object store cannot be used."""
    if trouble(error):
        with reachable(doing):
            raise error


def unreadable(what: str, error: OSError) -> UnavailableError:
    """The error for a file of the lake that cannot be read."""
    problem = trouble(error)
    if problem:
        return UnavailableError(f"lake {what} cannot be read: {problem.reason}{_place(error)}", hint=problem.hint)
    reason = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
    return UnavailableError(f"lake {what} {reason}", hint=UNREADABLE)


def _place(error: BaseException) -> str:
    """Which object store it is about."""
    access = objectstore.in_use() if trouble(error) else None
    return f" ({access.endpoint or 'Amazon S3'})" if access else ""
