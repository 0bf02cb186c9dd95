"""Settings: what wins, what is refused, and how the refusal reads."""

import os
from pathlib import Path

import pytest

from frostline.errors import UsageError
from frostline.lake.objectstore import Access
from frostline.settings import load, read_file, write_file


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("FROSTLINE_", "AWS_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_file(tmp_path / "frostline.toml", {"dsn": "host=file", "warehouse": "/lake", "lake_port": 7001})
    return tmp_path


def test_the_file_wins_over_the_defaults(home: Path) -> None:
    settings = load(home)
    assert (settings.dsn, settings.lake_port, settings.lake_user) == ("host=file", 7001, "frostline")


def test_the_environment_wins_over_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", "7002")
    assert load(home).lake_port == 7002


def test_the_command_line_wins_over_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_LAKE_PORT", "7002")
    assert load(home, {"lake_port": 7003}).lake_port == 7003


def test_the_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", "host=env")
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "file:///lake")
    assert load().dsn == "host=env"


def test_settings_cannot_be_changed(home: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(home).lake_port = 1


def test_neither_form_of_the_settings_shows_a_password(home: Path) -> None:
    names = (
        "lake_password",
        "s3_access_key",
        "s3_secret_key",
        "s3_session_token",
        "catalog_token",
        "catalog_credential",
    )
    secrets = dict.fromkeys(names, "hunter2")
    settings = load(home, {"dsn": "postgresql://me:hunter2@h/d", **secrets})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)


def test_a_written_file_is_for_its_owner_only_and_reads_back(home: Path) -> None:
    values = {"warehouse": 'quote " backslash \\ ümlaut', "lake_port": 1, "embedded": True}
    write_file(home / "frostline.toml", values)
    assert read_file(home / "frostline.toml") == values
    assert (home / "frostline.toml").stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.iterdir()] == ["frostline.toml"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("lake_port", "0", "lake_port '0'"),
        ("lake_port", "65536", "lake_port '65536'"),
        ("lake_port", "http", "lake_port 'http'"),
        ("lake_threads", "0", "lake_threads '0'"),
        ("lake_watchdog_s", "-1", "lake_watchdog_s '-1'"),
        ("lake_memory", "lots", "lake_memory 'lots'"),
        ("lake_memory", "0GB", "lake_memory '0GB'"),
        ("export_memory", "1", "export_memory '1'"),
        ("spark_memory", "1GB", "spark_memory '1GB'"),
        ("export_shard_bytes", "10", "export_shard_bytes '10'"),
        ("log_level", "loud", "log_level 'loud'"),
        ("warehouse", "", "warehouse ''"),
        ("lake_host", "", "lake_host ''"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(
    home: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"FROSTLINE_{key.upper()}", value)
    with pytest.raises(UsageError) as refusal:
        load(home)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.hint == f"correct FROSTLINE_{key.upper()} in the environment"


def test_what_s3_programs_go_by_counts_where_nothing_is_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "default-region")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://any:1")
    settings = load(home)
    access = Access.of(settings)
    assert access == Access(
        "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "default-region", "http://any:1", path_style=True
    )
    monkeypatch.setenv("AWS_REGION", "region")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:1/")
    assert (load(home).s3_region, load(home).s3_endpoint) == ("region", "http://s3:1")
    monkeypatch.setenv("FROSTLINE_S3_REGION", "ours")
    assert load(home).s3_region == "ours"


def test_a_token_of_other_keys_is_not_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of other keys")
    assert load(home, {"s3_access_key": "ours", "s3_secret_key": "ours"}).s3_session_token is None
    assert load(home, {"s3_access_key": "ours"}).s3_secret_key is None
    assert Access.of(load(home, {"s3_access_key": "ours"})) is None


def test_a_wrong_variable_of_s3_programs_is_blamed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:hunter2@store")
    with pytest.raises(UsageError, match="wrong s3_endpoint: use http") as refusal:
        load(home)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.hint == "correct AWS_ENDPOINT_URL in the environment"


@pytest.mark.parametrize(
    ("given", "endpoint", "by_path"),
    [
        ({}, None, False),
        ({"s3_path_style": True}, "https://s3.us-east-1.amazonaws.com", True),
        ({"s3_endpoint": "http://store:1"}, "http://store:1", True),
        ({"s3_endpoint": "http://store:1", "s3_path_style": False}, "http://store:1", False),
    ],
)
def test_an_endpoint_of_ones_own_has_the_bucket_in_the_path(
    home: Path, given: dict[str, str | bool], endpoint: str | None, *, by_path: bool
) -> None:
    access = Access.of(load(home, {"s3_access_key": "key", "s3_secret_key": "secret", **given}))
    assert access
    assert (access.endpoint, access.path_style) == (endpoint, by_path)
    assert "secret" not in repr(access)


def test_a_wrong_value_in_the_file_is_blamed_on_the_file(home: Path) -> None:
    write_file(home / "frostline.toml", {"dsn": "x", "warehouse": "/lake", "lake_port": 70000})
    with pytest.raises(UsageError) as refusal:
        load(home)
    assert refusal.value.hint == f"correct lake_port in {home / 'frostline.toml'}"


def test_an_unknown_key_in_the_file_is_refused_with_the_one_that_was_meant(home: Path) -> None:
    write_file(home / "frostline.toml", {"dsn": "x", "warehose": "/lake"})
    with pytest.raises(UsageError, match="unknown setting 'warehose'") as refusal:
        load(home)
    assert refusal.value.hint == "did you mean warehouse?"


def test_an_unknown_variable_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_LAKE_PROT", "1")
    with pytest.raises(UsageError, match="FROSTLINE_LAKE_PROT") as refusal:
        load(home)
    assert refusal.value.hint == "did you mean lake_port?"


def test_a_missing_key_says_where_it_can_be_set() -> None:
    with pytest.raises(UsageError, match="dsn is not set") as refusal:
        load()
    assert refusal.value.hint == "say --home DIR, or set FROSTLINE_DSN"


@pytest.mark.parametrize("content", [b"dsn = ", b"\xff\xfe", b"[table"])
def test_a_file_that_is_not_toml_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "frostline.toml").write_bytes(content)
    with pytest.raises(UsageError, match="cannot read") as refusal:
        load(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_home_without_a_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no frostline\.toml") as refusal:
        load(tmp_path / "none")
    assert refusal.value.hint == f"start it with: frostline up --home {tmp_path / 'none'}"


def test_a_failpoint_that_does_not_exist_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_FAILPOINT", "archive_captured:pause")
    load(home)
    monkeypatch.setenv("FROSTLINE_FAILPOINT", "somewhere")
    with pytest.raises(UsageError, match="there is no failpoint 'somewhere'"):
        load(home)


def test_the_catalog_of_a_node_is_a_database_or_an_address_without_a_password(home: Path) -> None:
    said = load(home, {"dsn": "host=h", "catalog_dsn": "https://catalog.internal/iceberg/"})
    rest = said.of_rest_catalog()
    assert rest is not None
    assert rest.catalog_uri == "https://catalog.internal/iceberg"
    assert load(home, {"dsn": "host=h", "catalog_dsn": "host=other"}).of_rest_catalog() is None
    assert load(home, {"dsn": "host=h", "catalog_uri": "https://catalog.internal"}).of_rest_catalog() is None
    with pytest.raises(UsageError, match="wrong catalog_dsn: use http") as refusal:
        load(home, {"dsn": "host=h", "catalog_dsn": "https://me:hunter2@catalog.internal"})
    assert "hunter2" not in str(refusal.value)
