"""Files of lake tables that are not served, because others who commit to the table have named them."""

from pyiceberg.table.metadata import TableMetadata

from frostline.errors import UnavailableError
from frostline.lake import paths


def require_inside(path: str, metadata: TableMetadata) -> None:
    """Refuse a file elsewhere: whoever may commit to a table could have our server read another one for them."""
    if not paths.is_inside(path, metadata.location.rstrip("/")):
        raise UnavailableError(
            f"{path} is not in the table's folder {metadata.location}, so it is not served",
            hint="write its rows into the table instead",
        )
