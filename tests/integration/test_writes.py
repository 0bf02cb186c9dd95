"""Writes through the relation, on hot rows, on rows that are in the lake only, and on both: a plain table is the reference."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from tests.fixtures.lake import Lake
from tests.fixtures.statements import run
from tests.fixtures.twins import WHERE, Twins, begun

from frostline.runtime.programs import Programs

pytestmark = pytest.mark.spark

INSERTS = {
    "values": "insert into {t} (id, ts, status, amount, data) values (901, {ts}, 'a', 1.5, '[1]'), (902, {later}, 'b', null, null)",
    "without a column list": "insert into {t} values (901, {ts}, 'a', 1.5, '[1]')",
    "select": "insert into {t} (id, ts, status) select id + 5000, case when id % 2 = 0 then {ts} else {later} end, 'copy' from {t} where {where}",
    "defaults": "insert into {t} (ts) values ({ts}), ({later})",
    "default said": "insert into {t} (id, ts, status, amount) values (default, {ts}, default, default)",
    "identity omitted": "insert into {t} (ts, status) select case when i = 2 then {ts} else {later} end, 'n' || i from generate_series(1, 3) i",
    "identity given": "insert into {t} (id, ts) values (7777, {ts}), (7778, {later})",
    "a common table expression": "with old as (select * from {t} where {where}) "
    "insert into {t} (id, ts, status) select id + 9000, case when id % 2 = 0 then {ts} else {later} end, status from old",
    "a deleting one": "with gone as (delete from {t} where {where} and id % 2 = 0 returning *) "
    "insert into {t} (id, ts, status, amount) select id, case when id % 4 = 0 then {ts} else {later} end, 'moved', amount from gone",
    "inside a query": "with made as (insert into {t} (id, ts) values (901, {ts}), (902, {later}) returning id, status) select * from made",
}
CHANGES = {
    "constant": "update {t} set status = 'x' where {where} and id % 3 = 0",
    "all of it": "update {t} set amount = coalesce(amount, 0) + 1, data = data || '{{\"seen\": true}}' where {where}",
    "nothing": "update {t} set status = 'x' where {where} and id < 0",
    "alias": "update {t} as e set status = e.status || '!' where e.id in (2, 55, 62) and {where}",
    "subquery": "update {t} set amount = (select max(amount) from {t} o where o.id <= {t}.id) where {where}",
    "subquery in the condition": "update {t} set status = 'x' where {where} and id in (select id - 1 from {t} where id % 4 = 0)",
    "self join": "update {t} e set amount = e2.amount * 2 from {t} e2 where e2.id = e.id + 1 and e.{where}",
    "from another table": "update {t} set status = v.s from (values (1, 'one'), (56, 'two'), (64, 'three')) v (i, s) where id = i and {where}",
    "common table expression": "with top as (select id from {t} where {where} order by amount desc, id limit 4) "
    "update {t} set status = 'top' from top where {t}.id = top.id",
    "several columns": "update {t} set (status, amount) = (select 'pair', 3) where {where} and id % 5 = 0",
    "default": "update {t} set status = default where {where} and id % 5 = 1",
    "time moved within": "update {t} set ts = ts + interval '1 minute' where {where}",
    "time moved to the lake's side": "update {t} set ts = '2024-02-29 12:00+00' where {where}",
    "time moved to the heap's side": "update {t} set ts = '2090-02-01 00:00+00' where {where}",
    "time swapped": "update {t} set ts = case when ts < '2050-01-01' then ts + interval '66 years' else ts - interval '66 years' end where {where}",
    "key column": "update {t} set id = id + 10000 where {where}",
    "both key columns": "update {t} set id = -id, ts = '2019-05-05' where {where} and id % 2 = 0",
}
DELETES = {
    "constant": "delete from {t} where {where} and id % 3 = 0",
    "all of it": "delete from {t} where {where}",
    "subquery": "delete from {t} where {where} and amount > (select avg(amount) from {t})",
    "using itself": "delete from {t} e using {t} e2 where e2.id = e.id + 1 and e2.amount > 10 and e.{where}",
    "using another table": "delete from {t} using (values (2), (57), (66)) v (i) where id = i and {where}",
    "common table expression": "with few as (select id from {t} where {where} order by id limit 3) "
    "delete from {t} where id in (select id from few)",
}
HOT, COLD = "timestamptz '2090-07-01 00:00+00'", "timestamptz '2024-02-10 00:00+00'"
COLD_TIME = datetime(2024, 1, 1, 12, tzinfo=UTC)
TIMES = {"hot": (HOT, HOT), "cold": (COLD, COLD), "both": (COLD, HOT)}


def filled(statement: str, tier: str) -> str:
    """The statement for rows of that tier, `{t}` left in it."""
    where = WHERE[tier].replace("id ", "{a}id ").replace("ts ", "{a}ts ")
    prefix = "e." if "e.{where}" in statement else ""
    condition = where.replace("{a}", prefix)
    filled_in = statement.replace("e.{where}", "{where}").replace("{where}", condition)
    return filled_in.replace("{ts}", TIMES[tier][0]).replace("{later}", TIMES[tier][1])


@pytest.mark.parametrize("tier", WHERE)
@pytest.mark.parametrize("returning", ["", " returning *"], ids=["plain", "returning"])
@pytest.mark.parametrize("case", INSERTS)
def test_insert(twins: Twins, case: str, tier: str, returning: str) -> None:
    twins.both(filled(INSERTS[case], tier) + ("" if case == "inside a query" else returning))


@pytest.mark.parametrize("tier", WHERE)
@pytest.mark.parametrize("returning", ["", " returning *"], ids=["plain", "returning"])
@pytest.mark.parametrize("case", CHANGES)
def test_update(twins: Twins, case: str, tier: str, returning: str) -> None:
    answers = twins.both(filled(CHANGES[case], tier) + returning)
    assert answers.rowcount > 0 or case == "nothing"


@pytest.mark.parametrize("tier", WHERE)
@pytest.mark.parametrize("returning", ["", " returning *"], ids=["plain", "returning"])
@pytest.mark.parametrize("case", DELETES)
def test_delete(twins: Twins, case: str, tier: str, returning: str) -> None:
    assert twins.both(filled(DELETES[case], tier) + returning).rowcount > 0


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("tier", WHERE)
def test_parameters(twins: Twins, tier: str, *, binary: bool) -> None:
    mark, where = "%b" if binary else "%t", WHERE[tier].replace("%", "%%")
    for _ in range(7):  # psycopg prepares a statement after some time
        twins.both(
            f"update {{t}} set amount = amount + {mark}::int4 where {where} and id <> {mark}::int8",
            (1, 51),
            binary=binary,
        )
    twins.both(f"update {{t}} set status = {mark} where {where} returning id, ts, status", ("it's",), binary=binary)
    twins.both(f"insert into {{t}} (ts, status) values ({mark}, {mark}) returning *", (COLD_TIME, "p"), binary=binary)
    twins.both(f"delete from {{t}} where id = any({mark}::int8[]) returning *", ([3, 51, 69],), binary=binary)


@pytest.mark.parametrize("time", ["2090-03-01 00:00+00", "2024-03-03 00:00+00", "2019-01-01 00:00+00"])
def test_copy_from(twins: Twins, time: str) -> None:
    twins.copy(
        "copy {t} (id, ts, status, amount) from stdin", [f"{8000 + i}\t{time}\tline {i}\t{i}.25" for i in range(50)]
    )
    twins.copy("copy {t} (ts) from stdin (format csv)", [time, "2090-01-01"])
    twins.copy(
        "copy {t} from stdin", [f'9000\t{time}\t\\\\N\t\\N\t{{"a": "\\\\\\\\"}}', "9001\t2090-01-01\ta\\tb\t0\t\\N"]
    )


def test_copy_from_in_binary(twins: Twins) -> None:
    with twins.connection.cursor().copy(
        "copy (select id + 7000, ts, status, amount, data from plain) to stdout (format binary)"
    ) as out:
        block = b"".join(bytes(part) for part in out)
    for name in ("events", "plain"):
        with twins.connection.cursor().copy(f"copy {name} from stdin (format binary)") as copy:  # pyright: ignore[reportCallIssue, reportArgumentType]
            copy.write(block)
    twins.compare()


@pytest.mark.parametrize("name", ["events", "_events"])
@pytest.mark.parametrize(
    "line", ["3\t2024-01-01 03:00+00", "63\t2090-01-01 03:00+00", "3\t2024-01-01 03:00+00\n63\t2090-01-01 03:00+00"]
)
def test_copy_of_a_key_that_exists_is_refused(twins: Twins, name: str, line: str) -> None:
    """In the lake only, in the heap, and both; into the relation and straight into the heap."""
    with pytest.raises(psycopg.errors.UniqueViolation), twins.connection.transaction():  # noqa: SIM117
        with twins.connection.cursor().copy(f"copy {name} (id, ts) from stdin") as copy:  # pyright: ignore[reportCallIssue, reportArgumentType]
            copy.write(f"901\t2024-02-02\n902\t2090-02-02\n{line}\n")
    twins.compare()


def test_bulk_load_into_the_heap(twins: Twins) -> None:
    """Straight into `_events`, which needs neither rule nor trigger for hot rows and marks the cold ones by itself."""
    times = ["2090-03-01", "2024-03-03", "2019-01-01"]
    lines = [f"{8000 + i}\t{times[i % 3]}\tline {i}\n" for i in range(300)]
    for name in ("_events", "plain"):
        with twins.connection.cursor().copy(f"copy {name} (id, ts, status) from stdin") as copy:  # pyright: ignore[reportCallIssue, reportArgumentType]
            copy.write("".join(lines))
        run(
            twins.connection,
            f"insert into {name} (id, ts) select 20000 + i, timestamptz '2024-01-05' from generate_series(1, 50) i",
        )
    twins.compare()
    for name in ("_events", "plain"):
        run(twins.connection, f"update {name} set status = 'changed' where id % 7 = 0 and id >= 8000")
        run(twins.connection, f"delete from {name} where id % 11 = 0 and id >= 8000")
    twins.compare()


def test_psql_says_the_same(twin_lake: Lake, postgres_programs: Programs, tmp_path: Path) -> None:
    script = """begin;
        insert into {t} (id, ts, status) values (901, '2024-02-01', 'cold'), (902, '2090-02-01', 'hot') returning *;
        update {t} set status = 'it''s' where id = 5 returning id, status;
        update {t} set status = 'both' where id in (8, 68);
        delete from {t} where id in (6, 66, 901);
        \\set who 7
        update {t} set amount = :who where id = :'who';
        copy {t} (id, ts, status) from stdin;
