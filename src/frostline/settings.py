"""Settings, read once by the command line: environment > frostline.toml > defaults. Unknown keys are refused."""

import difflib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from frostline import failpoints
from frostline.errors import UsageError
from frostline.failpoints import Failpoint

FILE_NAME = "frostline.toml"
ENV_PREFIX = "FROSTLINE_"
_ENV_OF_OTHERS = ("HOME", "OUTPUT", "DEBUG", "FAILPOINT", "TEST_")
"""What may follow the prefix without being a key: the command line's own switches, failpoints, the tests."""
_SECRET = (
    "dsn",
    "catalog_dsn",
    "lake_password",
    "s3_endpoint",
    "s3_access_key",
    "s3_secret_key",
    "s3_session_token",
    "catalog_uri",
    "catalog_token",
    "catalog_credential",
    "rest_read_access_key",
    "rest_read_secret_key",
    "rest_write_access_key",
    "rest_write_secret_key",
)
_SPARK_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(, *(\*|[1-9]\d*))?\])?|local-cluster\[.+\]|(spark|k8s)://\S+|yarn")
_HTTP = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+/?")
_AWS = {
    "s3_access_key": ("AWS_ACCESS_KEY_ID",),
    "s3_secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "s3_session_token": ("AWS_SESSION_TOKEN",),
    "s3_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "s3_endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""The variables that all S3 programs know, for keys that are set nowhere else."""
_S3_KEYS = ("s3_access_key", "s3_secret_key", "s3_session_token")
"""They belong together: one of another source would not fit."""

Port = Annotated[int, Field(ge=1, le=65535)]
Bytes = Annotated[int, Field(ge=1 << 20)]
DuckMemory = Annotated[str, Field(pattern=r"^[1-9][0-9]*(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")]
SparkMemory = Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgt]$")]
Text = Annotated[str, Field(min_length=1)]
HostNames = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]+(, *[A-Za-z0-9._:-]+)*$")]


def _spark_master(text: str) -> str:
    if not _SPARK_MASTER.fullmatch(text):
        raise ValueError("use local[N], local[*], spark://HOST:PORT, yarn or k8s://URL")
    return text


SparkMaster = Annotated[str, AfterValidator(_spark_master)]


def _catalog_uri(text: str) -> str:
    if not _HTTP.fullmatch(text):  # a password in it would be in messages
        raise ValueError("use http://HOST:PORT/PATH or https://HOST/PATH, without a user name")
    return text.rstrip("/")


CatalogUri = Annotated[str, AfterValidator(_catalog_uri)]
_WEB = ("http://", "https://")


def _node_catalog(text: str) -> str:
    return _catalog_uri(text) if text.startswith(_WEB) else text


NodeCatalog = Annotated[str, Field(min_length=1), AfterValidator(_node_catalog)]


def _s3_endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):  # a password in it would be in messages
        raise ValueError("use http://HOST:PORT or https://HOST, without a path and a user name")
    return text.rstrip("/")


S3Endpoint = Annotated[str, AfterValidator(_s3_endpoint)]
Region = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
Secret = Annotated[SecretStr, Field(min_length=1)]


class _AwsEnvironment(PydanticBaseSettingsSource):
    """What the usual variables of S3 programs say."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """The value of the first of a key's variables that is set."""
        names = _AWS.get(field_name, ())
        return next((os.environ[name] for name in names if os.environ.get(name)), None), field_name, False

    def __call__(self) -> dict[str, Any]:
        """All of them; no keys when one is set elsewhere."""
        has_keys = any(key in self.current_state for key in _S3_KEYS)
        wanted = [key for key in _AWS if not (has_keys and key in _S3_KEYS)]
        values = {key: self.get_field_value(self.settings_cls.model_fields[key], key)[0] for key in wanted}
        return {key: value for key, value in values.items() if value is not None}


class Settings(BaseSettings):
    """Everything that can be set. One instance is made by the command line and handed down."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=ENV_PREFIX, hide_input_in_errors=True)

    dsn: Annotated[Text, Field(repr=False)]
    """The Postgres database, as a libpq connection string; it may hold a password, so it is never logged."""
    warehouse: Text
    """Where the lake's files are: a directory, or a URI such as file:///srv/lake or s3://bucket/lake."""
    catalog_dsn: Annotated[NodeCatalog | None, Field(repr=False)] = None
    """On a node: the database with the catalog of the lake tables, or the address of an Iceberg REST catalog.
    `frostline lake attach` writes it into a home."""
    embedded: bool = False
    """The database is the embedded one of this home; `frostline up` says so in the file it writes."""

    lake_host: Text = "127.0.0.1"
    """The name under which Postgres reaches the lake server."""
    lake_listen: Text = "127.0.0.1"
    """The address the lake server binds."""
    lake_port: Port = 5433
    lake_user: Text = "frostline"
    lake_password: Annotated[SecretStr, Field(min_length=1)] | None = None
    lake_passfile: Text | None = None
    """A password file of libpq on the machine of Postgres. With it the password is not in Postgres, nor in a dump."""
    lake_tls_certificate: Text | None = None
    """A PEM file. With it the lake server takes encrypted connections, which Postgres then prefers."""
    lake_tls_key: Text | None = None
    """The PEM file with the certificate's key."""
    lake_memory: DuckMemory = "1GB"
    """What all queries of the lake server together may use before they spill to disk; look-ups an eighth on top."""
    lake_threads: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    lake_checksums: Literal["first_read", "size", "off"] | None = None
    """How data files are compared before they are read; when not set, first_read in a directory and size in S3."""
    lake_watchdog_s: Annotated[int, Field(ge=0)] = 30
    """After how many seconds without an answer `frostline serve` is killed, so that queries fail; 0 is never."""
    lake_metrics_port: Port | None = None
    """Where the lake server serves its metrics; not at all when it is not set."""
    metrics_listen: Text = "127.0.0.1"
    """The address that ports for metrics bind. Whoever reaches it reads them: they ask for no password."""
    metrics_hosts: HostNames | None = None
    """Names, with commas between, that clients may call the host of the metrics, besides the address itself."""

    rest_port: Port | None = None
    """Where `frostline serve` and `frostline up` serve the Iceberg REST catalog; nowhere when unset."""
    rest_listen: Text = "127.0.0.1"
    """The address that it binds. Another one than loopback needs TLS: lake_tls_certificate and lake_tls_key."""
    rest_read_access_key: Secret | None = None
    """A key of the object store that clients of that catalog are given for reading; they get none when it is unset."""
    rest_read_secret_key: Secret | None = None
    rest_write_access_key: Secret | None = None
    """The same for tokens that may write, for lake tables."""
    rest_write_secret_key: Secret | None = None

    catalog_uri: CatalogUri | None = None
    """An Iceberg REST catalog, for snapshots; without it they go to the catalog in Postgres."""
    catalog_warehouse: Text | None = None
    """The name under which that catalog knows its warehouse."""
    catalog_token: Annotated[SecretStr, Field(min_length=1)] | None = None
    """A bearer token for that catalog."""
    catalog_credential: Annotated[SecretStr, Field(min_length=1)] | None = None
    """ID:SECRET, with which the catalog gives a token that is renewed when it runs out."""
    catalog_token_file: Text | None = None
    """A file with a bearer token for that catalog. It is read again when the catalog calls the token too old."""

    s3_endpoint: S3Endpoint | None = None
    """The object store of an s3:// warehouse; Amazon's own when it is not set."""
    s3_region: Region = "us-east-1"
    s3_access_key: Secret | None = None
    s3_secret_key: Secret | None = None
    s3_session_token: Secret | None = None
    """Belongs to temporary keys."""
    s3_path_style: bool | None = None
    """Whether the bucket is in the path, not in the host's name; when not set, only with an endpoint of one's own."""

    spark_master: SparkMaster = "local[*]"
    spark_memory: SparkMemory = "1g"
    """The driver's Java heap; with a local master the tasks run in it too."""
    export_shard_bytes: Bytes = 256 << 20
    """How much of a partition one export task reads, as Postgres counts it."""
    archive_batch_bytes: Bytes = 16 << 30
    """How much of the heap one archive job moves; a longer backlog is published piece by piece."""
    export_memory: DuckMemory = "512MB"
    """What one export task may use."""

    worker_interval_s: Annotated[float, Field(ge=0.1, le=3600)] = 15
    """How often `frostline run` looks whether anything is due."""
    spark_idle_s: Annotated[float, Field(ge=0)] = 300
    """How long `frostline run` keeps Spark after the last job that needed it."""
    metrics_port: Port | None = None
    """Where `frostline run` serves metrics of the tables and jobs; nowhere when unset."""

    lease_seconds: Annotated[int, Field(ge=2)] = 60
    """How long a worker that does not answer keeps others from its table; a job that runs renews its lease."""

    job_history_days: Annotated[int, Field(ge=1)] = 90
    """How long `frostline jobs` remembers a job. What the lake or a partition still refers to is kept."""

    umask: Annotated[str, Field(pattern=r"^0?0[0-7]{2}$")] = "077"
    """What others may not do with the files that Frostline makes; 027 lets the group of the lake's folders read."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def refuse_node(self) -> None:
        """UsageError when these are a node's settings: its catalog is elsewhere."""
        if self.catalog_dsn is not None:
            raise UsageError(
                "catalog_dsn is set, so this is a node, and its catalog is elsewhere",
                hint="run it where the catalog is; here: frostline lake attach, frostline serve",
            )

    def of_rest_catalog(self) -> "Settings | None":
        """On a node of a REST catalog: the same with that as the catalog. None on any other."""
        if self.catalog_dsn is None or not self.catalog_dsn.startswith(_WEB):
            return None
        return self.model_copy(update={"catalog_uri": self.catalog_dsn})

    @property
    def file_mask(self) -> int:
        """The umask as a number."""
        return int(self.umask, 8)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Say what wins: arguments, then the environment, then the file, then what other programs go by."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls), _AwsEnvironment(settings_cls)


def load(home: Path | None = None, given: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings; `given` (from the command line) wins over everything. Wrong ones raise UsageError."""
    file = home / FILE_NAME if home else None
    if file:
        read_file(file)
    _check_environment()

    class Located(Settings, toml_file=file):
        """The settings of this home."""

    try:
        return Located(**(given or {}))
    except ValidationError as error:
        raise _usage_error(error, file) from None


def read_file(file: Path) -> dict[str, Any]:
    """The keys of a frostline.toml as they stand there. Raises UsageError when it is absent or not TOML."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = f"start it with: frostline up --home {file.parent}"
        raise UsageError(f"no {FILE_NAME} in {str(file.parent)!r}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"cannot read {str(file)!r}: {one_line(error)}", hint=f"correct {file}") from None


def write_file(file: Path, values: Mapping[str, str | int]) -> None:
    """Write a frostline.toml that only its owner can read. It appears complete or not at all."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as draft:
        draft.writelines(lines)  # a temporary file is made with mode 0600
        draft.flush()
        os.fsync(draft.fileno())
    Path(draft.name).replace(file)


def is_text(value: str) -> bool:
    """Whether it is text. Python keeps other bytes of arguments and variables in a way that nobody else takes."""
    return not any("\udc80" <= letter <= "\udcff" for letter in value)


def one_line(error: BaseException) -> str:
    """An error's text without line breaks."""
    return " ".join(str(error).split())


def _check_environment() -> None:
    """Refuse a misspelt variable, which would be ignored otherwise, and bytes that are no text."""
    for name, value in os.environ.items():
        key = name.removeprefix(ENV_PREFIX)
        if name.startswith(ENV_PREFIX) and not is_text(value):
            raise UsageError(f"the value of {name} is not UTF-8", hint=f"set {name} again, in UTF-8")
        if not name.startswith(ENV_PREFIX) or key.startswith(_ENV_OF_OTHERS):
            continue
        if key.lower() not in Settings.model_fields:
            raise UsageError(f"unknown setting {name} in the environment", hint=_meant(key.lower(), f"unset {name}"))
    failpoint = os.environ.get(failpoints.VARIABLE, "").removesuffix(failpoints.PAUSE)
    if failpoint and failpoint not in list(Failpoint):
        raise UsageError(f"there is no failpoint {failpoint!r}", hint=f"unset {failpoints.VARIABLE}")


def _usage_error(error: ValidationError, file: Path | None) -> UsageError:
    problems = error.errors(include_url=False, include_context=False)
    first = min(problems, key=lambda problem: problem["type"] == "missing")  # a misspelt key is missing too
    key = str(first["loc"][0])
    if first["type"] == "missing":
        hint = f"set {key} in {file}" if file else f"say --home DIR, or set {_variable(key)}"
        return UsageError(f"{key} is not set", hint=hint)
    if first["type"] == "extra_forbidden":
        return UsageError(f"unknown setting {key!r} in {str(file)!r}", hint=_meant(key, f"take it out of {file}"))
    shown = "" if key in _SECRET else f" {first['input']!r}"
    problem = first["msg"].removeprefix("Value error, ")
    return UsageError(f"wrong {key}{shown}: {problem[:1].lower()}{problem[1:]}", hint=_correct(key, file))


def _correct(key: str, file: Path | None) -> str:
    if _variable(key) in os.environ:
        return f"correct {_variable(key)} in the environment"
    others = [name for name in _AWS.get(key, ()) if os.environ.get(name)]
    if others and not (file and key in read_file(file)):
        return f"correct {others[0]} in the environment"
    return f"correct {key} in {file}" if file else f"correct --{key.replace('_', '-')}"


def _variable(key: str) -> str:
    return ENV_PREFIX + key.upper()


def _meant(key: str, otherwise: str) -> str:
    close = difflib.get_close_matches(key, Settings.model_fields, n=1)
    return f"did you mean {close[0]}?" if close else otherwise
