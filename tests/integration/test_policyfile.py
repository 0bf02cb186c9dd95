"""The policies of all tables as YAML: exported, changed by hand, and imported again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fixtures.command import Command
from tests.fixtures.lake import Lake
from tests.fixtures.quick import first
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

STATE = "select * from frostline.managed_table order by 1"
Imported = Callable[..., Any]


@pytest.fixture
def managed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two managed tables and one that is not."""
    monkeypatch.setenv("FROSTLINE_DSN", lake.dsn)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", lake.settings.warehouse)
    for name in ("events", "logs", "plain"):
        make_events(lake.catalog, f"public.{name}", months=2)
    lake.add("events", retention_period="5 years", target_file_size=64 << 20)
    lake.add("logs", premake=9, partition_interval="1 month")
    return lake


def exported(command: Command) -> dict[str, Any]:
    said = command("table", "export")
    assert said.exit_code == 0, said.stderr
    return yaml.safe_load(said.stdout)


def written(folder: Path, document: Any) -> Path:
    file = folder / "policies.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def test_what_was_exported_changes_nothing_when_it_is_imported(managed: Lake, command: Command, tmp_path: Path) -> None:
    before = rows(managed.catalog, STATE)
    said = command("table", "import", written(tmp_path, exported(command)), "--output", "json")
    assert said.exit_code == 0
    assert yaml.safe_load(said.stdout) == [
        {"table": "public.events", "result": "unchanged"},
        {"table": "public.logs", "result": "unchanged"},
    ]
    assert rows(managed.catalog, STATE) == before


def test_an_edited_file_changes_and_adds_and_leaves_the_rest(managed: Lake, command: Command, tmp_path: Path) -> None:
    document = exported(command)
    del document["tables"]["public.logs"]
    document["tables"]["public.events"]["retention_period"] = "10 years"
    document["tables"]["plain"] = {"hot_period": "1 year", "premake": 0, "every": "quarter"}
    file = written(tmp_path, document)
    before = rows(managed.catalog, STATE)
    assert command("table", "import", file, "--dry-run").exit_code == 0
    assert rows(managed.catalog, STATE) == before
    said = command("table", "import", file, "--output", "json")
    assert {record["table"]: record["result"] for record in yaml.safe_load(said.stdout)} == {
        "public.events": "changed",
        "public.plain": "added",
    }
    now = exported(command)["tables"]
    assert now["public.events"]["retention_period"] == "10 years"
    assert [now["public.plain"][key] for key in ("hot_period", "premake", "every")] == ["1 year", 0, "3 mons"]
    assert now["public.logs"]["premake"] == 9


@pytest.mark.parametrize(
    ("change", "complaint"),
    first(
        2,
        [
            (
                {"retention_period": "1 day"},
                "public.logs: --retention '1 day' is not longer than the hot period '1 mon'",
            ),
            ({"hot_period": "soon"}, "public.logs: --hot 'soon' is not an interval"),
            ({"lake_partition": "day"}, "public.logs: its lake partition is month, not day"),
            ({"mode": "partition"}, "public.logs: it is in mode tiered, not partition"),
            ({"colour": "red"}, "public.logs: unknown policy 'colour'"),
        ],
    ),
)
def test_one_wrong_table_and_nothing_is_imported(
    managed: Lake, command: Command, tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    document = exported(command)
    document["tables"]["public.events"]["premake"] = 1
    document["tables"]["public.logs"] |= change
    before = rows(managed.catalog, STATE)
    said = command("table", "import", written(tmp_path, document))
    assert said.exit_code == 2
    assert complaint in said.stderr
    assert rows(managed.catalog, STATE) == before


@pytest.mark.parametrize("text", first(2, ["", "{", "version: 1\ntables:\n  a: [", "\x00", "tables: {}"]))
def test_a_file_that_is_no_document_is_refused_by_name(
    managed: Lake, command: Command, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text, encoding="utf-8")
    said = command("table", "import", file)
    assert said.exit_code == 2
    assert "broken.yaml" in said.stderr


def test_a_hostile_name_goes_there_and_back(managed: Lake, command: Command, tmp_path: Path) -> None:
    run(managed.catalog, 'create schema "a: b"')
    key = "(id int, ts timestamptz, primary key (id, ts)) partition by range (ts)"
    run(managed.catalog, f'create table "a: b"."Ünion # {{x}}" {key}')
    managed.add('"a: b"."Ünion # {x}"')
    document = exported(command)
    assert '"a: b"."Ünion # {x}"' in document["tables"]
    assert command("table", "import", written(tmp_path, document)).exit_code == 0


def test_a_table_in_partition_mode_is_added_from_what_was_exported(
    managed: Lake, command: Command, tmp_path: Path
) -> None:
    """It has no lake partition, and the document says nothing of one."""
    words = ("--mode", "partition", "--retention", "5 years", "--expire-by", "detach")
    assert command("table", "add", "plain", *words).exit_code == 0
    document = exported(command)
    assert "lake_partition" not in document["tables"]["public.plain"]
    assert command("table", "remove", "plain").exit_code == 0
    for result in ("added", "unchanged"):
        said = command("table", "import", written(tmp_path, document), "--output", "json")
        assert said.exit_code == 0, said.stderr
        assert {"table": "public.plain", "result": result} in yaml.safe_load(said.stdout)
        assert exported(command) == document
    document["tables"]["public.plain"]["lake_partition"] = "day"
    said = command("table", "import", written(tmp_path, document))
    assert said.exit_code == 2
    assert "public.plain: in partition mode it has no lake" in said.stderr
