"""Whose code may run in our sessions: docs/design/deputies.md.

Jobs read and write tables of other roles with the rights of the installing one. A function that such a role put into an
index, a check, a domain or a cast would run with those rights. No session of Postgres can be shut against that, so a
table that has one is refused.
"""

from collections.abc import Mapping

from frostline import sqlfiles
from frostline.catalog.connect import Connection
from frostline.errors import UsageError
from frostline.model.names import Name, quoted
from frostline.model.registration import Refusal
from frostline.model.tables import Table

_statement = sqlfiles.statements(__name__, "queries/trust")
_table_statement = sqlfiles.statements(__name__, "queries/table")


def refusals(connection: Connection, oid: int) -> list[Refusal]:
    """What the table has that must not run with our rights; nothing where its owner could have them anyway."""
    role = quoted(connection.info.user)
    by_code: dict[str, list[str]] = {}
    for place, code in connection.execute(_statement("untrusted"), {"oid": oid}):
        by_code.setdefault(code, []).append(place)
    return [
        Refusal(f"{_named(places)} calls {code} of a role with fewer rights than {role}", _hint(code, role))
        for code, places in by_code.items()
    ]


def _named(places: list[str]) -> str:
    """A partition has what its table has; nobody wants to read all of them."""
    return places[0] if len(places) == 1 else f"{places[0]} (and {len(places) - 1} more)"


def _hint(code: str, role: str) -> str:
    if code.startswith(("domain ", "type ")):
        return f"read it, then: alter {code} owner to {role}"
    return f"if it does what it should: alter function {code} owner to {role}, and let it be stable or immutable"


def require_readable(connection: Connection, relations: Mapping[int, Name]) -> None:
    """UsageError when something that is not trusted would run with our rights if we read one of them, by their oids."""
    role = quoted(connection.info.user)
    for oid, place, code in connection.execute(_statement("untrusted_readers"), {"oids": list(relations)}):
        reason = f"{place} calls {code} of a role with fewer rights than {role}"
        raise UsageError(f"cannot read {relations[oid]}: {reason}", hint=_hint(code, role))


def loud(connection: Connection, oid: int) -> list[Refusal]:
    """The triggers and rules of the user that would fire when a fold deletes a row that is in the lake now."""
    rows = connection.execute(_statement("loud"), {"oid": oid}).fetchall()
    hint = f"as a superuser: grant set on parameter session_replication_role to {quoted(connection.info.user)}; "
    hint += "and let it be neither ENABLE ALWAYS nor ENABLE REPLICA"
    return [Refusal(f"{trigger} would fire for rows that only move into the lake", hint) for (trigger,) in rows]


def require(connection: Connection, table: Table) -> None:
    """UsageError when something that is not trusted would run with our rights if we read or wrote the table."""
    for oid in _heap(connection, table):
        _refuse(table.name, refusals(connection, oid))


def require_no_user_triggers(connection: Connection, table: Table) -> None:
    """UsageError when deleting a row of a partition would fire a trigger of the user."""
    for oid in _heap(connection, table):
        _refuse(table.name, loud(connection, oid))


def _heap(connection: Connection, table: Table) -> list[int]:
    """None when it is gone, which is for others to say."""
    values = {"schema": table.heap.schema, "table": table.heap.table}
    return [oid for (oid,) in connection.execute(_table_statement("heap_oid"), values)]


def _refuse(name: Name, reasons: list[Refusal]) -> None:
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise UsageError(f"cannot work on {name}: {reasons[0].reason}{more}", hint=reasons[0].hint)
