"""Random conditions over a table with every type that postgres_fdw may push, and the nasty values of each."""

import uuid

from hypothesis import strategies as st
from tests.fixtures import lakeserver
from tests.fixtures.lakeserver import column

from frostline.model.tables import Column, Table
from frostline.model.tiers import TierKind
from frostline.model.types import Collation

TIMES = (
    "infinity",
    "-infinity",
    "2024-02-29 12:30:00",
    "2024-03-01 00:00:00",
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "0044-03-15 12:00:00 BC",
    "0001-01-01 00:00:00",
    "0001-12-31 23:59:59.5 BC",
    "4713-01-01 00:00:00 BC",
    "9999-12-31 23:59:59",
    "12024-06-30 01:02:03.000004",
    "2024-03-31 02:30:00",
    "0100-02-28 00:00:00",
)
TEXTS = (
    "",
    " ",
    "a",
    "A",
    "b",
    "B",
    "ab",
    "a_b",
    "a%b",
    "a\\b",
    "\\",
    "%",
    "_",
    "é",
    "e",
    "É",
    "z",
    "Z",
    "ä",
    "ß",
    "😀",
    "😀a",
    "a😀",
    "a'b",
    'a"b',
    "{a,b}",
    "NULL",
    "null",
    "\t",
    "a\nb",
    "a\rb",
    "\\N",
    "\\.",
    "-",
    "co-op",
    "coop",
    "Co-op",
    "\uff11",
    "10",
    "9",
    "\u00a0",
    "\u00a0a",
    "\u3000",
    "a ",
)


def day_of(time: str) -> str:
    """The date of a timestamp, both as text."""
    return time.split(maxsplit=1)[0] + (" BC" if time.endswith(" BC") else "")


def in_utc(time: str) -> str:
    """The timestamp with its zone."""
    return time if "infinity" in time else time.removesuffix(" BC") + "+00" + (" BC" if time.endswith(" BC") else "")


POOLS: dict[str, tuple[str, ...]] = {
    "bool": ("t", "f"),
    "int2": ("0", "1", "-1", "32767", "-32768", "7", "-7", "10"),
    "int4": ("0", "1", "-1", "2147483647", "-2147483648", "7", "-7", "10", "1000"),
    "int8": ("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "7", "-7", "9007199254740993"),
    "float4": (
        "0",
        "-0",
        "1",
        "-1",
        "0.1",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e-45",
        "3.4028235e+38",
        "16777216",
        "1.5",
    ),
    "float8": (
        "0",
        "-0",
        "1",
        "-1",
        "0.1",
        "NaN",
        "Infinity",
        "-Infinity",
        "5e-324",
        "1.7976931348623157e+308",
        "1e16",
        "1.5",
    ),
    "numeric": ("0", "0.00", "1.00", "-1.00", "0.01", "-0.01", "9999999999.99", "-9999999999.99", "1.50", "7.25"),
    "big": (
        "0",
        "0.5",
        "-0.5",
        "1.0000000001",
        "9999999999999999999999999999.9999999999",
        "-1.5",
        "12345678901234567890.1234567891",
    ),
    "text": TEXTS,
    "varchar": TEXTS,
    "bytea": ("\\x", "\\x00", "\\xff", "\\x6162", "\\x61", "\\x5c", "\\x0a"),
    "uuid": tuple(str(uuid.UUID(int=number)) for number in (0, 1, 2**127, 2**128 - 1, 12345678901234567890)),
    "date": tuple(dict.fromkeys(map(day_of, TIMES))),
    "timestamp": TIMES,
    "timestamptz": tuple(map(in_utc, TIMES)),
}
CASTS = {"big": "numeric", "varchar": "varchar"}


def lake_table(text_collation: Collation) -> Table:
    names = ("bool", "int2", "int4", "int8", "float4", "float8", "date", "timestamp", "timestamptz", "bytea", "uuid")
    columns = [column(number, f"c_{name}", name) for number, name in enumerate(names, start=10)]
    columns += [
        column(number, f"d_{name}", name)
        for number, name in enumerate(("int4", "float8", "date", "timestamp"), start=30)
    ]
    return lakeserver.table(
        3,
        [
            column(1, "id", "int4"),
            column(2, "key", "int8"),
            *columns,
            column(40, "c_numeric", "numeric", precision=12, scale=2),
            column(41, "d_numeric", "numeric", precision=12, scale=2),
            column(42, "c_big", "numeric", precision=38, scale=10),
            column(43, "c_text", "text", collation=text_collation),
            column(44, "d_text", "text", collation=text_collation),
            column(45, "c_varchar", "varchar", collation=text_collation),
            column(46, "b_text", "text", collation=Collation.BYTES, collation_name='pg_catalog."C"'),
            column(47, "c0", "int4"),
        ],
        "key",
        TierKind.BIGINT,
    )


def kind_of(each: Column) -> str:
    return "big" if each.name == "c_big" else each.pg_type.name


def quoted(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


SERVED = lake_table(Collation.BYTES)
BY_KIND = {kind: [each for each in SERVED.columns[2:] if kind_of(each) == kind] for kind in POOLS}
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
NEAR: dict[str, tuple[str, ...]] = {
    "int2": ("32768", "1.5", "-1.5", "1e0::float8", "99999999999999999999", "'NaN'::numeric"),
    "int4": ("2147483648", "1.5", "-0.5", "0.5::float8", "'Infinity'::numeric"),
    "int8": ("9223372036854775808", "-9223372036854775809", "1.5", "9007199254740992::float8", "1.5::float4"),
    "float4": ("0.1::float8", "0.1::float4", "1", "16777217", "'NaN'::float8", "1.5::numeric"),
    "float8": ("0.1::float4", "1", "9007199254740993", "'-Infinity'::float4", "0.1::numeric"),
    "numeric": (
        "1",
        "1.005",
        "-1.005",
        "10000000000",
        "-99999999999.5",
        "'NaN'::numeric",
        "'-Infinity'::numeric",
        "0.01::float8",
    ),
    "big": ("1", "1.00000000005", "1e40", "-1e40", "9999999999999999999999999999.99999999995", "0.5::float8", "1e-30"),
    "date": (
        "'2024-02-29 12:00'::timestamp",
        "'2024-03-01'::timestamp",
        "'infinity'::timestamp",
        "'-infinity'::timestamp",
    ),
    "timestamp": (
        "'294270-01-01'::timestamp",
        "'294247-01-10 04:00:54.775806'::timestamp",
        "'2024-03-01'::date",
        "'infinity'::date",
        "'0044-03-15 BC'::date",
        "'5874897-12-31'::date",
    ),
    "text": ("'a'::varchar",),
    "varchar": ("'a'::varchar(5)",),
}


@st.composite
def constants(draw: st.DrawFn, kind: str) -> str:
    if kind in NEAR and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(NEAR[kind]))
    text = draw(st.sampled_from(POOLS[kind]))
    return f"{quoted(text)}::{CASTS.get(kind, kind)}"


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(list(POOLS)))
    left, operator = draw(st.sampled_from(BY_KIND[kind])).name, draw(st.sampled_from(OPERATORS))
    right = draw(constants(kind))
    return f"{left} {operator} {right}" if draw(st.booleans()) else f"{right} {operator} {left}"