903\t2024-03-03\tcopied
904\t2090-03-03\tcopied
\\.
        select id, status, amount from {t} where id in (5, 6, 7, 65, 66) or id > 900 order by id;
        rollback;
        select count(*) from {t};\n"""
    said: list[str] = []
    for name in ("events", "plain"):
        command = [
            postgres_programs.bin_dir / "psql",
            "--no-psqlrc",
            "--set",
            "ON_ERROR_STOP=1",
            "--dbname",
            twin_lake.dsn,
        ]
        done = subprocess.run(
            command, input=script.format(t="public." + name), capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, "")
        said.append(done.stdout)
    assert said[0] == said[1]
    assert "COPY 2" in said[0]


def test_plpgsql_functions(twins: Twins) -> None:
    for name in ("events", "plain"):
        run(twins.connection, f"""
            create function change_{name}(wanted bigint[]) returns table (i bigint, found boolean, counted bigint)
            language plpgsql as $$
            declare
                r record;
                n bigint;
            begin
                for r in select * from {name} where id = any(wanted) order by id loop
                    update {name} set status = 'f ' || r.id, amount = r.amount + 1 where id = r.id and ts = r.ts;
                    get diagnostics n = row_count;
                    return query select r.id, true, n;
                end loop;
                delete from {name} where id = wanted[1] returning id into i;
                insert into {name} (id, ts) values (wanted[1], '2024-02-02') returning id into i;
                return query select i, exists (select from {name} where id = i), count(*) from {name};
            end $$""")  # fmt: skip
    twins.both("select * from change_{t}(array[3, 4, 62, 63])")


def test_do_blocks(twins: Twins) -> None:
    twins.both("""do $$
        begin
            for i in 1..80 by 9 loop
                update {t} set amount = amount * 2 where id = i;
                if not found then
                    raise exception 'row % was not found', i;
                end if;
            end loop;
            delete from {t} where id in (3, 63);
            update {t} set ts = case when id = 4 then '2090-02-02'::timestamptz else '2024-02-02' end where id in (4, 64);
            insert into {t} (id, ts) values (901, '2024-02-02'), (902, '2090-02-02');
            begin
                delete from {t};
                raise exception 'no';
            exception when raise_exception then
                null;
            end;
        end $$""")


TOUCH = """
create function touch_{name}() returns trigger language plpgsql as $$
begin
    if new.status not like 'touched%' then
        update public.{heap} set status = 'touched ' || new.status where id = new.id and ts = new.ts;
    end if;
    return null;
