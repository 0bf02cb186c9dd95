"""Checks of the way from Postgres to the lake server."""

import shlex
from importlib import metadata

import psycopg
from psycopg import errors

from frostline.catalog.connect import first_line
from frostline.observe.doctor.patient import Patient, Unknowable, Verdict, fault, ok, statement, warning
from frostline.relation import foreign_server
from frostline.settings import Settings

_CONNECT_TIMEOUT_S = 4
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_NOT_THERE = "no lake server answers"
_REFUSED = "the lake server refuses the password: it was started with another"


def wrapper(patient: Patient) -> Verdict:
    """Whether Postgres has postgres_fdw, and lets us use it."""
    is_installed, is_available, may_use = patient.row("wrapper")
    role = patient.quoted(patient.row("role")[0])
    if not is_available and not is_installed:
        return fault("postgres_fdw is not among Postgres' contrib modules", "apt install postgresql-contrib")
    if not is_installed:
        return fault("the extension is not in this database", patient.psql("create extension postgres_fdw"))
    if not may_use:
        grant = f"grant usage on foreign data wrapper postgres_fdw to {role}"
        return fault(f"{role} may not use it", f"as an administrator: psql -c {shlex.quote(grant)}")
    return ok("installed")


def server(patient: Patient) -> Verdict:
    """Whether the foreign server and our user mapping say what the settings say."""
    present, mapping = foreign_server.options(patient.postgres)
    wrong = differences(patient.settings, present, mapping)
    if wrong:
        return fault("; ".join(wrong), patient.command("init"))
    return ok(f"{patient.settings.lake_host}:{patient.settings.lake_port}, as the settings say")


def differences(settings: Settings, server: dict[str, str] | None, mapping: dict[str, str] | None) -> list[str]:
    """What the foreign server and the mapping have other than the settings. Says no password."""
    if server is None:
        return [f"there is no foreign server {foreign_server.NAME}"]
    if mapping is None:
        return ["the connected role has no user mapping for it"]
    wanted = {"host": settings.lake_host, "port": str(settings.lake_port), "user": settings.lake_user}
    present = {**server, **mapping}
    wrong = [f"{key} is {present.get(key)!r}, not {want!r}" for key, want in wanted.items() if present.get(key) != want]
    stored = mapping.get("password")
    if settings.lake_password and stored and stored != settings.lake_password.get_secret_value():
        wrong.append("its password is not the one of the settings")
    if server.get("passfile") != settings.lake_passfile:
        wrong.append(f"passfile is {server.get('passfile')!r}, not {settings.lake_passfile!r}")
    return wrong


def from_here(patient: Patient) -> Verdict:
    """Whether the lake server answers us, with the password that Postgres would use."""
    password = _password(patient)
    settings, tried = patient.settings, list[str]()
    for host in dict.fromkeys((settings.lake_host, _ANYWHERE.get(settings.lake_listen, settings.lake_listen))):
        try:
            return _judge_version(patient, _version(settings, host, password))
        except psycopg.OperationalError as error:
            if "password" in str(error):
                return fault(_REFUSED, _start(patient))
            tried.append(f"{host}:{settings.lake_port}: {first_line(error).rpartition('failed: ')[2]}")
        except psycopg.Error as error:
            return _judge_version(patient, first_line(error))
    return fault(f"{_NOT_THERE} at {'; '.join(tried)}", _start(patient))


def _version(settings: Settings, host: str, password: str) -> str:
    with psycopg.connect(
        host=host,
        port=settings.lake_port,
        user=settings.lake_user,
        password=password,
        dbname=foreign_server.DATABASE,
        connect_timeout=_CONNECT_TIMEOUT_S,
        autocommit=True,
    ) as connection:
        row = connection.execute("select version from frostline.doctor").fetchone()
    return str(row[0]) if row else ""


def _password(patient: Patient) -> str:
    settings = patient.settings
    if settings.lake_password:
        return settings.lake_password.get_secret_value()
    stored = foreign_server.stored_password(patient.postgres)
    if stored is None:
        raise Unknowable("the password of the lake server is neither in the settings nor to be seen in Postgres")
    return stored


def from_postgres(patient: Patient) -> Verdict:
    """Whether Postgres reaches the lake server as a query of cold rows would."""
    connection = patient.postgres
    if foreign_server.options(connection)[0] is None:
        raise Unknowable("needs the foreign server")
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement("ask_lake_server"))
            row = connection.execute(statement("lake_version")).fetchone()
    except errors.SqlclientUnableToEstablishSqlconnection as error:
        return _unreachable(patient, error)
    except errors.ReadOnlySqlTransaction:
        raise Unknowable("a standby is asked, where no foreign table can be made") from None
    except errors.QueryCanceled:
        return fault("the lake server takes the connection and does not answer", _start(patient))
    return _judge_version(patient, row[0] if row else "")


def _unreachable(patient: Patient, error: psycopg.Error) -> Verdict:
    reason = error.diag.message_detail or error.diag.message_primary or ""
    if "password" in reason:
        return fault(_REFUSED, patient.command("up" if patient.settings.embedded else "init"))
    return fault(f"Postgres cannot connect: {' '.join(reason.split())}", _start(patient))


def _judge_version(patient: Patient, answer: str) -> Verdict:
    ours = f"Frostline {metadata.version('frostline')}"
    if answer != ours:
        return warning(f"answers as {answer!r}, while this is {ours}", _start(patient))
    return ok(f"answers as {answer}")


def _start(patient: Patient) -> str:
    return patient.command("up" if patient.settings.embedded else "serve")
