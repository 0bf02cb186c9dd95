"""Django's models, managed by Django or not, do to the relation what they do to a plain table."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import django
import pytest
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connection, connections, models, transaction
from django.db.models.functions import RowNumber
from django.db.utils import IntegrityError, NotSupportedError, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from tests.fixtures.pair import NAMES, Pair
from tests.fixtures.waiting import until_true

pytestmark = pytest.mark.spark

atomic: Any = transaction.atomic
integer: Any = models.IntegerField
"""Django comes without types, and those of these two are guessed wrong."""
OLD, NEW = datetime(2024, 1, 15, tzinfo=UTC), datetime(2090, 7, 1, tzinfo=UTC)
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def _database(dsn: str) -> dict[str, Any]:
    parts = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {"ENGINE": "django.db.backends.postgresql"} | {name: parts[key] for name, key in names.items()}


@pytest.fixture(scope="module", autouse=True)
def configured(made_pair: Pair) -> Iterator[None]:
    """Django with this module's database. Settings are made once a process, and so is this module."""
    settings.configure(DATABASES={"default": _database(made_pair.dsn)}, USE_TZ=True, TIME_ZONE="UTC")
    django.setup()
    yield
    connections.close_all()


def _fields() -> dict[str, Any]:
    return {
        "__module__": __name__,
        "ts": models.DateTimeField(db_default=NEW),
        "status": models.TextField(db_default="new"),
        "amount": models.DecimalField(max_digits=12, decimal_places=2, null=True),
        "data": models.JSONField(null=True),
        "tags": ArrayField(models.TextField(null=True), null=True),
        "ref": models.UUIDField(null=True),
        "kind": models.TextField(db_default="small"),
        "version": integer(db_default=1),
    }


def _model(name: str, kind: str, *, managed: bool = False, **key: Any) -> Any:
    options = {"app_label": "clients", "db_table": name, "managed": managed}
    return type(f"{kind}{name}", (models.Model,), _fields() | key | {"Meta": type("Meta", (), options)})


def _whole_key() -> dict[str, Any]:
    """As Django has it since 5.2."""
    return {"id": models.BigIntegerField(), "pk": models.CompositePrimaryKey("id", "ts")}


@pytest.fixture(scope="module")
def event(configured: None) -> dict[str, Any]:
    """The model of each table as most are: Django does not manage it, and its key is `id`."""
    return {name: _model(name, "Event", id=models.BigAutoField(primary_key=True)) for name in NAMES}


@pytest.fixture(scope="module")
def by_key(configured: None) -> dict[str, Any]:
    """With the whole primary key."""
    return {name: _model(name, "ByKey", **_whole_key()) for name in NAMES}


@pytest.fixture(scope="module")
def managed(configured: None) -> dict[str, Any]:
    """As `event`, but as if Django's migrations had made the table."""
    key = models.BigAutoField
    return {name: _model(name, "Managed", managed=True, id=key(primary_key=True)) for name in NAMES}


def shown(one: Any) -> tuple[Any, ...]:
    return (one.id, one.ts, one.status, one.amount, one.data, one.tags, one.ref, one.kind, one.version)


@pytest.mark.parametrize("chosen", [{"id__lte": 40}, {"id__gt": 70}, {"id__range": (55, 65)}, {"data__i__gte": 50}])
def test_it_filters_rows_of_each_tier_and_of_both(pair: Pair, event: Any, chosen: dict[str, Any]) -> None:
    assert len(pair.both(lambda name: [shown(row) for row in event[name].objects.filter(**chosen).order_by("id")])) > 5


@pytest.mark.parametrize("when", [OLD, NEW])
def test_create_save_refresh_and_delete(pair: Pair, event: Any, when: datetime) -> None:
    def live(name: str) -> list[Any]:
        model = event[name]
        instance = model.objects.create(ts=when, data={"a": [1, None]}, tags=["x", None], amount=Decimal("1.50"))
        lives = [shown(model.objects.get(pk=instance.pk))]
        instance.status, instance.amount = "saved", models.F("amount") + 1
        instance.save()
        instance.refresh_from_db()
        lives.append(shown(instance))
        instance.version = 9
        instance.save(update_fields=["version"])
        lives.append(shown(model.objects.get(pk=instance.pk)))
        return [*lives, instance.delete()[0], model.objects.filter(pk=lives[0][0]).exists()]

    created, saved, *_, deleted, is_there = pair.both(live)
    assert (created[2], saved[2], saved[3], deleted, is_there) == ("new", "saved", Decimal("2.50"), 1, False)


def test_update_and_delete_of_a_query_count_rows_of_both_tiers(pair: Pair, event: Any) -> None:
    def change(name: str) -> Any:
        model = event[name]
        updated = model.objects.filter(id__range=(56, 64)).update(status="updated", version=models.F("version") + 1)
        return updated, model.objects.filter(id__in=[41, 42, 79]).delete()[0]

    assert pair.both(change) == (9, 3)


