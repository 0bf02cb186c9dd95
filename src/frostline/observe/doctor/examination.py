"""The checks in their order, and how each is done: alone, for so long and no longer, whatever went wrong before."""

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg

from frostline.catalog.connect import first_line
from frostline.errors import FrostlineError
from frostline.logs import without_passwords
from frostline.observe.doctor import database, lakeside, machine, plans
from frostline.observe.doctor.patient import Finding, Patient, State, Unknowable, Verdict, fault

_log = logging.getLogger(__name__)

_LIMIT_S = 15.0
_SPARK_LIMIT_S = 180.0
_LAKE_TABLES_LIMIT_S = 60.0
"""There may be many, and all their manifests are read."""


@dataclass(frozen=True)
class Check:
    """One thing to look at."""

    name: str
    look: Callable[[Patient], Verdict]
    limit_s: float = _LIMIT_S


def _of_store(name: str) -> Callable[[Patient], Verdict]:
    """A check of the warehouse. Its module is slow to load, and what comes before must not wait for it."""

    def look(patient: Patient) -> Verdict:
        from frostline.observe.doctor import store  # noqa: PLC0415

        verdict: Verdict = getattr(store, name)(patient)
        return verdict

    return look


def _of_lake_tables(name: str) -> Callable[[Patient], Verdict]:
    """A check of lake tables, loaded as late."""

    def look(patient: Patient) -> Verdict:
        from frostline.observe.doctor import laketables  # noqa: PLC0415

        verdict: Verdict = getattr(laketables, name)(patient)
        return verdict

    return look


CHECKS = (
    Check("python", machine.python),
    Check("frostline", machine.frostline),
    Check("settings", machine.settings),
    Check("java", machine.java),
    Check("spark", machine.spark),
    Check("duckdb", machine.duckdb),
    Check("postgres", database.postgres),
    Check("catalog", database.catalog),
    Check("privileges", database.role),
    Check("objects of tables", database.objects),
    Check("guards", database.guards),
    Check("table owners", database.owners),
    Check("row security", database.row_security),
    Check("constraints", database.held_constraints),
    Check("foreign commits", database.foreign_commits),
    Check("postgres_fdw", lakeside.wrapper),
    Check("foreign server", lakeside.server),
    Check("lake server, from here", lakeside.from_here),
    Check("lake server, from Postgres", lakeside.from_postgres),
    Check("warehouse", _of_store("warehouse")),
    Check("warehouse space", _of_store("warehouse_space")),
    Check("lake files", _of_store("sampled_files")),
    Check("lake tables", _of_lake_tables("states"), _LAKE_TABLES_LIMIT_S),
    Check("foreign tables", _of_lake_tables("foreign_tables"), _LAKE_TABLES_LIMIT_S),
    Check("strangers", _of_lake_tables("strangers")),
    Check("upkeep of lake tables", _of_lake_tables("upkeep"), _LAKE_TABLES_LIMIT_S),
    Check("clock of Postgres", database.postgres_clock),
    Check("clock of the warehouse", _of_store("warehouse_clock")),
    Check("time zone", database.time_zone),
    Check("time limit", database.time_limit),
    Check("old transactions", database.old_transactions),
    Check("prepared transactions", database.prepared_transactions),
    Check("replication slots", database.slots),
    Check("connections", database.connections),
    Check("compiling", plans.compiling),
    Check("prepared statements", plans.prepared_statements),
)
SPARK_RUNS = Check("spark runs", machine.spark_runs, _SPARK_LIMIT_S)


def examine(patient: Patient, checks: Sequence[Check] = CHECKS) -> Generator[Finding]:
    """Do the checks one after the other; each finding comes as soon as it is there."""
    with closing(patient):
        for check in checks:
            verdict = _within_limit(patient, check)
            detail, hint = _plain(verdict.detail), verdict.hint and _plain(verdict.hint)
            yield Finding(check.name, verdict.state, detail, hint)


def _within_limit(patient: Patient, check: Check) -> Verdict:
    """What the check says. A disk that is away lets nobody go, so the check has a thread that may be left behind."""
    patient.is_asking = False
    said: list[Verdict] = []
    thread = threading.Thread(target=lambda: said.append(_verdict(patient, check)), daemon=True, name=check.name)
    thread.start()
    thread.join(check.limit_s)
    if said:
        return said[0]
    patient.let_go()
    return fault(f"nothing answers within {check.limit_s:g} s", patient.command("doctor --debug"))


def _verdict(patient: Patient, check: Check) -> Verdict:
    try:
        return check.look(patient)
    except Unknowable as missing:
        return Verdict(State.SKIPPED, str(missing))
    except FrostlineError as error:
        return fault(error.message, error.hint or patient.command("doctor --debug"))
    except psycopg.errors.InsufficientPrivilege as error:
        return fault(f"Postgres says: {first_line(error)}", "let FROSTLINE_DSN name the role that ran frostline init")
    except psycopg.Error as error:
        return fault(f"Postgres says: {first_line(error)}", patient.command("doctor --debug"))
    except Exception as error:  # noqa: BLE001  (one broken check must not hide what the others find)
        _log.debug("check failed name=%r", check.name, exc_info=True)
        return fault(f"unexpected {type(error).__name__}: {error}", patient.command("doctor --debug"))


def _plain(text: str) -> str:
    return " ".join(without_passwords(text).split())
