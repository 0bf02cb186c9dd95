"""Event triggers on DDL of the heap: partitions below the frost line, and code that would run with our rights.

Those are refused. Row security is followed by the relation.
"""

import psycopg

from frostline import sqlfiles
from frostline.catalog.connect import Connection, only_value

_statement = sqlfiles.statements(__name__, "guard")

TRIGGERS = {
    "frostline_partitions": "trigger",
    "frostline_row_security": "follow_trigger",
    "frostline_dropped_policies": "dropped_trigger",
    "frostline_drops": "drop_trigger",
    "frostline_code": "code_trigger",
}


def ensure(connection: Connection) -> bool:
    """Install the guards where the role may: event triggers need a superuser, or what a managed Postgres has for one.

    Says whether they are there. Without them archive still finds and adopts such partitions, each job looks for such
    code when it begins, and the worker, `init` and `up` follow row security.
    """
    try:
        with connection.transaction():
            connection.execute(_statement("function"))
            connection.execute(_statement("follow_function"))
            connection.execute(_statement("code_function"))
            connection.execute(_statement("drop_function"))
            present = only_value(connection.execute(_statement("exists")))
            for name, statement in TRIGGERS.items():
                if name not in present:
                    connection.execute(_statement(statement))
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
