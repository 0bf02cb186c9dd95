"""One text for a key of several columns, for engines that hash or join by a single value.

A part is the canonical text of one key column. `frostline.key_v1` in Postgres does the same. The contract is
docs/reference/seam-protocol.md, and `tests/golden/keys.json` has its vectors.
"""

import re
from collections.abc import Sequence

SEPARATOR = "\x1f"
"""Between two parts, and nowhere else: whoever splits a key there has its parts, still escaped."""

_ESCAPES = {"\\": "\\\\", SEPARATOR: "\\u"}
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}
_SPECIAL = re.compile(r"[\\\x1f]")
_ESCAPED = re.compile(r"\\(?:.|\Z)", re.DOTALL)


def encode(parts: Sequence[str]) -> str:
    """The key as one text; different keys have different ones. ValueError for a key without columns."""
    if not parts:
        raise ValueError("a key has at least one column")
    return SEPARATOR.join(_SPECIAL.sub(lambda match: _ESCAPES[match[0]], part) for part in parts)


def decode(key: str) -> tuple[str, ...]:
    """The parts that `encode` was given. ValueError for a text that it does not give."""
    return tuple(_ESCAPED.sub(lambda match: _meaning(match[0], key), part) for part in key.split(SEPARATOR))


def _meaning(escape: str, key: str) -> str:
    if escape not in _MEANINGS:
        raise ValueError(f"not an encoded key: {key!r}")
    return _MEANINGS[escape]
