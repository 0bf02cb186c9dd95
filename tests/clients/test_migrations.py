"""Migrations by Alembic and Django, and the examples of docs/guides/schema-changes.md, on a table with rows in the lake."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import exc
from tests.fixtures.cold_twins import both
from tests.fixtures.lake import Lake
from tests.fixtures.roles import role
from tests.fixtures.statements import rows, run, value
from tests.fixtures.twins import make_twins

from frostline.pipeline import verify
from frostline.relation import columns, form, guard, renewal

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs/guides/schema-changes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:sql|python) ([\w-]+)(?: \"(.*?)\")?\n(.*?)```", PAGE, re.DOTALL)
REFUSED = [(text, message) for kind, message, text in BLOCKS if kind == "refused"]
WORKS = [text for kind, _, text in BLOCKS if kind == "works"]
STEPS = [text.split(";\n") for kind, _, text in BLOCKS if kind == "steps"]
ENV = """
from alembic import context
from sqlalchemy import create_engine, pool

engine = create_engine(context.config.get_main_option("sqlalchemy.url"), poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True, version_table=context.config.get_main_option("version_table"))
    with context.begin_transaction():
        context.run_migrations()
"""
FAILING = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("_events", sa.Column("more", sa.Text()))
    op.alter_column("_events", "state", new_column_name="status")
    op.execute("update events set more = 'x' where id in (5, 75)")
    op.execute("select 1 / 0")
"""
CONVERTING = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.drop_column("_events", "note")
    op.alter_column("_events", "data", type_=sa.Text())
"""
INITIAL = """
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Event", [
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("ts", models.DateTimeField()),
            ("status", models.TextField(db_default="new")),
            ("amount", models.DecimalField(max_digits=12, decimal_places=2, null=True)),
            ("data", models.JSONField(null=True)),
        ], options={"db_table": "events"}),
    ]
"""
MODELS = """
from django.db import models


class Event(models.Model):
    id = models.BigAutoField(primary_key=True)
    ts = models.DateTimeField()
    state = models.TextField(db_default="new")
    amount = models.DecimalField(max_digits=14, decimal_places=2, null=True, db_default=7)
    data = models.JSONField(null=True)
    note = models.TextField(null=True)

    class Meta:
        app_label = "shop"
        db_table = "events"
        indexes = [models.Index(fields=["note"], name="events_note")]
        constraints = [models.CheckConstraint(condition=~models.Q(note=""), name="events_note_some")]
"""
FAILING_DJANGO = """
from django.db import migrations, models


def fail(apps, schema_editor):
    event = apps.get_model("shop", "Event")
    assert event.objects.filter(id__in=[5, 75]).update(more="x") == 2
    raise ValueError("on purpose")


def table_is(name):
    return migrations.SeparateDatabaseAndState(state_operations=[migrations.AlterModelTable("event", name)])


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_example")]
    operations = [
        table_is("_events"),
        migrations.AddField("event", "more", models.TextField(null=True)),
        table_is("events"),
        migrations.RunPython(fail),
    ]
"""
REMOVING_DJANGO = """
from django.db import migrations


def table_is(name):
    return migrations.SeparateDatabaseAndState(state_operations=[migrations.AlterModelTable("event", name)])


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_example")]
    operations = [
        table_is("_events"),
        migrations.RemoveConstraint("event", "events_note_some"),
        migrations.RemoveIndex("event", "events_note"),
        migrations.RemoveField("event", "note"),
        table_is("events"),
    ]
"""
FINAL = ["id", "ts", "state", "amount", "data", "note"]


def example(kind: str) -> str:
    """The page's one example of a kind."""
    (text,) = (text for name, _, text in BLOCKS if name == kind)
    return text


def for_plain(text: str) -> str:
    """The same migration for a table that is not managed, with names of its own."""
    return re.sub("shop", "plainshop", re.sub("_?events", "plain", text))


@pytest.fixture
def cold(lake: Lake) -> Lake:
    """Rows of three months in the lake only, some of them changed since, and a plain table with the same rows."""
    make_twins(lake)
    assert guard.ensure(lake.catalog)
    with lake.connect() as connection:
        both(connection, "update public.{t} set status = 'changed' where id in (3, 30)")
    return lake


