"""The named statements for Frostline's own tables, from `sql/queries/<noun>.sql`."""

from typing import LiteralString

from frostline import sqlfiles


def get(noun: str, name: str) -> LiteralString:
    """The statement `name` of `sql/queries/<noun>.sql`."""
    return sqlfiles.load(__package__ or "", f"queries/{noun}")[name]