def test_get_or_create_and_update_or_create(pair: Pair, event: Any) -> None:
    def change(name: str) -> Any:
        manager = event[name].objects
        got = [
            manager.get_or_create(id=7, defaults={"ts": OLD, "status": "not used"}),
            manager.get_or_create(id=501, defaults={"ts": OLD, "status": "created"}),
            manager.update_or_create(id=8, defaults={"status": "updated"}),
            manager.update_or_create(id=68, defaults={"status": "updated"}),
            manager.update_or_create(id=502, defaults={"ts": NEW, "status": "created"}),
        ]
        return [(instance.id, instance.status, is_new) for instance, is_new in got]

    assert [is_new for *_, is_new in pair.both(change)] == [False, True, False, False, True]


def test_bulk_create_gives_each_its_key_and_bulk_update_writes_them(pair: Pair, event: Any) -> None:
    def change(name: str) -> Any:
        model = event[name]
        new = [model(ts=(OLD, NEW)[i % 2], status=f"bulk {i}", kind="large", data=i) for i in range(60)]
        model.objects.bulk_create(new, batch_size=25)
        assert [model.objects.get(pk=made.pk).status for made in new[:4]] == ["bulk 0", "bulk 1", "bulk 2", "bulk 3"]
        for created in new:
            created.status, created.amount = f"again {created.data}", Decimal(created.data)
        return [made.pk for made in new], model.objects.bulk_update(new, ["status", "amount"], batch_size=25)

    assert pair.both(change)[1] == 60


@pytest.mark.parametrize("options", [{"ignore_conflicts": True}, {"update_conflicts": True}])
def test_bulk_create_over_conflicts_is_refused(pair: Pair, event: Any, options: dict[str, Any]) -> None:
    if "update_conflicts" in options:
        options = options | {"update_fields": ["status"], "unique_fields": ["id"]}
    with pytest.raises(NotSupportedError, match="ON CONFLICT"):
        event["events"].objects.bulk_create([event["events"](id=9, ts=OLD)], **options)


def test_an_iterator_reads_through_a_cursor_of_the_server(pair: Pair, event: Any) -> None:
    def read(name: str) -> list[Any]:
        query = event[name].objects.order_by("id", "ts")
        shown_rows = [shown(row) for row in query.iterator(chunk_size=7)]
        with atomic():
            return shown_rows + [shown(row) for row in query.iterator(chunk_size=7)]

    assert len(pair.both(read)) > 140


def test_aggregates_over_both_tiers(pair: Pair, event: Any) -> None:
    def ask(name: str) -> Any:
        query = event[name].objects
        total = query.aggregate(models.Sum("amount"), models.Avg("version"), models.Max("ts"), n=models.Count("*"))
        months = query.values("kind", "ts__year").annotate(n=models.Count("id"), most=models.Max("amount"))
        ranked = query.annotate(rank=models.Window(RowNumber(), order_by=["-amount", "id"]))
        return (
            total,
            list(months.order_by("kind", "ts__year")),
            [(row.id, row.rank) for row in ranked.order_by("rank")[:10]],
            list(query.dates("ts", "month")),
            query.filter(tags__contains=["b50"]).count(),
        )

    pair.both(ask)


def test_atomic_blocks_and_their_savepoints(pair: Pair, event: Any) -> None:
    def change(name: str) -> Any:
        model = event[name]
        with atomic():
            model.objects.filter(id=10).update(status="kept")
            with pytest.raises(IntegrityError), atomic():
                model.objects.create(id=11, ts=model.objects.get(id=11).ts)
            with pytest.raises(IntegrityError), atomic():
                model.objects.filter(id__in=[12, 71]).update(amount=Decimal(-1))
        with atomic():
            model.objects.filter(id__in=[13, 73]).delete()
            transaction.set_rollback(True)
        return [row.status for row in model.objects.filter(id__in=[10, 11, 12, 13, 71, 73]).order_by("id")]

    assert pair.both(change)[0] == "kept"


def test_a_model_with_the_whole_key(pair: Pair, by_key: Any) -> None:
    def change(name: str) -> Any:
        model = by_key[name]
        keys = [model.objects.get(id=number).pk for number in (14, 74)]
        for key in keys:
            instance = model.objects.get(pk=key)
            instance.status = "by the whole key"
            instance.save()
        model.objects.create(id=601, ts=OLD, status="made")
        model.objects.get(id=15).delete()
        model(id=601, ts=OLD, status="saved over").save()
        return [shown(row) for row in model.objects.filter(pk__in=[*keys, (601, OLD)]).order_by("id")]

    assert [row[2] for row in pair.both(change)] == ["by the whole key", "by the whole key", "saved over"]


def _locked_twice(model: Any, number: int) -> int:
    """Lock a row in one transaction, and at once in another."""

    def again() -> int:
        try:
            with atomic():
                return model.objects.select_for_update(nowait=True).get(id=number).id
        finally:
            connection.close()

    with atomic(), ThreadPoolExecutor(1) as pool:
        model.objects.select_for_update(nowait=True).get(id=number)
        return pool.submit(again).result()


