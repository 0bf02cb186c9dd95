"""What the small files of lakes must be: checksums of metadata files, manifest lists and manifests, by location.

One mapping for the process, because PyIceberg opens these files in many places and knows nothing of a catalog. Whoever
has asked the catalog puts the checksums here first. Names of lake files are used once, so an entry is good for ever.
PyIceberg's access to files, `CheckedIO`, compares those that have an entry before anything parses them.
"""

import hashlib
import io
from collections.abc import Mapping
from typing import cast

from pyiceberg.io import InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from frostline.lake import damage

_MOST = 200_000
_known: dict[str, bytes] = {}


def add(sums: Mapping[str, bytes]) -> None:
    """From now on, whatever reads one of these files in this process compares it first."""
    if len(_known) > _MOST:
        _known.clear()
    _known.update(sums)


def is_met(location: str, content: bytes) -> bool:
    """Whether the file has what it must, as far as anybody has said."""
    wanted = _known.get(location)
    return wanted is None or hashlib.sha256(content).digest() == wanted


def has(location: str) -> bool:
    """Whether anybody has said what the file must be."""
    return location in _known


class CheckedIO(PyArrowFileIO):
    """Everything that reads an Iceberg file of ours goes through it, PyIceberg's own commits included."""

    def new_input(self, location: str) -> PyArrowFile:
        """The file, or one that is compared when it is opened."""
        plain = super().new_input(location)
        return cast("PyArrowFile", CheckedFile(plain)) if has(location) else plain


class CheckedFile(InputFile):
    """A small file that is read whole, and given to nobody unless it is what it must be."""

    def __init__(self, plain: InputFile) -> None:
        super().__init__(plain.location)
        self._plain = plain

    def __len__(self) -> int:
        return len(self._plain)

    def exists(self) -> bool:
        """Whether it is there."""
        return self._plain.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002  (PyIceberg's)
        """Its content; CorruptionError when it is not what was written."""
        with self._plain.open(seekable) as file:
            content = bytes(file.read())
        if not is_met(self.location, content):
            raise damage.wrong_checksum(f"metadata {self.location}")
        return cast("InputStream", io.BytesIO(content))
