"""SQLAlchemy, core and mapped classes, does to the relation what it does to a plain table."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError
from tests.fixtures.pair import NAMES, Pair
from tests.fixtures.waiting import until_true

pytestmark = pytest.mark.spark

OLD, NEW = datetime(2024, 1, 15, tzinfo=UTC), datetime(2090, 7, 1, tzinfo=UTC)
BOTH = [OLD, NEW]
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class Base(DeclarativeBase):
    """What both mapped classes are registered with."""


class Columns:
    """The columns as an application maps them, with the key that a view does not show."""

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    ts: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True), primary_key=True, server_default=sa.text("now()"))
    status: Mapped[str] = mapped_column(server_default="new")
    amount: Mapped[Decimal | None] = mapped_column(sa.Numeric(12, 2))
    data: Mapped[Any] = mapped_column(postgresql.JSONB)
    tags: Mapped[list[str | None] | None] = mapped_column(postgresql.ARRAY(sa.Text))
    ref: Mapped[UUID | None]
    kind: Mapped[str] = mapped_column(
        postgresql.ENUM("small", "large", name="kind", schema="public", create_type=False), server_default="small"
    )
    version: Mapped[int]


def _mapped(name: str) -> Any:
    table = {"__tablename__": name, "__table_args__": {"schema": "public"}}
    return type(name.title(), (Columns, Base), table)


MODELS: dict[str, Any] = {name: _mapped(name) for name in NAMES}


@pytest.fixture(scope="module")
def engine(made_pair: Pair) -> Iterator[sa.Engine]:
    """A pool of psycopg connections, as an application has it."""
    made = sa.create_engine(made_pair.dsn.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


def shown(row: Any) -> tuple[Any, ...]:
    return (row.status, row.amount, row.data, row.tags, row.ref, row.kind, row.version)


def first(session: Session, name: str, number: int) -> Any:
    model = MODELS[name]
    return session.scalars(sa.select(model).where(model.id == number)).one()


@pytest.mark.parametrize("condition", ["id <= 40", "id > 70", "id between 55 and 65", "true"])
def test_it_selects_rows_of_each_tier_and_of_both(pair: Pair, engine: sa.Engine, condition: str) -> None:
    def select(name: str) -> list[Any]:
        with Session(engine) as session:
            rows = session.scalars(sa.select(MODELS[name]).where(sa.text(condition)).order_by(MODELS[name].id))
            return [(event.id, event.ts, *shown(event)) for event in rows]

    assert len(pair.both(select)) > 5


@pytest.mark.parametrize("when", BOTH)
def test_a_flush_brings_back_what_the_server_filled_in(pair: Pair, engine: sa.Engine, when: datetime) -> None:
    def insert(name: str) -> Any:
        with Session(engine) as session, session.begin():
            made = MODELS[name](ts=when, amount=Decimal("1.25"), data={"a": [1, None]}, tags=["x", None], version=1)
            session.add(made)
            session.flush()
            assert not sa.inspect(made).expired_attributes & {"id", "status", "kind"}
            session.refresh(made)
            return made.id, made.ts, *shown(made)

    assert pair.both(insert)[2:5] == ("new", Decimal("1.25"), {"a": [1, None]})


def test_many_new_objects_are_inserted_in_one_statement_and_get_their_own_keys(pair: Pair, engine: sa.Engine) -> None:
    def insert(name: str) -> list[Any]:
        with Session(engine) as session, session.begin():
            made = [MODELS[name](ts=BOTH[i % 2], status=f"bulk {i}", data=i, version=1) for i in range(300)]
            session.add_all(made)
            session.flush()
            keys = [(event.id, event.ts, event.status) for event in made]
        assert [status for _, _, status in sorted(keys)] == [f"bulk {i}" for i in range(300)]
        return keys

    pair.both(insert)


def test_an_insert_of_many_returns_its_rows_in_the_order_given(pair: Pair, engine: sa.Engine) -> None:
    def insert(name: str) -> list[Any]:
        model = MODELS[name]
        statement = sa.insert(model).returning(model.id, model.status, sort_by_parameter_order=True)
        values = [{"ts": BOTH[i % 2], "status": f"returned {i}", "data": None, "version": 1} for i in range(50)]
        with Session(engine) as session, session.begin():
            return [tuple(row) for row in session.execute(statement, values)]

    assert [status for _, status in pair.both(insert)] == [f"returned {i}" for i in range(50)]


@pytest.mark.parametrize("number", [3, 63])
def test_a_changed_object_is_written_by_its_key_and_read_again(pair: Pair, engine: sa.Engine, number: int) -> None:
    def change(name: str) -> Any:
        with Session(engine) as session:
            event = first(session, name, number)
            event.status, event.data, event.tags = "changed", {"changed": True}, []
            session.commit()
            event.amount = MODELS[name].amount + 1  # the server computes it
            session.commit()
            session.refresh(event)
            return event.id, event.ts, *shown(event)

    assert pair.both(change)[2] == "changed"


@pytest.mark.parametrize(("number", "when"), [(4, NEW), (64, OLD)])
def test_an_object_whose_key_is_changed_moves_to_the_other_tier(
    pair: Pair, engine: sa.Engine, number: int, when: datetime
) -> None:
    def move(name: str) -> Any:
        with Session(engine) as session, session.begin():
            first(session, name, number).ts = when
        with Session(engine) as session:
            return shown(session.get_one(MODELS[name], (number, when)))

    pair.both(move)


def test_objects_are_deleted_one_by_one_and_by_a_condition(pair: Pair, engine: sa.Engine) -> None:
    def delete(name: str) -> Any:
        model = MODELS[name]
        with Session(engine) as session, session.begin():
            for number in (5, 65):
                session.delete(first(session, name, number))
            session.flush()
            done: Any = session.execute(sa.delete(model).where(model.id.in_([6, 66, 999999])))
            return done.rowcount

    assert pair.both(delete) == 2


def test_an_update_of_many_by_their_keys(pair: Pair, engine: sa.Engine) -> None:
    def update(name: str) -> None:
        model = MODELS[name]
        with Session(engine) as session, session.begin():
            keys = session.execute(sa.select(model.id, model.ts).where(model.id.between(50, 70))).all()
            session.execute(sa.update(model), [{"id": id_, "ts": ts, "status": f"by key {id_}"} for id_, ts in keys])

    pair.both(update)


class Counted(DeclarativeBase):
    """What the classes with an optimistic version counter are registered with."""


def _counted(name: str) -> Any:
    columns = {
        "__tablename__": name,
        "__table_args__": {"schema": "public"},
        "id": mapped_column(sa.BigInteger, primary_key=True),
        "ts": mapped_column(sa.DateTime(timezone=True), primary_key=True),
        "status": mapped_column(sa.Text),
        "version": mapped_column(sa.Integer, nullable=False),
    }
    made: Any = type(
        f"Counted{name}", (Counted,), columns | {"__mapper_args__": {"version_id_col": columns["version"]}}
    )
    return made


COUNTED = {name: _counted(name) for name in NAMES}


@pytest.mark.parametrize("number", [7, 67])
def test_the_version_counter_tells_who_came_too_late(pair: Pair, engine: sa.Engine, number: int) -> None:
    def race(name: str) -> Any:
        model = COUNTED[name]
        query = sa.select(model).where(model.id == number)
        with Session(engine) as early, Session(engine, expire_on_commit=False) as late:
            mine, theirs = early.scalars(query).one(), late.scalars(query).one()
            late.commit()
            mine.status += " early"
            early.commit()
            theirs.status += " late"
            with pytest.raises(StaleDataError):
                late.commit()
            late.rollback()
            return mine.version, theirs.version, theirs.status

    version, same, status = pair.both(race)
    assert version == same
    assert status.endswith(" early")


def test_rows_are_streamed_through_a_cursor_of_the_server(pair: Pair, engine: sa.Engine) -> None:
    def stream(name: str) -> list[Any]:
        model = MODELS[name]
        query = sa.select(model.id, model.status).order_by(model.id).execution_options(yield_per=7)
        with Session(engine) as session:
            return [tuple(row) for part in session.execute(query).partitions() for row in part]

    assert len(pair.both(stream)) > 70


def test_a_savepoint_is_rolled_back_and_the_rest_stays(pair: Pair, engine: sa.Engine) -> None:
    def nested(name: str) -> type:
        with Session(engine) as session, session.begin():
            event = first(session, name, 8)
            event.status = "kept"
            with pytest.raises(exc.IntegrityError) as refusal, session.begin_nested():
                session.execute(
                    sa.insert(MODELS[name]).values(id=9, ts=first(session, name, 9).ts, data=None, version=1)
                )
            return type(refusal.value.orig)

    assert pair.both(nested) is errors.UniqueViolation


def test_two_transactions_on_one_row_end_in_40001_and_the_next_try_succeeds(pair: Pair, engine: sa.Engine) -> None:
    """At READ COMMITTED, where a plain table waits and goes on with the row as it is then."""

    def add(session: Session, name: str) -> None:
        model = MODELS[name]
        session.execute(sa.update(model).where(model.id == 10).values(version=model.version + 1))
        session.commit()

    def race(name: str) -> BaseException | None:
        with Session(engine) as holder, Session(engine) as other, ThreadPoolExecutor(1) as pool:
            holder.execute(sa.update(MODELS[name]).where(MODELS[name].id == 10).values(status="first"))
            adding = pool.submit(add, other, name)
            until_true(pair.lake.catalog, WAITING)
            holder.commit()
            return adding.exception()

    assert race("plain") is None
    refusal = race("events")
    assert isinstance(refusal, exc.OperationalError)
    assert isinstance(refusal.orig, errors.SerializationFailure)
    with Session(engine) as session:
        add(session, "events")
    pair.compare()


@pytest.mark.parametrize("do", ["nothing", "update"])
def test_on_conflict_is_refused(pair: Pair, engine: sa.Engine, do: str) -> None:
    insert = postgresql.insert(MODELS["events"]).values(id=11, ts=OLD, data=None, version=1)
    keys = ["id", "ts"]
    chosen = (
        insert.on_conflict_do_nothing()
        if do == "nothing"
        else insert.on_conflict_do_update(index_elements=keys, set_={"status": "conflict"})
    )
    with Session(engine) as session, pytest.raises(exc.NotSupportedError, match="ON CONFLICT"):
        session.execute(chosen)


def test_for_update_is_accepted_and_locks_nothing(pair: Pair, engine: sa.Engine) -> None:
    def lock(name: str) -> int:
        query = sa.select(MODELS[name]).where(MODELS[name].id == 68).with_for_update(nowait=True)
        with Session(engine) as mine, Session(engine) as other:
            assert mine.scalars(query).one().id == 68
            return other.scalars(query).one().id

    assert lock("events") == 68
    with pytest.raises(exc.OperationalError):
        lock("plain")


def test_reflection_finds_a_view_without_a_key_and_creating_leaves_it_alone(pair: Pair, engine: sa.Engine) -> None:
    seen = sa.inspect(engine)
    assert ("events" in seen.get_table_names("public"), "events" in seen.get_view_names("public")) == (False, True)
    events, plain = (sa.Table(name, sa.MetaData(), autoload_with=engine, schema="public") for name in NAMES)
    assert [(column.name, str(column.type)) for column in events.columns] == [
        (column.name, str(column.type)) for column in plain.columns
    ]
    assert (list(events.primary_key), len(plain.primary_key)) == ([], 2)
    Base.metadata.create_all(engine)


def test_asynchronous_sessions_over_asyncpg(pair: Pair) -> None:
    async def change(name: str) -> list[Any]:
        engine = create_async_engine(pair.dsn.replace("postgresql://", "postgresql+asyncpg://"))
        model = MODELS[name]
        async with AsyncSession(engine) as session, session.begin():
            for number in (12, 72):
                (await session.scalars(sa.select(model).where(model.id == number))).one().status = "asynchronous"
            made = [model(ts=when, data={"by": "asyncpg"}, tags=["t"], ref=UUID(int=1), version=1) for when in BOTH]
            session.add_all(made)
            await session.flush()
            inserted = [(event.id, event.ts, event.status) for event in made]
            stream = await session.stream(sa.select(model.id, model.ref).order_by(model.id))
            inserted += [tuple(row) async for row in stream]
        await engine.dispose()
        return inserted

    pair.both(lambda name: asyncio.run(change(name)))


@pytest.fixture
def reflected(pair_beside: Pair, engine: sa.Engine) -> dict[str, sa.Table]:
    """Both tables as SQLAlchemy reads them from the database, where the relation is beside the first."""
    return {name: sa.Table(name, sa.MetaData(), autoload_with=engine, schema="public") for name in pair_beside.names}


def test_beside_its_relation_a_table_is_reflected_as_what_it_is(
    pair_beside: Pair, engine: sa.Engine, reflected: dict[str, sa.Table]
) -> None:
    seen = sa.inspect(engine)
    assert set(pair_beside.names) <= set(seen.get_table_names("public"))
    assert "kept_all" in seen.get_view_names("public")

    def shape(name: str) -> Any:
        table = reflected[name]
        columns = [(column.name, str(column.type), column.nullable) for column in table.columns]
        checks = [check["sqltext"] for check in seen.get_check_constraints(name, "public")]
        return columns, [column.name for column in table.primary_key], bool(table.c.id.identity), checks

    columns, key, has_identity, checks = pair_beside.both(shape)
    assert (len(columns), key, has_identity, len(checks)) == (9, ["id", "ts"], True, 1)


def test_beside_its_relation_a_table_takes_upserts(
    pair_beside: Pair, engine: sa.Engine, reflected: dict[str, sa.Table]
) -> None:
    def upsert(name: str) -> Any:
        table = reflected[name]
        with engine.begin() as connection:
            when = connection.scalar(sa.select(table.c.ts).where(table.c.id == 61))
            insert = postgresql.insert(table).values(
                [{"id": 61, "ts": when, "status": "again"}, {"id": 900, "ts": NEW, "status": "fresh"}]
            )
            given = {"status": insert.excluded.status, "version": table.c.version + 1}
            change = insert.on_conflict_do_update(index_elements=["id", "ts"], set_=given)
            written = connection.execute(change.returning(table.c.id, table.c.status, table.c.version)).all()
            again = connection.execute(insert.on_conflict_do_nothing().returning(table.c.id)).all()
            return [tuple(row) for row in written], again

    assert pair_beside.both(upsert) == ([(61, "again", 2), (900, "fresh", 1)], [])


def test_beside_its_relation_rows_of_a_table_are_locked(
    pair_beside: Pair, engine: sa.Engine, reflected: dict[str, sa.Table]
) -> None:
    def lock(name: str) -> Any:
        query = sa.select(reflected[name].c.id).where(reflected[name].c.id == 68)
        with engine.begin() as mine, engine.connect() as other:
            assert mine.scalar(query.with_for_update()) == 68
            assert other.scalar(query.with_for_update(skip_locked=True)) is None
            with pytest.raises(exc.OperationalError) as refusal:
                other.execute(query.with_for_update(nowait=True))
            return type(refusal.value.orig)

    assert pair_beside.both(lock) is errors.LockNotAvailable
