"""Checks of how Postgres plans: whether it compiles what waits for the lake, and who plans the same again and again."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import errors, sql

from frostline.catalog import seams
from frostline.model.names import Name
from frostline.model.tables import Table
from frostline.model.tiers import to_text
from frostline.observe.doctor.patient import Patient, State, Unknowable, Verdict, ok, statement, warning
from frostline.relation import names

_BEFORE_A_CHOICE = 6
"""Postgres plans a statement five times before it compares the kept plan with those."""
_TIMES = 30
_LIMIT_S = 2.0
_REPLANNED, _KEPT = "auto", "force_generic_plan"


@dataclass(frozen=True)
class Gain:
    """What one hot row by its key takes in Postgres, planned for each execution and with a kept plan: two medians."""

    table: Name
    replanned_ms: float
    kept_ms: float


def compiling(patient: Patient) -> Verdict:
    """Whether Postgres compiles statements that only wait for the lake."""
    is_on, above = patient.row("compiling")
    if not is_on:
        return ok("no JIT")
    database = patient.quoted(patient.row("role")[1])
    return judge_compiling(above, cold_scans(patient), patient.psql(f"alter database {database} set jit = off"))


def judge_compiling(above: float, scans: Sequence[tuple[Name, float]], hint: str) -> Verdict:
    """Whether what Postgres expects of the dearest scan is over the limit of JIT; that is negative without JIT."""
    name, cost = max(scans, key=lambda scan: scan[1], default=(None, 0.0))
    if above < 0 or cost <= above:
        return ok("no scan of cold rows is dear enough for JIT" if above >= 0 else "no JIT")
    expected = f"Postgres expects a cost of {cost:,.0f} for the cold rows of {name}, over the {above:,.0f} of JIT"
    return warning(f"{expected}: it compiles statements that mostly wait for the lake", hint)


def cold_scans(patient: Patient) -> list[tuple[Name, float]]:
    """What Postgres expects of reading all cold rows, of each table that the connected role may read."""
    scans = [(table.relation, _cold_scan(patient, table)) for table in patient.tables if table.has_lake]
    for schema, name in patient.rows("lake_tables"):
        query = statement("lake_scan").format(table=sql.Identifier(schema, name))
        scans.append((Name(schema, name), _expected_cost(patient, query)))
    return [(name, cost) for name, cost in scans if cost is not None]


def _cold_scan(patient: Patient, table: Table) -> float | None:
    query = statement("cold_scan").format(relation=names.identifier(table.relation), **_line(patient, table))
    return _expected_cost(patient, query)


def _line(patient: Patient, table: Table) -> dict[str, sql.Composable]:
    line = to_text(table.tier_kind, seams.get(patient.postgres, table).frost_line)
    return {"tier_key": sql.Identifier(table.tier_key), "line": sql.Literal(line)}


def _expected_cost(patient: Patient, query: sql.Composed) -> float | None:
    """None where we may not look, or there is nothing to look at: other checks say so."""
    try:
        return float(_plan(patient, query)["Plan"]["Total Cost"])
    except (errors.InsufficientPrivilege, errors.UndefinedTable):
        return None


def _plan(patient: Patient, query: sql.Composed) -> dict[str, Any]:
    ((explained,),) = patient.postgres.execute(query).fetchall()
    return explained[0]


def prepared_statements(patient: Patient) -> Verdict:
    """Which roles plan a prepared statement anew for each execution, and what that costs on this server."""
    tables = [table for table in patient.tables if table.has_lake]
    rows = patient.rows("replanning_roles", relations=[str(table.relation) for table in tables])
    gain = measured(patient, tables) if rows else None
    return judge_prepared_statements([name for (name,) in rows], gain, patient.psql, patient.quoted)


def judge_prepared_statements(
    roles: Sequence[str], gain: Gain | None, psql: Callable[[str], str], quoted: Callable[[str], str]
) -> Verdict:
    """Not wrong, but slower than it could be: nobody but the user knows which of the two a role needs."""
    if not roles or gain is None:
        return ok("no application's role plans them anew each time")
    took = f"a hot row of {gain.table} by key takes {gain.replanned_ms:.3g} ms in Postgres, and {gain.kept_ms:.3g} ms"
    if gain.kept_ms >= gain.replanned_ms:
        return ok(f"{took} where plans are kept: nothing is gained")
    detail = f"{', '.join(roles)}: planned anew each time, {took} if plans are kept"
    keep = "; ".join(f"alter role {quoted(role)} set plan_cache_mode = {_KEPT}" for role in roles)
    return Verdict(State.OK, detail, f"for roles that read and write by key: {psql(keep)}")


def measured(patient: Patient, tables: Sequence[Table]) -> Gain:
    """Look up a hot row by its key some times. Unknowable where there is none, or none that the role may read."""
    reasons = list[str]()
    for table in tables:
        try:
            key = _hot_key(patient, table)
            if key is not None:
                return _looked_up(patient, table, key)
            reasons.append(f"{table.relation} has no hot row")
        except errors.InsufficientPrivilege:
            reasons.append(f"{table.relation} may not be read")
        except errors.UndefinedTable:
            reasons.append(f"a part of {table.relation} is gone")
        except errors.QueryCanceled:
            reasons.append(f"{table.relation} does not answer in time")
    raise Unknowable(f"needs a hot row to measure: {', '.join(reasons)}")


def _hot_key(patient: Patient, table: Table) -> list[str] | None:
    texts = sql.SQL(", ").join(sql.SQL("s.{}::text").format(sql.Identifier(name)) for name in table.key)
    query = statement("hot_key").format(
        key_texts=sql.SQL("array[{}]").format(texts),
        heap=names.identifier(table.heap),
        **_line(patient, table),
    )
    row = patient.postgres.execute(query).fetchone()
    return row[0] if row else None


def _looked_up(patient: Patient, table: Table, key: Sequence[str]) -> Gain:
    """First as it is without the setting, so that Postgres itself has chosen between planning and a kept plan."""
    gaps = sql.SQL(", ").join(sql.SQL("${}").format(sql.Literal(number)) for number, _ in enumerate(key, 1))
    prepare = statement("prepare_look_up").format(
        relation=names.identifier(table.relation), key=_listed(sql.Identifier, table.key), values=gaps
    )
    patient.postgres.execute(prepare)
    try:
        times = [_median_ms(patient, mode, _listed(sql.Literal, key)) for mode in (_REPLANNED, _KEPT)]
    finally:
        patient.postgres.execute(statement("forget_look_ups"))
    return Gain(table.relation, *times)


def _listed(written: Callable[[str], sql.Composable], texts: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(written, texts))


def _median_ms(patient: Patient, mode: str, values: sql.Composed) -> float:
    connection, query = patient.postgres, statement("look_up").format(values=values)
    times, until = list[float](), time.monotonic() + _LIMIT_S
    with connection.transaction():
        connection.execute(statement("measure"), {"mode": mode})
        while len(times) < _BEFORE_A_CHOICE + _TIMES and time.monotonic() < until:
            explained = _plan(patient, query)
            times.append(explained["Planning Time"] + explained["Execution Time"])
    return statistics.median(times[_BEFORE_A_CHOICE:] or times)