def test_select_for_update_is_accepted_and_locks_nothing(pair: Pair, event: Any) -> None:
    for number in (16, 76):
        assert _locked_twice(event["events"], number) == number
        with pytest.raises(OperationalError, match="could not obtain lock"):
            _locked_twice(event["plain"], number)


def _raced(pair: Pair, model: Any) -> BaseException | None:
    """Change a row that another transaction has changed and not yet committed; what comes of it."""

    def add() -> None:
        try:
            model.objects.filter(id=17).update(version=models.F("version") + 1)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with atomic():
            model.objects.filter(id=17).update(status="first")
            adding = pool.submit(add)
            until_true(pair.lake.catalog, WAITING)
        return adding.exception()


def test_two_transactions_on_one_row_end_in_40001(pair: Pair, event: Any) -> None:
    """At READ COMMITTED, where a plain table waits and goes on with the row as it is then."""
    assert _raced(pair, event["plain"]) is None
    refusal = _raced(pair, event["events"])
    assert isinstance(refusal, OperationalError)
    assert getattr(refusal.__cause__, "sqlstate", None) == "40001"
    event["events"].objects.filter(id=17).update(version=models.F("version") + 1)


def test_a_model_that_is_not_managed_can_be_grouped_by(pair: Pair, event: Any, managed: Any) -> None:
    """Django groups a managed one by `id` alone. That is not the whole key, so a plain table refuses it too."""

    def grouped(model: Any) -> Any:
        n = models.Count("kind", filter=models.Q(version__gt=0))
        return [(row.id, row.n) for row in model.objects.filter(id__range=(50, 70)).annotate(n=n).order_by("id")]

    assert pair.both(lambda name: grouped(event[name]))
    for name in NAMES:
        with pytest.raises(ProgrammingError, match="must appear in the GROUP BY clause"):
            grouped(managed[name])


def test_a_migration_cannot_add_a_field(pair: Pair, managed: Any) -> None:
    field = models.TextField(null=True)
    field.set_attributes_from_name("extra")
    refused = pytest.raises(ProgrammingError, match="not supported for views")
    with refused, connection.schema_editor() as editor:
        editor.add_field(managed["events"], field)


def test_introspection_finds_a_view_without_a_key(pair: Pair) -> None:
    with connection.cursor() as cursor:
        kinds = {table.name: table.type for table in connection.introspection.get_table_list(cursor)}
        keys = [connection.introspection.get_primary_key_columns(cursor, name) for name in NAMES]
    assert (kinds["events"], kinds["plain"]) == ("v", "t")
    assert keys == [None, ["id", "ts"]]


@pytest.fixture(scope="module")
def kept(configured: None) -> dict[str, Any]:
    """The models of a table that has its relation beside it, and of its plain twin."""
    return {name: _model(name, "Kept", **_whole_key()) for name in ("kept", "kept_plain")}


def test_beside_its_relation_a_table_is_introspected_as_what_it_is(pair_beside: Pair, kept: Any) -> None:
    def shape(name: str) -> Any:
        seen = connection.introspection
        with connection.cursor() as cursor:
            columns = [
                (column.name, column.type_code, column.null_ok) for column in seen.get_table_description(cursor, name)
            ]
            kinds = {table.name: table.type for table in seen.get_table_list(cursor)}
            constraints = seen.get_constraints(cursor, name).values()
            sequences = [found["column"] for found in seen.get_sequences(cursor, name)]
        keys = [constraint["columns"] for constraint in constraints if constraint["primary_key"]]
        return columns, keys, sequences, kinds[name] in {"t", "p"}, kinds["kept_all"]

    columns, keys, sequences, is_table, relation = pair_beside.both(shape)
    assert (len(columns), keys, sequences, is_table, relation) == (9, [["id", "ts"]], ["id"], True, "v")


def test_beside_its_relation_a_table_takes_conflicts_and_locks(pair_beside: Pair, kept: Any) -> None:
    def change(name: str) -> Any:
        model = kept[name]
        objects = model.objects
        again = objects.get(id=61)
        again.status = "again"
        objects.bulk_create(
            [again, model(id=900, ts=NEW, status="fresh", data=None)],
            update_conflicts=True,
            unique_fields=["id", "ts"],
            update_fields=["status"],
        )
        objects.bulk_create([model(id=900, ts=NEW, status="not taken", data=None)], ignore_conflicts=True)
        with atomic():
            locked = objects.select_for_update().get(id=62)
            locked.version += 1
            locked.save(update_fields=["version"])
        return [shown(row) for row in objects.filter(id__in=[61, 62, 900]).order_by("id")]

    rows = pair_beside.both(change)
    assert [(row[0], row[2], row[-1]) for row in rows] == [(61, "again", 1), (62, "row 62", 2), (900, "fresh", 1)]


def test_beside_its_relation_the_relation_is_read_as_a_model(pair_beside: Pair, kept: Any) -> None:
    relation = _model("kept_all", "Kept", **_whole_key())
    assert [shown(row) for row in relation.objects.order_by("id")] == [
        shown(row) for row in kept["kept_plain"].objects.order_by("id")
    ]
