"""PyIceberg's access to files, which compares those that have an expected checksum before anything parses them."""

import io
from typing import cast

from pyiceberg.io import InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from frostline.lake import damage, expected


class CheckedIO(PyArrowFileIO):
    """Everything that reads an Iceberg file of ours goes through it, PyIceberg's own commits included."""

    def new_input(self, location: str) -> PyArrowFile:
        """The file, or one that is compared when it is opened."""
        plain = super().new_input(location)
        return cast("PyArrowFile", CheckedFile(plain)) if expected.has(location) else plain


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
        if not expected.is_met(self.location, content):
            raise damage.wrong_checksum(f"metadata {self.location}")
        return cast("InputStream", io.BytesIO(content))
