"""Every argument, option, setting and SQL function gets a wrong value: one line, a hint, exit code 2, nothing changed.

The lists are the program's own: whoever adds a parameter, a setting or a function must say here what is wrong for it.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import psycopg
import pytest
from tests.fixtures.command import Command, Said
from tests.fixtures.statements import rows, run
from tests.fixtures.tables import make_events

from frostline import sqlfiles
from frostline.catalog.connect import Connection, connect
from frostline.cli.invocation import shared_options
from frostline.cli.main import COMMANDS, program
from frostline.model.names import Name
from frostline.model.policy import Policy
from frostline.model.tables import Table
from frostline.model.tiers import from_text
from frostline.relation import bound, foreign_server, guard, registration
from frostline.settings import Settings, write_file

SHARED = [str(option.name) for option in shared_options()]
NAMES = ["a.b.c", '"open', "nowhere"]

WRONG: dict[tuple[str, str], list[str]] = {
    ("", "home"): ["status --home file", "--home nowhere status"],
    ("", "output"): ["status --output xml", "--output xml status"],
    ("up", "pg_port"): ["up --home new --pg-port 0", "up --home new --pg-port 65536", "up --home new --pg-port x"],
    ("up", "lake_port"): ["up --home new --lake-port -1", "up --home new --lake-port 1.5"],
    ("up", "rest_port"): ["up --home new --rest-port 0", "up --home new --pg-port 7001 --rest-port 7001"],
    ("up", "warehouse"): ["up --home new --warehouse s3://", "up --home new --warehouse what*"],
    ("serve", "rest_port"): ["serve --rest-port 0", "serve --rest-port x"],
    ("init", "dsn"): ["init --dsn nonsense --warehouse new", "init --dsn color=red --warehouse new"],
    ("init", "warehouse"): ["init --warehouse what*", "init --warehouse s3:///prefix", "init --warehouse s3://b/../c"],
    ("table add", "name"): [f"table add {name} --hot '1 month'" for name in NAMES],
    ("table add", "hot_period"): [
        "table add plain --hot much",
        "table add plain --hot '-1 day'",
        "table add plain --hot 0",
    ],
    ("table add", "grace_period"): ["table add plain --hot '1 month' --grace much"],
    ("table add", "lake_partition"): [
        "table add plain --hot '1 month' --lake-partition week",
        "table add plain --hot '1 month' --lake-partition truncate[5]",
    ],
    ("table add", "fold_rows"): ["table add plain --hot '1 month' --fold-rows 0"],
    ("table add", "fold_age"): ["table add plain --hot '1 month' --fold-age 0"],
    ("table add", "retention_period"): ["table add plain --hot '1 month' --retention '1 day'"],
    ("table add", "relation"): [
        "table add plain --hot '1 month' --relation a.b",
        "table add plain --hot '1 month' --relation events",
    ],
    ("table add", "premake"): ["table add plain --hot '1 month' --premake 1001"],
    ("table add", "partition_interval"): ["table add plain --hot '1 month' --every often"],
    ("table add", "expire_by"): ["table add plain --hot '1 month' --expire-by fire"],
    ("table add", "snapshot_retention"): ["table add plain --hot '1 month' --snapshot-retention x"],
    ("table add", "target_file_size"): ["table add plain --hot '1 month' --target-file-size 1kB"],
    ("table add", "mode"): ["table add plain --mode lake"],
    ("table add", "partition_by"): [
        "table add plain --hot '1 month' --partition-by nosuch --every month",
        "table add plain --hot '1 month' --partition-by ts",
    ],
    ("table convert", "name"): [f"table convert {name} --partition-by ts --every month" for name in NAMES],
    ("table convert", "partition_by"): ["table convert plain --partition-by nosuch --every month"],
    ("table convert", "partition_interval"): [
        "table convert plain --partition-by ts --every often",
        "table convert plain --partition-by ts",
    ],
    ("table import", "file"): ["table import nowhere.yaml", "table import file"],
    ("table show", "name"): [f"table show {name}" for name in NAMES],
    ("table adopt", "name"): [f"table adopt {name}" for name in NAMES],
    ("table sync", "name"): [f"table sync {name}" for name in NAMES],
    ("table alter", "name"): [f"table alter {name} 'drop column status'" for name in NAMES],
    ("table alter", "change"): [
        "table alter events 'drop column nosuch'",
        "table alter events ''",
        "table alter events ';'",
    ],
    ("table row-security", "name"): [f"table row-security {name} on" for name in NAMES],
    ("table row-security", "state"): ["table row-security events maybe"],
    ("table set", "name"): [f"table set {name} --hot '1 day'" for name in NAMES],
    ("table set", "hot_period"): ["table set events --hot much", "table set events --hot '-1 day'"],
    ("table set", "grace_period"): ["table set events --grace much", "table set events --grace '-1 day'"],
    ("table set", "fold_rows"): ["table set events --fold-rows -1", "table set events --fold-rows many"],
    ("table set", "fold_age"): ["table set events --fold-age '0 s'", "table set events --hot '9 days' --fold-age old"],
    ("table set", "retention_period"): ["table set events --retention '1 day'", "table set events --retention x"],
    ("table add", "foreign_keys"): ["table add new --foreign-keys perhaps"],
    ("table set", "foreign_keys"): ["table set events --foreign-keys perhaps"],
    ("table set", "relation"): ["table set events --relation a.b", "table set events --relation plain"],
    ("table set", "premake"): ["table set events --premake -1"],
    ("table set", "partition_interval"): ["table set events --every 0"],
    ("table set", "expire_by"): ["table set events --expire-by fire"],
    ("table set", "snapshot_retention"): [
        "table set events --snapshot-retention '-1 day'",
        "table set events --snapshot-retention '300000 years'",
    ],
    ("table set", "target_file_size"): ["table set events --target-file-size 10XB"],
    ("table remove", "name"): [f"table remove {name}" for name in NAMES],
    ("grant", "role"): ["grant nobody", 'grant "a.b', "grant public", "grant a.b"],
    ("grant", "names"): [f"grant postgres events {name}" for name in NAMES],
    ("lake create", "name"): ["lake create a.b.c --column id/**/bigint", "lake create events --column id/**/bigint"],
    ("lake create", "columns"): ["lake create new --column id", "lake create new --column id/**/nosuch"],
    ("lake create", "query"): ["lake create new --as select", "lake create new --as select/**/1 --column id/**/bigint"],
    ("lake create", "source"): ["lake create new --from nosuch", "lake create new --from events --like events"],
    ("lake create", "master"): ["lake create new --as select/**/1/**/as/**/a --master nonsense"],
    ("lake create", "partition"): ["lake create new --column id/**/bigint --partition nosuch(id)"],
    ("lake create", "sort"): ["lake create new --column id/**/bigint --sort nosuch"],
    ("lake attach", "catalog"): ["lake attach --catalog nonsense=1", "lake attach"],
    ("lake attach", "token_file"): ["lake attach --catalog http://127.0.0.1:1 --warehouse file --token-file nowhere"],
    ("lake attach", "warehouse"): ["lake attach --catalog x --warehouse file"],
    ("lake attach", "dsn"): ["lake attach --catalog x --dsn nonsense=1"],
    ("lake attach", "tables"): ["lake attach --catalog x --tables a.b.c"],
    ("lake attach", "schema"): ["lake attach --catalog x --schema a.b"],
    ("lake attach", "lake_port"): ["lake attach --catalog x --lake-port 0", "lake attach --catalog x --lake-port http"],
    ("lake detach", "dsn"): ["lake detach --dsn nonsense=1", "lake detach"],
    ("lake create", "like"): ["lake create new --like nosuch", "lake create new --like a.b.c"],
    ("lake create", "key"): [
        "lake create new --column id/**/bigint --key nosuch",
        "lake create new --column id/**/bigint --key id,",
    ],
    ("lake register", "name"): ["lake register app.nosuch", "lake register a.b.c"],
    ("lake register", "metadata"): ["lake register app.new --metadata nowhere", "lake register app.new --metadata ''"],
    ("lake register", "foreign_table"): ["lake register app.new --foreign-table a.b.c"],
    ("lake show", "name"): ["lake show nosuch", "lake show a.b.c"],
    ("lake set", "name"): ["lake set nosuch --min-snapshots 2", "lake set a.b.c --min-snapshots 2"],
    ("lake set", "snapshot_retention"): ["lake set nosuch --snapshot-retention soon"],
    ("lake set", "min_snapshots"): ["lake set nosuch --min-snapshots 0", "lake set nosuch --min-snapshots many"],
    ("lake set", "target_file_size"): [
        "lake set nosuch --target-file-size 1kB",
        "lake set nosuch --target-file-size x",
    ],
    ("lake set", "former_metadata"): ["lake set nosuch --former-metadata 0", "lake set nosuch --former-metadata all"],
    ("lake set", "unset"): ["lake set nosuch --unset everything"],
    ("lake sync", "name"): ["lake sync nosuch", "lake sync a.b.c"],
    ("lake drop", "name"): ["lake drop nosuch", "lake drop a.b.c"],
    ("token create", "role"): ["token create nobody", "token create public", "token create a.b"],
    ("token create", "days"): ["token create postgres --days 0", "token create postgres --days x"],
    ("token drop", "token_id"): ["token drop 7", "token drop x"],
    ("plan", "names"): [f"plan {name}" for name in NAMES],
    ("archive", "names"): [f"archive {name}" for name in NAMES],
    ("archive", "master"): ["archive --master nonsense"],
    **{
        (verb, "names"): [f"{verb} {name}" for name in NAMES]
        for verb in ("premake", "retain", "compact", "expire", "sweep")
    },
    ("premake", "move_rows"): ["premake --move-rows -1", "premake --move-rows many"],
    ("retain", "master"): ["retain --master nonsense"],
    ("compact", "master"): ["compact --master nonsense"],
    ("run", "master"): ["run --master nonsense"],
    ("sweep", "older_than"): ["sweep --older-than long", "sweep --older-than '-1 day'"],
    ("snapshot create", "name"): ["snapshot create Nightly --tables public.*", "snapshot create a-b --tables public.*"],
    ("snapshot create", "wanted"): ["snapshot create n --tables nosuch.*", "snapshot create n --tables a.b.c.d"],
    ("snapshot create", "exclude"): ["snapshot create n --tables public.* --exclude nosuch.*"],
    ("snapshot create", "master"): ["snapshot create n --tables public.* --master nonsense"],
    ("snapshot list", "name"): ["snapshot list Nightly"],
    ("snapshot show", "name"): ["snapshot show nosuch", "snapshot show Nightly"],
    ("snapshot show", "version"): ["snapshot show nosuch --version 0", "snapshot show nosuch --version x"],
    ("snapshot drop", "name"): ["snapshot drop nosuch", "snapshot drop Nightly"],
    ("snapshot drop", "version"): ["snapshot drop nosuch --version 0"],
    ("snapshot drop", "keep"): ["snapshot drop nosuch --keep -1", "snapshot drop nosuch --keep all"],
    ("pin release", "pin_id"): ["pin release x", "pin release 7"],
    ("jobs", "name"): [f"jobs {name}" for name in NAMES],
    ("jobs", "limit"): ["jobs --limit 0", "jobs --limit all"],
    ("fold", "names"): [f"fold {name}" for name in NAMES],
    ("fold", "master"): ["fold --master local[x]"],
    ("clean", "names"): [f"clean {name}" for name in NAMES],
    ("undo", "name"): [f"undo {name}" for name in NAMES],
    ("undo", "to"): ["undo events --to nonsense", "undo events --to 2024-01-17"],
    ("undo", "master"): ["undo events --master spark:x"],
    ("thaw", "name"): [f"thaw {name} --from 2024-01-01" for name in NAMES],
    ("thaw", "first"): ["thaw events --from nonsense"],
    ("thaw", "last"): ["thaw events --from 2024-01-01 --to nonsense"],
    ("thaw", "master"): ["thaw events --from 2024-01-01 --master nonsense"],
    ("truncate", "name"): [f"truncate {name} --yes" for name in NAMES],
    ("table adopt", "from_lake"): [
        "table adopt new --hot 1month --from-lake /nowhere",
        "table adopt new --from-lake ''",
    ],
    **{
        ("table adopt", option.replace("-", "_") + suffix): [f"table adopt events --{option} {wrong}"]
        for option, suffix, wrong in (
            ("hot", "_period", "much"),
            ("grace", "_period", "much"),
            ("retention", "_period", "x"),
            ("premake", "", "-1"),
            ("expire-by", "", "fire"),
            ("fold-rows", "", "-1"),
            ("fold-age", "", "old"),
            ("snapshot-retention", "", "x"),
            ("target-file-size", "", "10XB"),
        )
    },
    ("table adopt", "partition_interval"): ["table adopt events --every 0"],
    ("table adopt", "relation"): ["table adopt new --relation ''", "table adopt new --relation other"],
    ("repair", "name"): [f"repair {name}" for name in NAMES],
    ("verify", "names"): [f"verify {name}" for name in NAMES],
    ("demo", "pg_port"): ["demo --home new --pg-port 0"],
    ("demo", "lake_port"): ["demo --home new --lake-port 0"],
    ("demo", "rows"): ["demo --home new --rows 999", "demo --home new --rows few"],
}
NOT_OURS = {("psql", "arguments")}
"""What psql is told is for psql to refuse."""

WRONG_SETTINGS: dict[str, tuple[str, str | int]] = {
    "embedded": ("perhaps", "perhaps"),
    "lake_port": ("70000", 0),
    "lake_memory": ("much", "1 GB"),
    "lake_checksums": ("always", "FIRST_READ"),
    "lake_threads": ("0", -1),
    "lake_watchdog_s": ("-1", "soon"),
    "s3_endpoint": ("store:8333", "http://me:secret@store"),
    "s3_region": ("far away", 5),
    "s3_path_style": ("perhaps", "perhaps"),
    "catalog_uri": ("ftp://nowhere", "http://me:secret@nowhere"),
    "spark_master": ("nonsense", ""),
    "spark_memory": ("1GB", 5),
    "export_shard_bytes": ("1", "256MB"),
    "archive_batch_bytes": ("0", "much"),
    "export_memory": ("0MB", 512),
    "lease_seconds": ("1", "long"),
    "job_history_days": ("0", "for ever"),
    "worker_interval_s": ("0", "often"),
    "spark_idle_s": ("-1", "never"),
    "metrics_port": ("0", "http"),
    "rest_port": ("0", "http"),
    "metrics_hosts": ("a b", 5),
    "lake_metrics_port": ("65536", -1),
    "log_level": ("loud", "INFO"),
    "umask": ("777", 77),
    **dict.fromkeys(
        ("dsn", "catalog_dsn", "warehouse", "metrics_listen", "lake_host", "lake_listen", "lake_user", "lake_password", "lake_passfile",
         "lake_tls_certificate", "lake_tls_key", "catalog_warehouse", "catalog_token", "catalog_credential", "catalog_token_file",
         "s3_access_key", "s3_secret_key", "s3_session_token", "rest_listen", "rest_read_access_key",
         "rest_read_secret_key", "rest_write_access_key", "rest_write_secret_key"),
        ("", 5),
    ),
}  # fmt: skip
"""By setting: what is wrong in the environment, and what is wrong in the file."""

HOLDING = (
    *("foreign_key_obstacle", "foreign_key_parents", "may_have_cold_children", "changed_keys_question"),
    *("foreign_key_tasks", "tier_text", "give_function", "take_relation", "comment_heap"),
)
WRONG_CALLS = {
    "frostline.alter_table(regclass,text)": ("select frostline.alter_table('pg_class', 'drop nosuch')", "42501"),
    "frostline.require(boolean,text)": ("select frostline.require(null, 'x')", "42501"),
    "frostline.missing_v1(text,text)": ("select frostline.missing_v1('5')", "42883"),
    "frostline.text_v1(anyelement)": ("select frostline.text_v1('no type')", "42804"),
    "frostline.axis_v1(text,text)": ("select frostline.axis_v1('yesterday afternoon', 'date')", "22007"),
    "frostline.key_v1(text[])": ("select frostline.key_v1(1)", "42883"),
    "frostline_stage.begin_batch(text,text,text,text,bigint)": (
        "select frostline_stage.begin_batch('public', 'events', 'x', 'replace', 1)",
        "22004",
    ),
    "frostline.pin_v1(integer,text,text,double precision)": ("select frostline.pin_v1(1, 'x', 'me', 60)", "23503"),
    "frostline.renew_pin_v1(bigint,double precision)": ("select frostline.renew_pin_v1(1, 1e9)", "22023"),
    "frostline.release_pin_v1(bigint)": ("select frostline.release_pin_v1('x')", "22P02"),
    "frostline.check_pin_seconds(double precision)": ("select frostline.check_pin_seconds(-1)", "22023"),
    "frostline.require_default(boolean,text,text)": ("select frostline.require_default(false, 'x', 'y')", "428C9"),
    "frostline.is_own(xid)": ("select frostline.is_own('x')", "22P02"),
    "frostline.is_removed_by_us(xid)": ("select frostline.is_removed_by_us('x')", "22P02"),
    "frostline.strayed_row_security(integer)": ("select frostline.strayed_row_security('x')", "22P02"),
    "frostline_write.is_removed_by_us(oid,tid)": ("select frostline_write.is_removed_by_us('x', '(0,1)')", "22P02"),
    'frostline.policy_condition(oid,"char",boolean)': ("select frostline.policy_condition('x', 'r', true)", "22P02"),
    "frostline.policy_conditions(oid)": ("select frostline.policy_conditions('x')", "22P02"),
    "frostline.heap_of(integer)": ("select frostline.heap_of('x')", "22P02"),
    "frostline.follow_policies(integer)": ("select frostline.follow_policies('x')", "22P02"),
    "frostline.forget_policies(integer)": ("select frostline.forget_policies('x')", "22P02"),
    "frostline.untrusted_code(oid)": ("select frostline.untrusted_code('x')", "22P02"),
    "frostline.code_of_others(oid)": ("select frostline.code_of_others('x')", "22P02"),
    "frostline.may_read_all(name,text,oid,oid,text)": (
        "select frostline.may_read_all('x', 'tiered', 'x', 1, 'x')",
        "22P02",
    ),
    "frostline.may_change_all(name,oid,text)": ("select frostline.may_change_all('postgres', 'x', 'x')", "22P02"),
    "frostline.owns_lake_table(name,oid,text)": ("select frostline.owns_lake_table('no such role', 0, 'x')", "42704"),
    "frostline.acts_for(name,text)": ("select frostline.acts_for('no such role', 'x')", "42704"),
    "frostline.lake_checks(oid)": ("select frostline.lake_checks('x')", "22P02"),
    "frostline.lake_columns(oid)": ("select frostline.lake_columns('x')", "22P02"),
    "frostline.ask_lake_server(integer,jsonb)": ("select frostline.ask_lake_server(1, 'x')", "22P02"),
    "frostline.create_lake_table(text,text,jsonb,text[],text[],text[])": (
        "select frostline.create_lake_table('public', 'new', null)",
        "22004",
    ),
    "frostline.drop_lake_table(text,text,boolean)": (
        "select frostline.drop_lake_table('public', 'events', null)",
        "22004",
    ),
    "frostline.is_trusted(oid)": ("select frostline.is_trusted('x')", "22P02"),
}
"""Functions that can be called at all."""

STATE = """
select (select array_agg(t::text order by 1) from frostline.managed_table t),
       (select array_agg(j::text order by 1) from frostline.job j), (select array_agg(s::text) from frostline.seam s),
       (select array_agg((c.oid::regclass, c.relkind, c.relacl)::text order by 1) from pg_class c
         where c.relnamespace in (select oid from pg_namespace where nspname = 'public' or nspname like 'frostline%'))