end $$;
create trigger a_touch after insert or update on public.{heap} for each row execute function touch_{name}()
"""


def test_a_trigger_on_the_heap_that_writes_the_same_row_again(twins: Twins) -> None:
    """It fires between the change and its mark, unless the mark's trigger comes first of all."""
    for name, heap in (("events", "_events"), ("plain", "plain")):
        run(twins.connection, TOUCH.format(name=name, heap=heap))
    twins.both("update {t} set status = 'x' where " + WHERE["both"])
    twins.both("insert into {t} (id, ts, status) values (901, '2024-02-02', 'n')")
    twins.both("update {t} set amount = 5 where id in (3, 63, 901)")


def test_triggers_on_other_tables(twins: Twins) -> None:
    for name in ("events", "plain"):
        run(twins.connection, f"""
            create table note_{name} (i bigint, s text);
            create function follow_{name}() returns trigger language plpgsql as $$
            begin
                update {name} set status = new.s where id in (new.i, new.i + 60);
                insert into {name} (id, ts, status) select id + 500, ts, 'followed' from {name} where id in (new.i, new.i + 60);
                delete from {name} where id in (new.i + 1, new.i + 61);
                return new;
            end $$;
            create trigger follow after insert on note_{name} for each row execute function follow_{name}()""")  # fmt: skip
    twins.both("insert into note_{t} values (1, 'both'), (70, 'hot'), (30, 'cold') returning *")


LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_transaction_reads_its_own_writes(twin_lake: Lake, level: str) -> None:
    with begun(twin_lake, level) as twins:
        for tier in WHERE:
            twins.both(filled("update {t} set amount = amount + 1 where {where}", tier))
            twins.both(filled("update {t} set amount = amount + 1 where {where} returning amount", tier))
        twins.both("delete from {t} where id in (1, 50, 61)")
        twins.both(
            "insert into {t} (id, ts) values (1, '2024-01-02 03:00+00'), (61, '2024-01-02 03:00+00') returning *"
        )
        twins.both("update {t} set ts = '2090-01-01 00:00+00' where id in (1, 61)")
        twins.both("update {t} set ts = '2024-01-01 01:00+00' where id in (1, 61)")
        twins.both("select count(*), sum(amount) from {t} where status <> 'x'")


@pytest.mark.parametrize("level", LEVELS)
def test_savepoints(twin_lake: Lake, level: str) -> None:
    with begun(twin_lake, level) as twins:
        first = twins.rows_of("plain")
        twins.connection.execute("savepoint a")
        twins.both("update {t} set status = 'gone soon' where id % 2 = 0")
        twins.both("delete from {t} where id % 5 = 0")
        second = twins.rows_of("events")
        twins.connection.execute("savepoint b")
        twins.both("update {t} set ts = '2024-03-31', status = 'again' where id % 3 = 0")
        twins.both("insert into {t} (ts) values ('2024-01-01'), ('2090-01-01')")
        twins.connection.execute("rollback to b")
        assert twins.rows_of("events") == second
        twins.both("update {t} set status = 'after' where id % 2 = 0")
        twins.connection.execute("rollback to a")
        assert twins.rows_of("events") == first
        twins.both("update {t} set status = 'at last' where id in (4, 64)")


