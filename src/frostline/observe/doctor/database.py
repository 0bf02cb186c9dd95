"""Checks of Postgres: can it be reached, may we do what we have to, what stands in our way, is its clock right."""

import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg
from psycopg.conninfo import conninfo_to_dict

from frostline.catalog import lost, migrations, pointers
from frostline.errors import UnavailableError, UsageError
from frostline.observe.doctor.patient import Patient, State, Unknowable, Verdict, fault, ok, statement, warning
from frostline.relation import constraints, guard, rowsecurity

OLDEST_POSTGRES = 15
OLD = "1 hour"
_OWN_CONNECTIONS = 4
"""Of a job, next to its tasks: the command's, the snapshot's, the lease's and the lake server's."""
_MOST_SKEW_S = 2.0
_CONNECT_TIMEOUT_S = 5
_CONTROL = "execute on function pg_control_system()"
_GUARD = "alter table frostline.iceberg_tables enable trigger user"
_LOCAL = re.compile(r"local\[(\*|\d+)")

Rows = Sequence[tuple[Any, ...]]
Psql = Callable[[str], str]
"""Writes the command line that runs a statement."""


def postgres(patient: Patient) -> Verdict:
    """Whether Postgres answers, and is new enough."""
    try:
        patient.connect()
    except UnavailableError as error:
        return fault(error.message, _wake(patient))
    patient.time_limit = patient.row("time_limit")[0]
    patient.row("limit_ourselves")
    number, text = patient.row("version")
    return judge_postgres(number // 10_000, text)


def _wake(patient: Patient) -> str:
    if patient.settings.embedded:
        return patient.command("up")
    known = conninfo_to_dict(patient.settings.dsn)
    words = [f"--{key} {shlex.quote(str(known[key]))}" for key in ("host", "port") if known.get(key)]
    return " ".join(["pg_isready", *words])


def judge_postgres(major: int, text: str) -> Verdict:
    """Whether a Postgres is new enough."""
    if major < OLDEST_POSTGRES:
        return fault(f"{text} is older than {OLDEST_POSTGRES}", "pg_upgrade --help")
    return ok(text)


def catalog(patient: Patient) -> Verdict:
    """Whether Frostline's catalog is there, and of this program's version."""
    try:
        migrations.require(patient.postgres)
    except UsageError as error:
        is_ours = patient.home is not None and str(error.hint).startswith("frostline init")
        return fault(error.message, patient.command("init") if is_ours else str(error.hint))
    patient.has_catalog = True
    return ok(f"at migration {migrations.version(patient.postgres)}")


def role(patient: Patient) -> Verdict:
    """Whether the connected role has the rights that the guide asks for."""
    name, database, *has = patient.row("role")
    grants = ("create on database " + patient.quoted(database), "pg_read_all_stats", _CONTROL)
    missing = [grant for grant, is_there in zip(grants, has, strict=True) if not is_there]
    if missing:
        statements = "; ".join(f"grant {grant} to {patient.quoted(name)}" for grant in missing)
        return fault(
            f"{name} has no {' and no '.join(missing)}", f"as an administrator: psql -c {shlex.quote(statements)}"
        )
    return ok(f"{name} has what it needs")


def owners(patient: Patient) -> Verdict:
    """Whether the connected role may act for the owner of each managed table."""
    names = [name for table in patient.tables for name in (table.relation, table.heap)]
    schemas, relations = [name.schema for name in names], [name.table for name in names]
    strangers = patient.rows("strange_owners", schemas=schemas, names=relations)
    if strangers:
        me, owner = patient.quoted(patient.row("role")[0]), patient.quoted(strangers[0][1])
        detail = f"{strangers[0][0]} belongs to {owner}, for whom {me} may not act"
        return fault(detail, f"as an administrator: psql -c {shlex.quote(f'grant {owner} to {me}')}")
    return ok(f"of {len(patient.tables)} managed tables")


def objects(patient: Patient) -> Verdict:
    """Whether every managed table has all of its objects."""
    connection = patient.postgres
    if not patient.has_catalog:
        raise Unknowable("needs the catalog")
    gone = lost.read(connection)
    for loss in gone:
        return fault(and_more(f"{loss.table}: its {loss}", len(gone)), patient.command(loss.remedy))
    return ok("each managed table has all of its own")


def guards(patient: Patient) -> Verdict:
    """Whether event triggers keep managed tables from being dropped in passing."""
    triggers = dict(patient.rows("event_triggers"))
    if not patient.has_catalog:
        raise Unknowable("needs the catalog")
    for name, is_on in triggers.items():
        if not is_on:
            detail = f"event trigger {name} is switched off: what would lose rows is not refused"
            return warning(detail, patient.psql(f"alter event trigger {name} enable"))
    if set(guard.TRIGGERS) <= set(triggers):
        return ok("event triggers refuse to drop what a managed table needs")
    detail = "no event trigger refuses to drop what a managed table needs: frostline status tells of it afterwards"
    return Verdict(State.OK, detail, f"as a superuser: {patient.command('init')}")


def row_security(patient: Patient) -> Verdict:
    """Whether each relation applies the row security of its heap."""
    managed = len(patient.tables)
    strayed = rowsecurity.strayed(patient.postgres)
    heaps = {table.name: table.heap for table in patient.tables}
    for name, problem in strayed.items():
        return fault(and_more(f"on {heaps.get(name, name)} {problem}", len(strayed)), patient.command("init"))
    return ok(f"of {managed} managed tables")


def held_constraints(patient: Patient) -> Verdict:
    """Whether rows in the lake were looked at for each constraint of their heap."""
    connection = patient.postgres
    for table in patient.tables:
        unseen = constraints.unseen(connection, table)
        if unseen:
            detail = f"{table.name}: rows in the lake were not looked at for {unseen}"
            return warning(detail, patient.command(f"table sync {table.name}"))
    return ok("rows in the lake hold what their tables do")


def foreign_commits(patient: Patient) -> Verdict:
    """Whether the Iceberg catalog points to what Frostline has committed, for each table with a lake."""
    tiered = [table for table in patient.tables if table.has_lake]
    for table in tiered:
        standing = pointers.standing(patient.postgres, table)
        if standing.is_foreign:
            return fault(f"{table.name}: {standing.described}", patient.command(f"repair {table.name}"))
    if not patient.row("pointer_guard")[0]:
        detail = "a trigger on frostline.iceberg_tables is switched off, and other engines can commit to tables of ours"
        return warning(detail, patient.psql(_GUARD))
    return ok(f"none in {len(tiered)} tables")


def time_limit(patient: Patient) -> Verdict:
    """Whether our statements are given all the time they need."""
    name = patient.quoted(patient.row("role")[0])
    return judge_time_limit(patient.time_limit, patient.psql(f"alter role {name} set statement_timeout = 0"))


def judge_time_limit(limit: str, hint: str) -> Verdict:
    """Whether there is a limit that a long statement of a job would meet."""
    return ok("none") if limit in {"0", ""} else warning(f"statement_timeout is {limit}: long jobs will fail", hint)


def old_transactions(patient: Patient) -> Verdict:
    """Whether a transaction has been open for so long that clean and expiry wait for it."""
    return judge_transactions(patient.rows("old_transactions", old=OLD), patient.psql)


def judge_transactions(rows: Rows, psql: Psql) -> Verdict:
    """What to say about old transactions: process, role, seconds."""
    if not rows:
        return ok(f"none is older than {OLD}")
    pid, who, seconds = rows[0]
    detail = f"process {pid} of {who} has been in a transaction for {hours(seconds)}: clean and expiry wait for it"
    return warning(and_more(detail, len(rows)), psql(f"select pg_terminate_backend({pid})"))


def prepared_transactions(patient: Patient) -> Verdict:
    """The same of prepared transactions, which nobody may remember."""
    return judge_prepared(patient.rows("prepared_transactions", old=OLD), patient.psql)


def judge_prepared(rows: Rows, psql: Psql) -> Verdict:
    """What to say about old prepared transactions: name, seconds."""
    if not rows:
        return ok(f"none is older than {OLD}")
    name, seconds = rows[0]
    detail = f"{name!r} has been prepared for {hours(seconds)}: clean and expiry wait for it"
    text = name.replace("'", "''")
    return warning(and_more(detail, len(rows)), psql(f"rollback prepared '{text}'"))


def slots(patient: Patient) -> Verdict:
    """The same of replication slots."""
    return judge_slots(patient.rows("old_slots"), patient.psql)


def judge_slots(rows: Rows, psql: Psql) -> Verdict:
    """What to say about slots that hold old rows: name, transactions, whether somebody uses it."""
    if not rows:
        return ok("none holds old rows")
    name, age, is_active = rows[0]
    who = "is far behind" if is_active else "is used by nobody"
    detail = f"slot {name} {who} and holds {age} transactions: clean and expiry wait for it"
    look, drop = "select * from pg_replication_slots", f"select pg_drop_replication_slot('{name}')"
    return warning(and_more(detail, len(rows)), psql(look if is_active else drop))


def connections(patient: Patient) -> Verdict:
    """Whether a job finds as many connections as it has tasks."""
    most, open_now = patient.row("connections")
    return judge_connections(most, open_now, tasks(patient.settings.spark_master), patient.psql)


def judge_connections(most: int, open_now: int, wanted: int | None, psql: Psql) -> Verdict:
    """Whether there is room for that many tasks; None when a cluster decides how many there are."""
    room = most - open_now
    detail = f"{room} of {most} are free"
    if wanted is None:
        return ok(f"{detail}; a cluster with more tasks at a time than that would be refused")
    if room < wanted + _OWN_CONNECTIONS:
        more = most + wanted + _OWN_CONNECTIONS
        hint = psql(f"alter system set max_connections = {more}") + "; then restart Postgres"
        return warning(f"{detail}, while a job may open {wanted + _OWN_CONNECTIONS}", hint)
    return ok(f"{detail}, a job opens {wanted + _OWN_CONNECTIONS} at most")


def tasks(master: str) -> int | None:
    """How many tasks run at a time; None when it is not this machine that decides."""
    if master == "local":
        return 1
    match = _LOCAL.match(master)
    if not match:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def hours(seconds: int) -> str:
    """A long time in words."""
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def and_more(detail: str, count: int) -> str:
    """The first of so many."""
    return detail if count == 1 else f"{detail} (and {count - 1} more)"


def postgres_clock(patient: Patient) -> Verdict:
    """Whether Postgres' clock goes as ours does."""
    before = time.time()
    (there,) = patient.row("clock")
    return judge_skew("Postgres", there, before, time.time())


def judge_skew(whose: str, there: float, before: float, after: float) -> Verdict:
    """How far a clock is away that was read at some moment between two of ours."""
    away_s = there - min(max(there, before), after)
    if abs(away_s) > _MOST_SKEW_S:
        side = "ahead of" if away_s > 0 else "behind"
        return warning(f"the clock of {whose} is {abs(away_s):.1f} s {side} this machine's", "timedatectl status")
    return ok("goes as this machine's does")


def time_zone(patient: Patient) -> Verdict:
    """Whether an application's session has a time zone that this machine reads as Postgres does."""
    _ = patient.postgres  # nothing to ask when it is down
    # Our own sessions are in UTC whatever the defaults are, so they cannot tell.
    with psycopg.connect(patient.settings.dsn, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S) as plain:
        name, offset_s = plain.execute(statement("time_zone")).fetchone() or ("UTC", 0)
    return judge_zone(name, offset_s)


def judge_zone(name: str, offset_s: int) -> Verdict:
    """Whether the zone's offset of this moment is the same here."""
    try:
        here = datetime.now(ZoneInfo(name)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return warning(f"this machine does not know Postgres' time zone {name!r}", "pip install tzdata")
    if here is not None and here.total_seconds() != offset_s:
        hours = f"{offset_s / 3600:+g} h in Postgres, {here.total_seconds() / 3600:+g} h here"
        return warning(f"{name} is {hours}: one of them has old rules", "pip install --upgrade tzdata")
    return ok(f"sessions are in {name}")
