"""Checksums of whole files: SHA-256, which `sha256sum` prints too. docs/design/damaged-files.md says why this one."""

import hashlib
from collections.abc import Callable, Collection

from frostline.lake import damage, paths, store
from frostline.model.tables import Checksum, RecordedFile

_CHUNK_BYTES = 1 << 20


def of(location: str, give_up: Callable[[], None] = lambda: None) -> bytes:
    """Read a whole file. `give_up` is called all the time, and may raise. UnavailableError when the store is away."""
    local = paths.local_path(location)
    digest = hashlib.sha256()
    try:
        with paths.open_input(location) if local is None else local.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK_BYTES):
                give_up()
                digest.update(chunk)
    except OSError as error:
        store.refuse_if_away(f"read {location}", error)
        raise
    return digest.digest()


def of_metadata(locations: Collection[str]) -> dict[str, Checksum]:
    """Of small files, each read at once."""
    sums: dict[str, Checksum] = {}
    for location in locations:
        with store.reachable(f"read {location}"), paths.open_input(location) as file:
            content = bytes(file.read())
        sums[location] = Checksum(len(content), hashlib.sha256(content).digest())
    return sums


def check(file: RecordedFile, table: object) -> bool:
    """CorruptionError unless the file has the recorded size and checksum; False when there is none to compare."""
    size = paths.size_bytes(file.path)
    if size is None:
        raise damage.gone(file.path, table)
    if size != file.size_bytes:
        raise damage.wrong_size(file.path, size, file.size_bytes, table)
    if file.sha256 is not None and of(file.path) != file.sha256:
        raise damage.wrong_checksum(f"file {file.path}", table)
    return file.sha256 is not None