"""


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter of every command, those that all share left out."""
    context = click.Context(program)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command
        below = command.commands.items() if isinstance(command, click.Group) else ()
        for full, subcommand in [(f"{name} {verb}", below_it) for verb, below_it in below] or [(name, command)]:
            yield from ((full, parameter) for parameter in subcommand.params if parameter.name not in SHARED)


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


FLAGS = [f"{command} {parameter.opts[0]}=x" for command, parameter in parameters() if is_flag(parameter)]
LINES = [line for lines in WRONG.values() for line in lines] + [*FLAGS, "status --debug=x"]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FROSTLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()


def test_there_is_a_wrong_value_for_every_parameter() -> None:
    valued = {(command, str(parameter.name)) for command, parameter in parameters() if not is_flag(parameter)}
    shared = {("", name) for name in SHARED if name != "debug"}
    assert set(WRONG) == (valued - NOT_OURS) | shared


def test_there_is_a_wrong_value_for_every_setting() -> None:
    assert set(WRONG_SETTINGS) == set(Settings.model_fields)


@pytest.fixture(scope="module")
def installed(shared_database: str) -> Iterator[Connection]:
    """A managed table `events` and one, `plain`, that is not."""
    with connect(shared_database, purpose="tests") as connection:
        foreign_server.ensure(connection, host="127.0.0.1", port=1, user="frostline", password="none")
        guard.ensure(connection)
        for name in ("events", "plain"):
            make_events(connection, f"public.{name}", months=2)
        registration.add(connection, registration.Request(Name.parse("events"), Policy("1 month")))
        yield connection