def is_whole(lake: Lake, relation: str = "events") -> None:
    """All rows are as in the plain table, which has the same columns and defaults; every job finds the table in order."""
    with lake.connect() as connection:
        found, expected = (
            rows(connection, f"select id, t::text from public.{name} t order by id, ts") for name in (relation, "plain")
        )
    assert found == expected
    assert described(lake, relation) == described(lake, "plain")
    table = lake.table()
    assert columns.difference(lake.catalog, table) is None
    assert renewal.is_current(lake.catalog, table)
    assert verify.run(lake.catalog, table).faults == ()


def described(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """The columns of a table, their types and defaults but for the identity's."""
    query = (
        "select attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid) from pg_attribute "
        "left join pg_attrdef on adrelid = attrelid and adnum = attnum and attname <> 'id' "
        f"where attrelid = 'public.{name}'::regclass and attnum > 0 and not attisdropped order by attnum"
    )
    return rows(lake.catalog, query)


def trace(lake: Lake) -> list[list[tuple[Any, ...]]]:
    """What a migration could leave."""
    attributes = "select attrelid::regclass::text, attname from pg_attribute where attnum > 0 and attrelid >= 16384 and attrelid::regclass::text !~ '^pg_' order by 1, 2"
    return [rows(lake.catalog, "select * from frostline.managed_column order by 1, 2"), rows(lake.catalog, attributes)]


@pytest.fixture(scope="module")
def page(shared_lake: Lake) -> Iterator[Lake]:
    """For statements in a transaction that is rolled back."""
    make_twins(shared_lake)
    assert guard.ensure(shared_lake.catalog)
    with role(shared_lake.dsn, "app"):
        yield shared_lake


@pytest.mark.parametrize("statements", WORKS)
def test_it_is_followed(page: Lake, statements: str) -> None:
    before = trace(page)
    with page.connect() as connection, connection.transaction(force_rollback=True):
        run(connection, "set search_path = public; " + statements)
        shown = "select array_agg(attname order by attnum) from pg_attribute where attnum > 0 and not attisdropped and attrelid = 'public.{}'::regclass"
        assert value(connection, shown.format("events")) == value(connection, shown.format("_events"))
        assert value(connection, "select count(*) from public.events") == value(
            connection, "select count(*) from public.plain"
        )
    assert trace(page) == before


@pytest.mark.parametrize(("statement", "message"), REFUSED)
def test_it_is_refused(page: Lake, statement: str, message: str) -> None:
    before = trace(page)
    with page.connect() as connection, pytest.raises(psycopg.Error, match=re.escape(message)):
        run(connection, "set search_path = public; " + statement)
    assert trace(page) == before


def test_old_rows_get_values_of_their_own_in_steps(cold: Lake) -> None:
    """As the page does it; each statement is a transaction."""
    tokens, cents = STEPS
    with cold.connect() as connection:
        run(connection, "set search_path = public; set timezone = 'UTC'")
        for statement in tokens:
            run(connection, statement)
        assert rows(connection, "select count(*), count(distinct token) from events") == [(80, 80)]
        given = rows(connection, "select id, token from events order by id")
        for statement in cents:
            run(connection, statement)
        run(connection, "update events set amount = amount + 1 where id in (5, 65)")
        run(
            connection, "insert into events (id, ts, amount) values (9001, '2024-02-02+00', 2), (9002, '2090-02-02', 3)"
        )
        assert value(connection, "select count(*) from events where cents is distinct from amount * 100") == 0
        (folded,) = cold.fold("events")
        assert folded.error is None
        assert value(connection, "select count(*) from _events") == 21, "what was filled is in the lake"
        assert value(connection, "select count(*) from events where cents is distinct from amount * 100") == 0
        assert rows(connection, "select id, token from events where id < 9000 order by id") == given
        assert value(connection, "select count(distinct token) from events") == 82
    assert columns.difference(cold.catalog, cold.table()) is None
    assert verify.run(cold.catalog, cold.table()).faults == ()


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) == len(re.findall(r"```(?:sql|python)\b", PAGE))
    assert (len(WORKS), len(REFUSED)) == (8, 14)


