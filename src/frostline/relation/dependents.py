"""Views and functions that name a relation: read before it changes hands, and pointed at the new one after."""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from frostline.catalog import facts
from frostline.catalog.connect import Connection
from frostline.model.names import Name
from frostline.relation.names import identifier, trusted
from frostline.relation.objects import template


@dataclass(frozen=True)
class View:
    """A view with the definition that Postgres printed while the relation still had its name."""

    name: Name
    definition: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Dependents:
    """What holds the relation by its oid, and so must be told when another object takes its name."""

    views: tuple[View, ...]
    functions: tuple[str, ...]


NONE = Dependents((), ())


def read(connection: Connection, oid: int) -> Dependents:
    """The views and SQL-body functions that use the relation directly. Read under its lock."""
    views = tuple(
        View(Name(schema, view), definition, tuple(options or ()))
        for _, kind, schema, view, definition, options in facts.rows(connection, "dependent_views", oid=oid)
        if kind == "v"
    )
    functions = facts.rows(connection, "dependent_functions", oid=oid)
    return Dependents(views, tuple(definition for _, _, definition in functions))


def statements(dependents: Dependents) -> Iterator[sql.Composed]:
    """Replace each in place: grants, owners and whatever depends on them in turn stay as they are."""
    for view in dependents.views:
        yield template("replace_view").format(
            view=identifier(view.name), options=_options(view.options), definition=trusted(view.definition)
        )
    for definition in dependents.functions:
        yield sql.Composed([trusted(definition)])


def _options(options: tuple[str, ...]) -> sql.Composable:
    if not options:
        return sql.SQL("")
    return sql.SQL(" with ({})").format(sql.SQL(", ").join(map(trusted, options)))