def assert_refused(said: Said) -> None:
    error, *hints = said.stderr.splitlines()
    assert error.startswith("error: ")
    assert hints
    assert all(hint.startswith("hint: ") for hint in hints)
    assert (said.exit_code, said.stdout) == (2, "")


def words(line: str) -> list[str]:
    """As a shell splits it, but double quotes stay."""
    return [part.strip("'") for part in re.findall(r"'[^']*'|\S+", line)]


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_value_is_refused(
    installed: Connection,
    shared_database: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", shared_database)
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", str(tmp_path / "lake"))
    before = rows(installed, STATE)
    assert_refused(command(*words(line)))
    assert rows(installed, STATE) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("key", WRONG_SETTINGS)
def test_a_wrong_setting_in_the_environment_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("FROSTLINE_DSN", "host=127.0.0.1 port=1")
    monkeypatch.setenv("FROSTLINE_WAREHOUSE", "lake")
    monkeypatch.setenv(f"FROSTLINE_{key.upper()}", WRONG_SETTINGS[key][0])
    said = command("status")
    assert_refused(said)
    assert key in said.stderr.splitlines()[0]


@pytest.mark.parametrize("key", WRONG_SETTINGS)
def test_a_wrong_setting_in_the_file_is_refused(command: Command, tmp_path: Path, key: str) -> None:
    values: dict[str, str | int] = {"dsn": "host=127.0.0.1 port=1", "warehouse": "lake", key: WRONG_SETTINGS[key][1]}
    write_file(tmp_path / "frostline.toml", values)
    said = command("status", "--home", tmp_path)
    assert_refused(said)
    assert key in said.stderr.splitlines()[0]


def test_every_function_refuses_to_be_called_wrongly(installed: Connection) -> None:
    functions = rows(
        installed,
        "select oid::regprocedure::text, prorettype::regtype::text from pg_proc"
        " where pronamespace in (select oid from pg_namespace where nspname like 'frostline%')"
        " and (pronargs > 0 or prorettype in ('trigger'::regtype, 'event_trigger'::regtype))",
    )
    # What writes relations and holds foreign keys is called by us alone, with what is in the catalog.
    internal = {
        *sqlfiles.load("frostline.relation", "generator"),
        *sqlfiles.load("frostline.relation", "follow"),
        *sqlfiles.load("frostline.relation", "older"),
        *sqlfiles.load("frostline.relation", "rights"),
        *sqlfiles.load("frostline.relation", "readers"),
        *sqlfiles.load("frostline.relation", "known"),
        *sqlfiles.load("frostline.relation", "aside"),
        *sqlfiles.load("frostline.relation", "constraints"),
        *sqlfiles.load("frostline.relation", "cold_keys"),
        *sqlfiles.load("frostline.relation", "renames"),
        *sqlfiles.load("frostline.relation", "parents"),
        *sqlfiles.load("frostline.relation", "unfilled"),
        *sqlfiles.load("frostline.relation", "kept"),
        *sqlfiles.load("frostline.relation", "held"),
        *sqlfiles.load("frostline.relation", "on_relation"),
        *("keeps_readers", "generation_of"),
        *HOLDING,
    } - {"alter_table"}
    functions = [
        (name, kind)
        for name, kind in functions
        if kind in ("trigger", "event_trigger") or name.partition("(")[0].partition(".")[2] not in internal
    ]
    calls = {name: (f"select {name}", "0A000") for name, kind in functions if kind in ("trigger", "event_trigger")}
    # What a relation calls for one of its rows asks for its secret.
    of_rows = [name for name, _ in functions if name.startswith("frostline_write.") and "(frostline_relation." in name]
    calls |= {name: (f"select {name.partition('(')[0]}(null)", "42501") for name in of_rows}
    assert {name for name, _ in functions} == calls.keys() | WRONG_CALLS.keys()
    for name, (statement, sqlstate) in (calls | WRONG_CALLS).items():
        with pytest.raises(psycopg.Error) as refused:
            run(installed, statement)
        assert refused.value.sqlstate == sqlstate, name


def test_a_nonsensical_session_setting_leaves_the_checks_on(
    catalog: Connection, events: str, add: Callable[..., Table]
) -> None:
    """Only `off` turns the look-up of cold keys off: with nonsense the lake is still asked, here in vain."""
    table = add(events)
    bound.raise_to(catalog, table, from_text(table.tier_kind, "2024-02-01 00:00:00+00"), print)
    line = "update frostline.seam set line_timestamptz = '2024-02-01 00:00+00', snapshot_id = 1"
    run(catalog, line)
    insert = "insert into public.events (id, ts) overriding system value values (1, '2023-01-15 00:00+00')"
    for nonsense in ("nonsense", "", "OFF "):
        run(catalog, f"set frostline.check_cold_keys = '{nonsense}'")
        with pytest.raises(psycopg.OperationalError):
            run(catalog, insert)
    run(catalog, "set frostline.check_cold_keys = off")
    run(catalog, insert)
