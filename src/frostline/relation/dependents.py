"""Views and functions that name a relation: read before it changes hands, and pointed at the new one after."""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from frostline.catalog import facts
from frostline.catalog.connect import Connection
from frostline.catalog.facts import View
from frostline.relation.names import COMMA, identifier, trusted
from frostline.relation.objects import template


@dataclass(frozen=True)
class Dependents:
    """What holds the relation by its oid, and so must be told when another object takes its name."""

    views: tuple[View, ...]
    functions: tuple[str, ...]
    """Their definitions."""


NONE = Dependents((), ())


def read(connection: Connection, oid: int) -> Dependents:
    """The views and SQL-body functions that use the relation directly. Read under its lock."""
    views = tuple(view for view in facts.dependent_views(connection, oid) if view.kind == "v")
    return Dependents(views, facts.dependent_functions(connection, oid))


def statements(dependents: Dependents) -> Iterator[sql.Composed]:
    """Replace each in place: grants, owners and whatever depends on them in turn stay as they are."""
    for view in dependents.views:
        options = sql.SQL(" with ({})").format(COMMA.join(map(trusted, view.options))) if view.options else sql.SQL("")
        yield template("replace_view").format(
            view=identifier(view.name), options=options, definition=trusted(view.definition)
        )
    for definition in dependents.functions:
        yield sql.Composed([trusted(definition)])
