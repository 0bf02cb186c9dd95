"""Event triggers on DDL: what would hide rows, lose objects of a managed table, or run code with our rights.

Those are refused: docs/design/guards.md and deputies.md. Row security is followed by the relation.
"""

from collections.abc import Iterator

import psycopg
from psycopg import sql

from frostline import sqlfiles
from frostline.catalog.connect import Connection, only_value
from frostline.errors import UsageError
from frostline.model.names import OWN_SCHEMAS, quoted

_statement = sqlfiles.statements(__name__, "guard")
_of_drops = sqlfiles.statements(__name__, "drops")

TRIGGERS = {
    "frostline_partitions": _statement("trigger"),
    "frostline_row_security": _statement("follow_trigger"),
    "frostline_dropped_policies": _statement("dropped_trigger"),
    "frostline_drops": _statement("drop_trigger"),
    "frostline_code": _statement("code_trigger"),
    "frostline_relation": _statement("relation_trigger"),
    "frostline_lost_objects": _of_drops("drop_trigger"),
    "frostline_lost_guard": _of_drops("guard_trigger"),
    "frostline_lost_guards": _of_drops("guards_trigger"),
    "frostline_hidden_rows": _of_drops("hide_trigger"),
    "frostline_follow": _statement("changes_trigger"),
    "frostline_children": _statement("children_trigger"),
    "frostline_heap_named": _statement("heap_named_trigger"),
    "frostline_order": _statement("order_trigger"),
    "frostline_stand_aside": _statement("aside_trigger"),
    "frostline_called": _statement("names_trigger"),
    "frostline_types": _statement("types_trigger"),
    "frostline_rights": _statement("rights_trigger"),
    "frostline_held": _statement("held_trigger"),
    "frostline_parents": _statement("parents_trigger"),
    "frostline_dropped_constraints": _statement("dropped_constraints_trigger"),
}


def ensure(connection: Connection) -> bool:
    """Install the guards where the role may: event triggers need a superuser, or what a managed Postgres has for one.

    Says whether they are there. Without them archive still finds and adopts such partitions, each job looks for such
    code when it begins, the worker, `init` and `up` follow row security, and `status` reports lost objects.
    """
    try:
        with connection.transaction():
            for function in _functions(connection):
                connection.execute(function)
            present = only_value(connection.execute(_statement("exists")))
            for name, statement in TRIGGERS.items():
                if name not in present:
                    connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def _functions(connection: Connection) -> Iterator[sql.SQL | sql.Composed]:
    own = sql.Literal(list(OWN_SCHEMAS))
    for name in ("function", "follow_function", "code_function", "comment_function", "relation_function"):
        yield _statement(name)
    yield _statement("drop_function").format(own_schemas=own)
    yield _of_drops("schema")
    _refuse_strange_schema(connection)
    yield _of_drops("drop_function").format(own_schemas=own)
    yield _of_drops("guard_function")
    yield _of_drops("guards_function")
    yield _of_drops("hide_function")


def _refuse_strange_schema(connection: Connection) -> None:
    """Whose schema it is could put another function in the place of ours."""
    for is_ours, owner in connection.execute(_of_drops("schema_owner")):
        if not is_ours:
            hint = f"run it as {quoted(owner)} if that role installed Frostline; else drop the schema"
            raise UsageError(f"schema frostline_guard belongs to role {quoted(owner)}", hint=hint)
