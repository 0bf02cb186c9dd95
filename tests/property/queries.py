"""Random queries of one table, and of it joined with itself and with a small one; `{t}` stands for its name."""

import random
from dataclasses import dataclass

TIMES = (
    "2023-12-31 00:00+00",
    "2024-01-01 00:00+00",
    "2024-01-10 00:00+00",
    "2024-02-01 00:00+00",
    "2024-02-03 05:00+00",
    "2024-03-01 00:00+00",
    "2024-03-05 00:00+00",
    "2024-04-01 00:00+00",
    "2090-01-01 00:00+00",
    "2090-01-05 00:00+00",
    "-infinity",
    "infinity",
)
COLUMNS = ("id", "ts", "status", "code", "n", "amount", "mood", "tags", "doubled", "day", "flag")
SETTINGS = (
    "enable_seqscan",
    "enable_indexscan",
    "enable_bitmapscan",
    "enable_indexonlyscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_nestloop",
    "enable_hashagg",
    "enable_sort",
    "enable_incremental_sort",
    "enable_material",
    "enable_memoize",
    "enable_partition_pruning",
    "enable_parallel_append",
    "enable_gathermerge",
    "enable_parallel_hash",
    "enable_presorted_aggregate",
)
ON = ("enable_partitionwise_join", "enable_partitionwise_aggregate")
PARALLEL = (
    "min_parallel_table_scan_size = 0",
    "min_parallel_index_scan_size = 0",
    "parallel_setup_cost = 0",
    "parallel_tuple_cost = 0",
    "max_parallel_workers_per_gather = 3",
)
WRITES = (
    "update {t} e set n = s.k, status = 'joined' from small s where s.k = e.n and e.id % 3 = 0 returning e.id, e.ts, e.n, e.status, s.k",
    "update {t} e set amount = f.amount + 1 from {t} f where f.id = e.id + 1 and e.n > 2 returning e.id, e.amount, f.id",
    "delete from {t} e using {t} f where f.id = e.id + 30 and f.n = 3 returning e.*",
    "with u as (update {t} set n = n + 1 where id < 40 returning id, n) select u.id, u.n, e.n from u join {t} e using (id)",
    "update {t} e set n = (select max(n) from {t} x where x.ts < e.ts) where id % 5 = 1 returning e",
    "delete from {t} where (id, ts) in (select id, ts from {t} order by ts desc, id limit 7) returning id",
    "update {t} set ts = ts + interval '31 days' where id between 20 and 25 returning id, ts",
    "update {t} e set status = x.c::text from (select n, count(*) c from {t} group by n) x where x.n is not distinct from e.n and e.ts < '2024-02-10' returning e.id, e.status",
    "delete from {t} e where not exists (select from {t} f where f.id = e.id + 1) returning id",
    "update {t} e set n = 5 where exists (select from small s left join {t} f on f.n = s.k where f.id is null and s.k = e.id) returning e.id",
    "insert into {t} (id, ts, status, n) select id + 2000, ts, status, n from {t} where id % 4 = 0 returning id, ts, doubled",
)
"""Statements of which each changes rows of every tier."""
JOINS = ("join", "left join", "right join", "full join")


@dataclass(frozen=True)
class Question:
    """One query, how it is to be planned, and how it is to be sent."""

    text: str
    settings: tuple[str, ...]
    way: str


