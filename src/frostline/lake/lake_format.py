"""The format of Iceberg that lake tables have, and the only test of it: every room asks here, and says the same.

Format 1 has no sequence numbers, so no deleted rows: such a table is read and not written. Format 3 has deletion
vectors, and default values for the rows of older files: a reader that skips what is new in it gives wrong answers.
"""

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2

from frostline.errors import UsageError

FORMAT = 2


class OtherFormat(UsageError):
    """A table of a format that is not read, or not written."""

    sqlstate = "0A000"


def require_read(metadata: TableMetadata) -> None:
    """Refuse a table of a newer format: what it has is not known here."""
    if metadata.format_version > FORMAT:
        raise OtherFormat(
            _said(metadata), hint="no table goes back to an older format: copy its rows into a new lake table"
        )


def is_written(metadata: TableMetadata) -> bool:
    """Whether a table of its format is written."""
    return metadata.format_version == FORMAT


def written(metadata: TableMetadata) -> TableMetadataV2:
    """The metadata of a table that may be written; OtherFormat for that of any other."""
    require_read(metadata)
    if not isinstance(metadata, TableMetadataV2):
        raise OtherFormat(
            f"{_said(metadata)}: it is read and not written",
            hint=f"let another engine set the table property format-version to {FORMAT}",
        )
    return metadata


def _said(metadata: TableMetadata) -> str:
    place, version = metadata.location, metadata.format_version
    return f"the table at {place} is of format {version}, and lake tables are of format {FORMAT}"