@pytest.fixture
def untouched(twin_lake: Lake) -> Iterator[None]:
    """After the test the relation is as it was, and nothing is left in the overlay."""
    yield
    with begun(twin_lake) as twins:
        twins.compare()
    assert twin_lake.value(f"select count(*) from frostline_overlay.events_{twin_lake.table().id}") == 0


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("level", LEVELS)
def test_a_rollback_leaves_nothing(twin_lake: Lake, level: str) -> None:
    with begun(twin_lake, level) as twins:
        twins.both("update {t} set status = 'x', ts = ts + interval '1 second'")
        twins.both("delete from {t} where id % 2 = 0")
        twins.both("insert into {t} (ts) values ('2024-01-01'), ('2090-01-01')")


def refused(twins: Twins, statement: str) -> psycopg.Error:
    """Run a statement that must fail, and return its error; the transaction goes on."""
    with pytest.raises(psycopg.Error) as raised, twins.connection.transaction():
        run(twins.connection, statement)
    return raised.value


@pytest.mark.parametrize("time", ["2024-02-10", "2019-01-01", "2090-02-10"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into {t} (id, ts, status) values (901, '{time}', null)",
        "insert into {t} (id, ts, amount) values (901, '{time}', -1)",
        "insert into {t} (id, ts) values (null, '{time}')",
        "insert into {t} (id, ts) values (901, '{time}'), (901, '{time}')",
        "update {t} set status = null where id in (3, 63)",
        "update {t} set amount = -1 where id in (3, 63)",
        "update {t} set ts = null where id in (3, 63)",
        "update {t} set id = 4, ts = '2024-01-01 04:00+00' where id in (3, 63)",
        "update {t} set id = 64, ts = '2090-01-01 04:00+00' where id in (3, 63)",
        "insert into {t} (id, ts) values (3, '2024-01-01 03:00+00')",
        "insert into {t} (id, ts) values (63, '2090-01-01 03:00+00')",
    ],
)
def test_constraints_hold_for_all_rows(twins: Twins, statement: str, time: str) -> None:
    ours, plain = (refused(twins, statement.format(t=name, time=time)) for name in ("events", "plain"))
    assert ours.sqlstate == plain.sqlstate
    assert ours.diag.column_name == plain.diag.column_name
    assert ours.diag.table_name in ("events", "events_hot", "events_default")
    text = f"{ours.diag.message_primary} {ours.diag.message_detail} {ours.diag.message_hint}"
    assert not [word for word in ("_events", "frostline_", "overlay") if word in text], text
    twins.compare()


def test_a_key_that_is_only_in_the_lake_is_refused_with_a_hint(twins: Twins) -> None:
    error = refused(twins, "insert into events (id, ts) values (3, '2024-01-01 03:00+00')")
    assert error.sqlstate == "23505"
    assert (error.diag.schema_name, error.diag.table_name) == ("public", "events")
    assert "primary key of events" in (error.diag.message_primary or "")
    assert error.diag.message_hint == "Update the row instead: update public.events ..."


def test_bulk_loads_may_leave_the_look_up_out(twins: Twins) -> None:
    """With check_cold_keys off the lake is not asked: new keys go in, and a key of the lake is replaced, never doubled."""
    twins.nobody_answers()
    run(twins.connection, "set local frostline.check_cold_keys = off")
    insert = "insert into {t} (id, ts) select i, '2024-02-02' from generate_series(2001, 2100) i"
    for name in ("events", "plain"):
        run(twins.connection, insert.format(t=name))
    run(twins.connection, "insert into events (id, ts, status) values (3, '2024-01-01 03:00+00', 'newer')")
    run(twins.connection, "update plain set status = 'newer', amount = null, data = null where id = 3")
    twins.somebody_answers()
    twins.compare()