def alembic(lake: Lake, folder: Path, name: str, *migrations: str) -> Config:
    """A project with these migrations; each table has its own."""
    root = folder / name
    (root / "versions").mkdir(parents=True, exist_ok=True)
    (root / "env.py").write_text(ENV)
    for number, text in enumerate(migrations):
        (root / "versions" / f"{number:04}.py").write_text(for_plain(text) if name == "plain" else text)
    config = Config()
    config.set_main_option("script_location", str(root))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url(lake))
    config.set_main_option("version_table", f"version_of_{name}")
    return config


def url(lake: Lake) -> str:
    return lake.dsn.replace("postgresql://", "postgresql+psycopg://")


def test_alembic_migrates_up_and_down(cold: Lake, tmp_path: Path) -> None:
    configs = [alembic(cold, tmp_path, name, example("alembic")) for name in ("events", "plain")]
    for config in configs:
        command.upgrade(config, "head")
    assert [name for name, *_ in described(cold, "events")] == FINAL
    assert value(cold.catalog, "select count(*) from public.events where note like 'old %'") == 11
    is_whole(cold)
    for config in configs:
        command.downgrade(config, "base")
    is_whole(cold)
    assert value(cold.catalog, "select count(*) from pg_class where relname in ('events_note', 'plain_note')") == 0


def test_a_table_that_alembic_has_migrated_goes_on(cold: Lake, tmp_path: Path) -> None:
    for name in ("events", "plain"):
        command.upgrade(alembic(cold, tmp_path, name, example("alembic")), "head")
    with cold.connect() as connection:
        both(connection, "alter table public.{t} alter column amount set default 8")
    (folded,) = cold.fold("events")
    assert folded.error is None
    is_whole(cold)


def test_a_migration_of_alembic_that_fails_leaves_no_trace(cold: Lake, tmp_path: Path) -> None:
    for name in ("events", "plain"):
        command.upgrade(alembic(cold, tmp_path, name, example("alembic")), "head")
    before = trace(cold)
    for name in ("events", "plain"):
        with pytest.raises(exc.DataError, match="division by zero"):
            command.upgrade(alembic(cold, tmp_path, name, example("alembic"), FAILING), "head")
    assert trace(cold) == before
    assert value(cold.catalog, "select version_num from public.version_of_events") == "0001"
    is_whole(cold)


def test_alembic_cannot_convert_a_column_and_is_told_what_to_do(cold: Lake, tmp_path: Path) -> None:
    for name in ("events", "plain"):
        command.upgrade(alembic(cold, tmp_path, name, example("alembic")), "head")
    before = trace(cold)
    with pytest.raises(exc.NotSupportedError, match=r"(?s)cannot become text.*add a column of the new type"):
        command.upgrade(alembic(cold, tmp_path, "events", example("alembic"), CONVERTING), "head")
    assert trace(cold) == before
    is_whole(cold)


def test_autogenerate_compares_the_model_with_the_heap(cold: Lake) -> None:
    metadata = sa.MetaData()
    said: dict[str, Any] = {"sa": sa, "models": SimpleNamespace(metadata=metadata)}
    sa.Table("events", metadata, *(sa.Column(name) for name in ("ts", "status", "amount", "data", "extra")))
    exec(example("alembic-env"), said)
    options = {name: given for name, given in said["options"].items() if name != "target_metadata"}
    engine = sa.create_engine(url(cold), poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={**options, "compare_type": False})
        differences = compare_metadata(context, said["options"]["target_metadata"])
    changes = [
        (change[0], change[2], change[3].name) for change in differences if change[0] in ("add_column", "remove_column")
    ]
    assert changes == [("add_column", "_events", "extra"), ("remove_column", "_events", "id")]
    assert not [change for change in differences if "table" in change[0]]


def django(lake: Lake, folder: Path, name: str, *migrations: str) -> Path:
    """A project with one app of one model, and these migrations of it behind the first."""
    root, app = folder / f"django_{name}", "plainshop" if name == "plain" else "shop"
    (root / app / "migrations").mkdir(parents=True, exist_ok=True)
    parts = conninfo_to_dict(lake.dsn)
    keys = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {"ENGINE": "django.db.backends.postgresql"} | {key: str(parts[part]) for key, part in keys.items()}
    (root / "project.py").write_text(
        f"DATABASES = {{'default': {database!r}}}\nINSTALLED_APPS = [{app!r}]\nUSE_TZ = True\n"
    )
    files = {
        "__init__.py": "",
        "models.py": MODELS,
        "migrations/__init__.py": "",
        "migrations/0001_initial.py": INITIAL,
    }
    files |= {f"migrations/000{2 + n}_{('example', 'fails')[n]}.py": text for n, text in enumerate(migrations)}
    for file, text in files.items():
        (root / app / file).write_text(for_plain(text) if name == "plain" else text)
    return root