@st.composite
def two_columns(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["int4", "float8", "date", "timestamp", "numeric", "text"]))
    others = {
        "int4": ["c_int2", "c_int8"],
        "float8": ["c_float4", "c_int4"],
        "date": ["c_timestamp"],
        "numeric": ["c_big", "c_int4"],
        "text": ["c_varchar"],
    }
    right = draw(st.sampled_from([f"d_{kind}", *others.get(kind, [])]))
    return f"c_{kind} {draw(st.sampled_from(OPERATORS))} {right}"


@st.composite
def arrays(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(list(POOLS)))
    items = [draw(st.sampled_from(POOLS[kind])) for _ in range(draw(st.integers(0, 4)))]
    listed = [quoted(item) for item in items] + (["null"] if draw(st.booleans()) else [])
    left, cast = draw(st.sampled_from(BY_KIND[kind])).name, CASTS.get(kind, kind)
    operator = draw(st.sampled_from(("= any", "<> all", "< any", ">= all", "<> any")))
    return f"{left} {operator} (array[{', '.join(listed)}]::{cast}[])"


PATTERNS = st.text(alphabet="aAbe%_\\😀é", max_size=5)


@st.composite
def likes(draw: st.DrawFn) -> str:
    left = draw(st.sampled_from(["c_text", "c_varchar", "b_text"]))
    operator = draw(st.sampled_from(["like", "not like", "ilike", "~"]))
    pattern = draw(PATTERNS)
    return f"{left} {operator} {quoted('a' if operator == '~' else pattern)}"


@st.composite
def truths(draw: st.DrawFn) -> str:
    each = draw(st.sampled_from(SERVED.columns[2:])).name
    return draw(
        st.sampled_from(
            [
                f"{each} is null",
                f"{each} is not null",
                "c_bool",
                "not c_bool",
                "c_bool is not true",
                "c_bool is unknown",
            ]
        )
    )


@st.composite
def expressions(draw: st.DrawFn) -> str:
    number = draw(st.sampled_from(["1", "2", "3", "7", "10"]))
    integer = draw(st.sampled_from(["c_int2", "c_int4", "c_int8", "d_int4"]))
    return draw(
        st.sampled_from(
            [
                f"{integer} % {number} = 1",
                f"{integer} / {number} > 0",
                f"{integer} / {number} = -1",
                f"length(c_text) = {number}",
                "lower(c_text) = 'a'",
                "c_text || 'x' > 'ax'",
                f"c_numeric * 2 > {number}",
                "c_numeric + 0.001 = 1.501",
                f"c_numeric % {number} = 1.5",
                f"c_float8 * 2 > {number}",
                f"abs(c_numeric) = {number}",
                "date_trunc('month', c_timestamp) = '2024-03-01'",
                "extract(year from c_timestamp) = 2024",
                "c_timestamp + interval '1 day' > '2024-03-01'",
                "c_timestamptz > '2024-03-01 00:00:00+02'",
                "c_timestamp::date = '2024-03-01'",
                f"c_date + {number} > '2024-02-29'",
                f"c_date - '2024-02-29'::date = {number}",
                f"coalesce(c_int4, {number}) = {number}",
                f"case when c_bool then c_int4 else {number} end = {number}",
                "c_text is distinct from 'a'",
                f"c_int4 is not distinct from {number}",
                "c_float8 is distinct from 'NaN'",
                "c_int4::bigint > 2147483646",
                "c_varchar::text = 'a'",
                f"c_int2::text = '{number}'",
                f"key between {number} and 150",
                f"key = any (array[1, 2, 180, {number}])",
                "key > 100 and c_text >= 'a'",
                "c_text between 'a' and 'b'",
                "c_text in ('a', 'A', 'é', null)",
                "c_int4 not in (1, 7)",
                "substr(c_text, 1, 1) = 'a'",
                "c_bytea = '\\x61'",
                "md5(c_text) < '8'",
            ]
        )
    )


ATOMS = st.one_of(comparisons(), comparisons(), two_columns(), arrays(), likes(), truths(), expressions())
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=4,
)
KEYS = tuple(each.name for each in SERVED.columns[2:])
