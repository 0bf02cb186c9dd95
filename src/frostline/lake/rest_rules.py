"""What a table of a REST catalog may not have, because whoever commits to it there could have us run it.

In our own catalog only Postgres writes types and CHECKs; in another one they are properties like all others, and become
parts of statements in a node's sessions. docs/design/rest-nodes.md
"""

from pyiceberg.table.metadata import TableMetadata

from frostline.errors import CorruptionError, UsageError
from frostline.lake import lake_format, lake_table, pg_types
from frostline.lake.rest_tables import Place


class NotOverRest(UsageError):
    """A node of a REST catalog cannot serve the table, or cannot write it."""

    sqlstate = "0A000"


def require_inside(place: Place, warehouse: str) -> None:
    """Refuse a table elsewhere than in the node's warehouse."""
    if not place.is_inside(warehouse):
        raise NotOverRest(f"{place.metadata_location} is not in the warehouse {warehouse}", hint="see --warehouse")


def require_attachable(metadata: TableMetadata) -> None:
    """Refuse a table that a node cannot serve, or that nobody but a Frostline is to commit to."""
    lake_format.require_read(metadata)
    require_types(metadata)
    said = metadata.properties
    if said.get("gc.enabled") == "false" and said.get("write.delete.mode") == "copy-on-write":
        raise NotOverRest(
            f"only Frostline commits to the table at {metadata.location}", hint="read it where it is, with its hot rows"
        )


def require_served(metadata: TableMetadata, uuid: str) -> None:
    """Refuse what the table may have got since it was attached, and the metadata of another one at the same place."""
    if str(metadata.table_uuid) != uuid:
        raise CorruptionError(
            f"the metadata at {metadata.location} is of table {metadata.table_uuid}, and not of {uuid}",
            hint="the catalog has given one place to two tables: restart frostline serve, and tell the catalog's maker",
        )
    require_types(metadata)


def require_types(metadata: TableMetadata) -> None:
    """Refuse types that are not Postgres' own: the catalog cannot say what they consist of."""
    for column in pg_types.columns(metadata):
        if not column.pg_type.builtin:
            raise NotOverRest(
                f"column {column.name} is of type {column.pg_type.formatted}, of which a REST catalog tells nothing",
                hint="read it at a node of the catalog's Postgres",
            )


def require_no_checks(metadata: TableMetadata) -> None:
    """Refuse to write a table with CHECKs: they are SQL, and here anybody may have written it."""
    if lake_table.checks(metadata):
        raise NotOverRest(
            f"the table at {metadata.location} has CHECKs, which a node of a REST catalog does not run",
            hint="write to it at a node of the catalog's Postgres",
        )