class Questions:
    """Makes questions, always the same of one seed."""

    def __init__(self, seed: int, *, spies: bool = False) -> None:
        self.choose = random.Random(seed)
        self.spies = spies

    def question(self) -> Question:
        return Question(self.query(), self.settings(), self.pick(("plain", "plain", "generic", "custom", "cursor")))

    def pick(self, among: tuple[str, ...]) -> str:
        return self.choose.choice(among)

    def chance(self, of: float) -> bool:
        return self.choose.random() < of

    def settings(self) -> tuple[str, ...]:
        switched_off = [f"{name} = off" for name in SETTINGS if self.chance(0.12)]
        switched_off += [f"{name} = on" for name in ON if self.chance(0.4)]
        switched_off += PARALLEL if self.chance(0.4) else ()
        switched_off += ["debug_parallel_query = on"] if self.chance(0.15) else []
        switched_off += ["work_mem = '64kB'"] if self.chance(0.2) else []
        switched_off += ["from_collapse_limit = 1", "join_collapse_limit = 1"] if self.chance(0.15) else []
        switched_off += ["constraint_exclusion = on"] if self.chance(0.1) else []
        switched_off += ["jit = on", "jit_above_cost = 0"] if self.chance(0.03) else []
        return tuple(switched_off)

    def time(self) -> str:
        return f"timestamptz '{self.pick(TIMES)}'"

    def atom(self, a: str) -> str:
        if self.spies and self.chance(0.2):
            return f"public.spy({a}.n)"
        number, other = self.choose.randrange(130), self.choose.randrange(130)
        return self.pick(
            (
                f"{a}.ts >= {self.time()}",
                f"{a}.ts < {self.time()}",
                f"{a}.ts between {self.time()} and {self.time()}",
                f"{a}.ts = {self.time()}",
                f"{a}.ts in ({self.time()}, {self.time()})",
                f"{a}.id = {number}",
                f"{a}.id in ({number}, {other})",
                f"{a}.id between {number} and {other}",
                f"{a}.id % 7 = {number % 7}",
                f"{a}.n = {number % 10}",
                f"{a}.n is null",
                f"{a}.n is not null",
                f"{a}.n is distinct from {number % 10}",
                f"{a}.status like 'row {number % 10}%'",
                f"{a}.status > 'row {number}'",
                f"{a}.code > 'B'",
                f"{a}.amount > {number}",
                f"{a}.mood = 'fine'",
                f"{a}.tags @> array[{number % 5}]",
                f"{a}.flag",
                f"not {a}.flag",
                f"{a}.flag is unknown",
                f"{a}.doubled > {number}",
                f"{a}.day >= '2024-02-02'",
                f"({a}.ts, {a}.id) > ({self.time()}, {number})",
                f"({a}.id, {a}.n) = ({number}, {number % 10})",
                f"({a}.n, {a}.id) is distinct from (1, {number})",
                f"coalesce({a}.n, 3) = 3",
                f"{a} is not null",
                f"{a}.* is null",
                f"{a}.ts + interval '1 day' > {self.time()}",
                f"{a}.n not in (1, 2)",
                f"{a}.n <> all (array[1, null, {number % 10}])",
                f"case when {a}.flag then {a}.n > 3 else {a}.id > {number} end",
                "true",
                "false",
                f"{a}.ts >= (select min(s.ts) from small s where s.k > {number % 12})",
                f"nullif({a}.n, 3) is null",
                f"{a}.id = any (select s.k from small s where s.k > {number % 12})",
            )
        )

    def condition(self, a: str, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.4):
            return self.atom(a)
        if self.chance(0.15):
            return f"not ({self.condition(a, depth - 1)})"
        if self.chance(0.15):
            return self.membership(a)
        return f"({self.condition(a, depth - 1)} {self.pick(('and', 'and', 'or'))} {self.condition(a, depth - 1)})"

    def membership(self, a: str) -> str:
        inner = self.condition("x", 1)
        not_ = self.pick(("", "not "))
        return self.pick(
            (
                f"{not_}exists (select from {{t}} x where x.id = {a}.id + 1 and {inner})",
                f"{not_}exists (select from {{t}} x where x.n = {a}.n and x.ts > {a}.ts and {inner})",
                f"{a}.id {not_}in (select x.id from {{t}} x where {inner})",
                f"{a}.n {not_}in (select x.n from {{t}} x where {inner})",
                f"({a}.id, {a}.ts) {not_}in (select x.id, x.ts from {{t}} x where {inner})",
                f"{a}.n {not_}in (select s.k from small s where s.ts < {a}.ts)",
                f"{a}.amount >= (select avg(x.amount) from {{t}} x where x.n = {a}.n and {inner})",
            )
        )

    def on(self, a: str, b: str) -> str:
        equal = self.pick(
            (
                f"{a}.id = {b}.id",
                f"{a}.id = {b}.id and {a}.ts = {b}.ts",
                f"{a}.n = {b}.n and {a}.id = {b}.id",
                f"{a}.id = {b}.id + 1",
                f"{a}.ts = {b}.ts",
            )
        )
        return equal if self.chance(0.6) else f"{equal} and {self.atom(self.pick((a, b)))}"

    def source(self) -> tuple[str, tuple[str, ...], str]:
        """FROM, its aliases that have the columns of the table, and WHERE."""
        where = self.condition("a")
        join, joined = self.pick(JOINS), self.on("a", "b")
        early = "=" if join == "full join" else "<"
        nearest = f"select * from {{t}} y where y.n = s.k and {self.condition('y', 1)} order by ts {self.pick(('', 'desc'))}, id"
        kind = self.pick(("union", "union all", "intersect", "except", "except all", "intersect all"))
        both = f"select * from {{t}} p where {self.condition('p', 1)} {kind} select * from {{t}} q where {self.condition('q', 1)}"
        more = f"left join {{t}} c on {self.on('b', 'c')} and {self.atom('c')}"
        return self.choose.choice(
            (
                ("{t} a", ("a",), where),
                ("{t} a", ("a",), where),
                (f"{{t}} a {join} {{t}} b on {joined}", ("a", "b"), self.pick((where, where, "true"))),
                (f"{{t}} a {join} small s on s.k = a.id", ("a",), self.pick((where, "s.k is null", "a.id is null"))),
                (
                    f"small s {join} {{t}} a on s.k = a.n and s.ts {early} a.ts",
                    ("a",),
                    self.pick((where, "a.id is null")),
                ),
                (f"small s cross join lateral ({nearest} limit 3) a", ("a",), where),
                (f"small s left join lateral ({nearest} limit 3) a on true", ("a",), self.pick((where, "true"))),
                (f"({both}) a", ("a",), where),
                (f"{{t}} a join {{t}} b on {joined} {more}", ("a", "b", "c"), where),
            )
        )

    def query(self) -> str:
        """One query of any shape."""
        text, aliases, where = self.source()
        a = self.choose.choice(aliases)
        column, some = self.pick(COLUMNS), self.choose.randrange(4)
        keys = ", ".join(f"{alias}.id, {alias}.ts" for alias in aliases)
        backwards = ", ".join(f"{alias}.ts desc, {alias}.id desc" for alias in aliases)
        filtered = f" filter (where {self.atom(a)})" if self.chance(0.4) else ""
        sets = self.pick(
            (
                "grouping sets (({0}.n), ({0}.mood, {0}.flag), ())",
                "rollup ({0}.n, {0}.mood, {0}.flag)",
                "cube ({0}.n, {0}.mood, {0}.flag)",
            )
        ).format(a)
        kept = self.pick(("", "materialized", "not materialized"))
        source = f"from {text} where {where}"
        x, y = self.condition("x", 1), self.condition("x", 1)
        return self.pick(
            (
                f"select {', '.join(f'{alias}.*' for alias in aliases)} {source}",
                f"select {', '.join(f'{alias}::text' for alias in aliases)} {source}",
                f"select count(*){filtered}, min({a}.ts), max({a}.ts), min({a}.id), max({a}.code), max({a}.n) {source}",
                f"select min({a}.ts) {source}",
                f"select {a}.n, count(*), sum({a}.amount){filtered}, count(distinct {a}.{column}) {source} group by {a}.n having count(*) > {some}",
                f"select {a}.n, {a}.mood, {a}.flag, count(*), max({a}.ts), grouping({a}.n, {a}.mood) {source} group by {sets}",
                f"select {keys}, row_number() over (partition by {a}.n order by {keys}), sum({a}.amount) over (order by {keys} rows 3 preceding), lag({a}.status) over (order by {keys}) {source}",
                f"select distinct on ({a}.n) {a}.n, {keys}, {a}.{column} {source} order by {a}.n, {keys}",
                f"select {keys}, {a}.{column} {source} order by {a}.ts, {keys} limit {some * 4 + 1} offset {some}",
                f"select {keys}, {a}.{column} {source} order by {backwards} limit {some * 4 + 1}",
                f"select distinct {a}.{column}::text {source}",
                f"with recursive r (id, ts, depth) as (select x.id, x.ts, 1 from {{t}} x where {x} and x.id < 12 union select x.id, x.ts, r.depth + 1 from r join {{t}} x on x.id = r.id * 2 and r.depth < 5) select * from r",
                f"with c as {kept} (select {a}.* {source}) select count(*), count(d.id) from c {self.pick(JOINS)} c d on c.id = d.id and c.ts = d.ts",
                f"select s.k, (select count(*) from {{t}} x where x.n = s.k and {x}), (select x.status from {{t}} x where x.n = s.k and x.ts >= s.ts order by x.ts, x.id limit 1), array(select x.id from {{t}} x where x.n = s.k and {y} order by x.id, x.ts) from small s",
                f"select a.id, a.ts, y.total from {{t}} a left join (select n, count(*) as total, max(ts) as latest from {{t}} x where {x} group by n) y on y.n = a.n and y.latest >= a.ts where {self.condition('a', 1)}",
            )
        )
