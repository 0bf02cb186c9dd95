"""How this process reaches the object store of an s3:// warehouse: endpoint, keys, and how long it waits.

The access is one value for the process, put in place by whoever has read the settings. A location such as
`s3://bucket/key` is all that the catalog, Iceberg's own files and the readers know of a file, so whatever opens one
would have to be handed the access by everything above it; caches of what was read from a location would have to be
kept apart by it too. A process works on one warehouse, so there is one access. Spark tasks run in processes of their
own: what is sent to them has no keys, but names a private file that has them.
"""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline import secretfile
from frostline.errors import UsageError
from frostline.lake import ducksql
from frostline.settings import ENV_PREFIX, Settings, load

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

SCHEME = "s3://"
_AMAZON = "https://s3.{region}.amazonaws.com"
_CONNECT_TIMEOUT_S = 5
_TIMEOUT_S = 30
_TRIES = 3
_PART_SIZES = "80GB"
"""DuckDB uploads a ten-thousandth of this at a time. Each part has the time of one request, and is in memory."""
_CREATE = "create or replace secret frostline (type s3, {options})"


@dataclass(frozen=True)
class Access:
    """One object store, and who we are there."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"
    endpoint: str | None = None
    """`http://host:port`; None for Amazon's own, by the bucket's name."""
    path_style: bool = False
    timeout_s: int = _TIMEOUT_S
    """After how long without an answer a request is tried again, or given up."""
    place: str | None = field(default=None, repr=False, compare=False)
    """The file that the keys were in, if this was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Take the keys out: what is pickled names a file that has them."""
        keys = (self.access_key, self.secret_key, self.session_token)
        place = self.place or secretfile.put(json.dumps(keys))
        return _restored, (place, self.region, self.endpoint, self.path_style, self.timeout_s)

    @classmethod
    def of(cls, settings: Settings) -> "Access | None":
        """As the settings say; None when they have no keys."""
        if settings.s3_access_key is None or settings.s3_secret_key is None:
            return None
        by_path = settings.s3_endpoint is not None if settings.s3_path_style is None else settings.s3_path_style
        token = settings.s3_session_token
        return cls(
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            session_token=token.get_secret_value() if token else None,
            region=settings.s3_region,
            endpoint=settings.s3_endpoint or (_AMAZON.format(region=settings.s3_region) if by_path else None),
            path_style=by_path,
        )


def _restored(place: str, region: str, endpoint: str | None, path_style: bool, timeout_s: int) -> Access:  # noqa: FBT001
    """The same access with the keys in the file; else with those that this machine has, if any."""
    secret = secretfile.get(place)
    keys: Any = json.loads(secret) if secret else _own_keys()
    return Access(*keys, region=region, endpoint=endpoint, path_style=path_style, timeout_s=timeout_s, place=place)


def _own_keys() -> tuple[str, str, str | None]:
    """What the environment of this process says, or the home that it names; nothing if neither does."""
    home = os.environ.get(f"{ENV_PREFIX}HOME")
    try:
        own = Access.of(load(Path(home) if home else None, {"dsn": "-", "warehouse": "."}))
    except UsageError:
        own = None
    return (own.access_key, own.secret_key, own.session_token) if own else ("", "", None)


_current: Access | None = None


def use(access: Access | None) -> None:
    """From now on this process reaches object stores in this way; None: not at all."""
    global _current  # noqa: PLW0603  (the module says why there is one)
    _current = access


@contextmanager
def used(access: Access | None) -> Generator[None]:
    """Use it for the block."""
    before = _current
    use(access)
    try:
        yield
    finally:
        use(before)


def in_use() -> Access | None:
    """What `use` was called with, to be handed to another process."""
    return _current


def current() -> Access:
    """The access to use; UsageError when there is none."""
    if _current is None:
        raise UsageError(
            "s3_access_key and s3_secret_key are not set",
            hint="set them in frostline.toml, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if not _current.access_key:
        raise UsageError(
            "this machine of the Spark cluster has no keys of the object store",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the executors: docs/guides/cluster.md",
        )
    return _current


def names(warehouse: str) -> bool:
    """Whether a warehouse, as somebody has written it, is in an object store."""
    return warehouse.partition("://")[0] in ("s3", "s3a", "s3n")


def holds(location: str) -> bool:
    """Whether the location is in an object store."""
    return location.startswith(SCHEME)


def file_io() -> "PyArrowFileIO":
    """PyIceberg's access to the store. Connections are made when they are needed, so it outlives an outage."""
    return _file_io(current())


@lru_cache(maxsize=4)
def _file_io(access: Access) -> "PyArrowFileIO":
    from frostline.lake.expected import CheckedIO  # noqa: PLC0415  (slow to load)

    filesystem = _filesystem(access)
    io = CheckedIO()
    io.fs_by_scheme = lambda _scheme, _bucket: filesystem
    return io


def _filesystem(access: Access) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415  (slow to load)

    make: Any = S3FileSystem  # its type stubs lack a parameter
    return make(
        access_key=access.access_key,
        secret_key=access.secret_key,
        session_token=access.session_token,
        region=access.region,
        endpoint_override=access.endpoint,
        force_virtual_addressing=not access.path_style,
        connect_timeout=min(_CONNECT_TIMEOUT_S, access.timeout_s),
        request_timeout=access.timeout_s,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        allow_delayed_open=True,  # a small file is then one request, not three
    )


def duckdb_statements() -> list[str]:
    """What makes a new DuckDB connection reach the store, httpfs being loaded. They hold the keys: never log them."""
    access = current()
    return [
        _secret(access),
        f"set http_timeout = {access.timeout_s}",
        f"set http_retries = {_TRIES - 1}",
        f"set s3_uploader_max_filesize = {ducksql.literal(_PART_SIZES)}",
    ]


def _secret(access: Access) -> str:
    options = {
        "key_id": ducksql.literal(access.access_key),
        "secret": ducksql.literal(access.secret_key),
        "region": ducksql.literal(access.region),
        "url_style": ducksql.literal("path" if access.path_style else "vhost"),
    }
    if access.session_token:
        options["session_token"] = ducksql.literal(access.session_token)
    if access.endpoint:
        scheme, _, host = access.endpoint.partition("://")
        options |= {"endpoint": ducksql.literal(host), "use_ssl": str(scheme == "https").lower()}
    return _CREATE.format(options=", ".join(f"{name} {value}" for name, value in options.items()))
