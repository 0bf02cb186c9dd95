"""What the catalog knows for the upkeep of lake tables: the states that they have had, the last look at each, and jobs.

docs/design/lake-tables.md, "Upkeep". A trigger writes down the former states, whoever moves a pointer.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from frostline import sqlfiles
from frostline.catalog import pointers, snapshot_versions
from frostline.catalog.connect import Connection, fetch, only_value
from frostline.catalog.jobs import Job, State
from frostline.catalog.pointers import LakePointer
from frostline.model.lake_upkeep import MANY_STATES, Keeping
from frostline.model.names import Name
from frostline.model.work import Failures, Kind

_statement = sqlfiles.statements(__name__, "queries/lake_upkeep")


class Former(NamedTuple):
    """A state that a lake table has had."""

    metadata_location: str
    replaced_at: datetime
    """When the pointer left it."""


def over(connection: Connection, lake_table_id: int, keeping: Keeping) -> list[Former]:
    """The states that neither the policy nor a named snapshot that is being made keeps any more, the oldest first."""
    values = {
        "lake_table_id": lake_table_id,
        "age": keeping.age,
        "short_age": keeping.short_age,
        "most": MANY_STATES,
        "began": min(snapshot_versions.began(connection).values(), default=None),
    }
    return fetch(connection, Former, _statement("over"), values)


def former(connection: Connection, lake_table_id: int) -> list[str]:
    """The metadata files of all states that are not forgotten, the oldest first."""
    return [row[0] for row in connection.execute(_statement("former"), {"lake_table_id": lake_table_id}).fetchall()]


def forget(connection: Connection, lake_table_id: int, states: Sequence[Former]) -> list[str]:
    """Forget states, in the transaction that expires them; gives the metadata files of those that were still there."""
    values = {
        "lake_table_id": lake_table_id,
        "locations": [state.metadata_location for state in states],
        "times": [state.replaced_at for state in states],
    }
    return [location for (location,) in connection.execute(_statement("forget"), values).fetchall()]


def is_own(connection: Connection, lake_table_id: int) -> bool:
    """Whether the table's old files are this database's to delete: no other one is known that may need them.

    True of a table that is gone, which is for the caller's next question to say.
    """
    return only_value(connection.execute(_statement("is_own"), {"lake_table_id": lake_table_id}))


@dataclass(frozen=True)
class Look:
    """What a lake table consisted of when somebody looked."""

    metadata_location: str
    rows: int
    """Without those that are gone."""
    files: int
    delete_files: int
    size_bytes: int
    snapshots: int


def record(connection: Connection, lake_table_id: int, look: Look, keeping: Keeping) -> None:
    """Write down what was seen, and the policy of the table."""
    values = {"lake_table_id": lake_table_id, "age": keeping.age, "short_age": keeping.short_age}
    connection.execute(_statement("look"), asdict(look) | values)


def set_swept(connection: Connection, lake_table_id: int) -> None:
    """Write down that the table's folder was swept now."""
    connection.execute(_statement("set_swept"), {"lake_table_id": lake_table_id})


@dataclass(frozen=True)
class Standing:
    """A lake table, as Postgres alone knows it."""

    id: int
    name: Name
    metadata_location: str
    now: datetime
    swept_at: datetime
    look: Look | None
    """None before the first one."""
    looked_at: datetime | None
    expirable: int
    """States that should be expired now."""
    leased_by: str | None
    """The job that runs on it."""
    is_own: bool
    """As `is_own`."""
    last_job: Job | None
    failures: Mapping[Kind, Failures]


def survey(connection: Connection) -> list[Standing]:
    """All live lake tables, by their names."""
    failed = defaultdict[int, dict[Kind, Failures]](dict)
    for number, kind, failures_of_kind in fetch(connection, _failed, _statement("failures")):
        failed[number][kind] = failures_of_kind
    last = dict(fetch(connection, _last_job, _statement("last")))
    known = {row["id"]: row for row in fetch(connection, dict[str, Any], _statement("survey"), {"most": MANY_STATES})}
    return [
        _standing(table, last.get(table.id), failed.get(table.id, {}), **known[table.id])
        for table in pointers.lake_tables(connection)
        if table.id in known
    ]


def _standing(table: LakePointer, last_job: Job | None, failures: Mapping[Kind, Failures], **row: Any) -> Standing:
    location = row.pop("looked_at_location")
    seen = {name: row.pop(name) for name in ("rows", "files", "delete_files", "size_bytes", "snapshots")}
    look = None if location is None else Look(location, **seen)
    place = table.metadata_location
    return Standing(name=table.name, metadata_location=place, look=look, last_job=last_job, failures=failures, **row)


def _last_job(*, lake_table_id: int, state: str, **others: Any) -> tuple[int, Job]:
    return lake_table_id, Job(state=State(state), **others)


def failures(connection: Connection, lake_table_id: int) -> dict[Kind, Failures]:
    """Each kind of job on the table that failed when it was run last."""
    failed = fetch(connection, _failed, _statement("failures"))
    return {kind: failures for number, kind, failures in failed if number == lake_table_id}


def _failed(*, lake_table_id: int, kind: str, **failures: Any) -> tuple[int, Kind, Failures]:
    return lake_table_id, Kind(kind), Failures(**failures)


def start(connection: Connection, table: LakePointer, kind: str) -> int:
    """Write down a job that this session does, and give it its number. Those whose sessions are gone have failed."""
    connection.execute(_statement("abandon"), {"lake_table_id": table.id})
    return only_value(connection.execute(_statement("start"), _of_job(table, kind)))


def record_done(connection: Connection, table: LakePointer, kind: str, detail: str) -> None:
    """Write down something that was done in one step."""
    connection.execute(_statement("record_done"), _of_job(table, kind) | {"detail": detail})


def _of_job(table: LakePointer, kind: str) -> dict[str, Any]:
    return {"lake_table_id": table.id, "schema": table.namespace, "table": table.table, "kind": kind}


def prune(connection: Connection, lake_table_id: int, days: int) -> None:
    """Forget jobs on the table that ended that many days ago."""
    connection.execute(_statement("prune"), {"lake_table_id": lake_table_id, "days": days})