def manage(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root), "DJANGO_SETTINGS_MODULE": "project"}
    command = [sys.executable, "-m", "django", *words]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False, timeout=300)


def migrated(lake: Lake, folder: Path) -> list[Path]:
    """The page's migration, done to both tables."""
    roots = [django(lake, folder, name, example("django")) for name in ("events", "plain")]
    for root, app in zip(roots, ("shop", "plainshop"), strict=True):
        for words in (["migrate", app, "0001", "--fake"], ["migrate", app]):
            done = manage(root, *words)
            assert done.returncode == 0, done.stderr
    return roots


def test_django_migrates_and_finds_nothing_more_to_do(cold: Lake, tmp_path: Path) -> None:
    events, _ = migrated(cold, tmp_path)
    assert [name for name, *_ in described(cold, "events")] == FINAL
    assert value(cold.catalog, "select count(*) from public.events where note = 'old'") == 3
    done = manage(events, "makemigrations", "--check", "--dry-run")
    assert done.returncode == 0, done.stdout
    is_whole(cold)
    (folded,) = cold.fold("events")
    assert folded.error is None
    is_whole(cold)


def test_a_migration_of_django_that_fails_leaves_no_trace(cold: Lake, tmp_path: Path) -> None:
    migrated(cold, tmp_path)
    before = trace(cold)
    for name in ("events", "plain"):
        done = manage(django(cold, tmp_path, name, example("django"), FAILING_DJANGO), "migrate")
        assert done.returncode != 0
        assert "ValueError: on purpose" in done.stderr
    assert trace(cold) == before
    is_whole(cold)


def test_django_drops_a_column_with_cascade_and_the_relation_stays(cold: Lake, tmp_path: Path) -> None:
    migrated(cold, tmp_path)
    for name in ("events", "plain"):
        done = manage(django(cold, tmp_path, name, example("django"), REMOVING_DJANGO), "migrate")
        assert done.returncode == 0, done.stderr
    assert [name for name, *_ in described(cold, "events")] == FINAL[:-1]
    is_whole(cold)


def beside(text: str) -> str:
    """The page's migration for a table that keeps its name: what is said of the heap is said of it."""
    return text.replace('"_events"', '"events"').replace("update events", "update events_all")


def test_beside_the_table_migrations_name_the_table(cold: Lake, tmp_path: Path) -> None:
    form.change(cold.catalog, cold.table(), "events_all")
    command.upgrade(alembic(cold, tmp_path, "events", beside(example("alembic"))), "head")
    command.upgrade(alembic(cold, tmp_path, "plain", example("alembic")), "head")
    is_whole(cold, "events_all")


def test_beside_the_table_migrations_of_django_stay_as_they_are(cold: Lake, tmp_path: Path) -> None:
    """But for one that changes old rows."""
    form.change(cold.catalog, cold.table(), "events_all")
    text = beside(example("django")).replace(
        'table_is("events"),\n        migrations.RunPython', 'table_is("events_all"),\n        migrations.RunPython'
    )
    text = text.replace("noop),\n", 'noop),\n        table_is("events"),\n')
    assert text.count("events_all") == 1
    root = django(cold, tmp_path, "events", text)
    for words in (["migrate", "shop", "0001", "--fake"], ["migrate", "shop"]):
        done = manage(root, *words)
        assert done.returncode == 0, done.stderr
    (_, plain) = migrated_plain(cold, tmp_path)
    assert plain.returncode == 0, plain.stderr
    is_whole(cold, "events_all")


def migrated_plain(lake: Lake, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    root = django(lake, folder, "plain", example("django"))
    return [manage(root, *words) for words in (["migrate", "plainshop", "0001", "--fake"], ["migrate", "plainshop"])]
