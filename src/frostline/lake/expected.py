"""What the small files of lakes must be: checksums of metadata files, manifest lists and manifests, by location.

One mapping for the process, because PyIceberg opens these files in many places and knows nothing of a catalog. Whoever
has asked the catalog puts the checksums here first. Names of lake files are used once, so an entry is good for ever.
"""

import hashlib
from collections.abc import Mapping

_MOST = 200_000
_known: dict[str, bytes] = {}


def add(found: Mapping[str, bytes]) -> None:
    """From now on, whatever reads one of these files in this process compares it first."""
    if len(_known) > _MOST:
        _known.clear()
    _known.update(found)


def is_met(location: str, content: bytes) -> bool:
    """Whether the file has what it must, as far as anybody has said."""
    wanted = _known.get(location)
    return wanted is None or hashlib.sha256(content).digest() == wanted


def has(location: str) -> bool:
    """Whether anybody has said what the file must be."""
    return location in _known
