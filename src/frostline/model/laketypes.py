"""The types of the lake: for each Iceberg type that a column can travel as, what every engine makes of it.

A lake type is kept as Iceberg writes it, so `decimal(12, 2)` has its digits in it; `of` finds its line in the table.
What is code and not a word stays where it runs, by the same names: `lake/ducktext` prints values, and
`tiers/proof/columnhash` hashes them.
"""

import re
from dataclasses import dataclass
from typing import LiteralString

from frostline.model.tiers import TierKind

MAX_DECIMAL_PRECISION = 38
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True)
class LakeType:
    """One line of the table. Conditions and expressions are Postgres SQL, with {0} for the value."""

    name: str
    """Iceberg's own, without the digits of a decimal."""
    duck: str
    """DuckDB's name for it."""
    spark: str
    """Spark's, as its schemas have it in JSON."""
    postgres: tuple[str, ...]
    """The types, by `pg_type.typname`, whose values it holds as they are. `numeric` only with digits that fit.
    The last is what a column becomes that no Postgres has made."""
    hashed: LiteralString = "{0}"
    """What a fingerprint hashes in place of the value."""
    unholdable: LiteralString | None = None
    """Which values it cannot hold."""
    infinity: int | None = None
    """What infinity is in a file, and its negative minus infinity. Postgres and the lake have them, Spark has not."""
    twins: LiteralString | None = None
    """Which values are equal to a more common one of other bits (negative zero, unusual NaN)."""
    widens_to: str | None = None
    """The other type that Iceberg lets a field of it become."""

    @property
    def refused_by_spark(self) -> LiteralString | None:
        """Which values Spark has none like."""
        infinite: LiteralString | None = None if self.infinity is None else "not isfinite({0})"
        return self.unholdable + " or " + infinite if self.unholdable and infinite else self.unholdable or infinite


# Values of eight bytes and floats are hashed as the bytes that are sent: Postgres' own hashes fold eight bytes to four,
# and take -0 for 0. Lake timestamps are 64 bits of microseconds since 1970; those of Postgres go on for 29 years more.
_TABLE = (
    LakeType("boolean", "boolean", "boolean", ("bool",), "{0}::int"),
    LakeType("int", "integer", "integer", ("int2", "int4"), widens_to="long"),
    LakeType("long", "bigint", "long", ("int8",), "int8send({0})"),
    LakeType(
        "float", "float", "float", ("float4",), "float4send({0})",
        twins=r"({0} = 0 and float4send({0}) <> '\x00000000') or ({0} = 'NaN' and float4send({0}) <> '\x7fc00000')",
        widens_to="double",
    ),
    LakeType(
        "double", "double", "double", ("float8",), "float8send({0})",
        twins=r"({0} = 0 and float8send({0}) <> '\x0000000000000000') "
        r"or ({0} = 'NaN' and float8send({0}) <> '\x7ff8000000000000')",
    ),
    LakeType("decimal", "decimal", "decimal", ("numeric",), '{0}::text collate "C"', unholdable="{0} = 'NaN'"),
    LakeType("date", "date", "date", ("date",), infinity=TierKind.DATE.highest),
    LakeType(
        "timestamp", "timestamp", "timestamp_ntz", ("timestamp",), "timestamp_send({0})",
        unholdable="({0} >= '294247-01-10 04:00:54.775807' and {0} < 'infinity')",
        infinity=TierKind.TIMESTAMP.highest,
    ),
    LakeType(
        "timestamptz", "timestamptz", "timestamp", ("timestamptz",), "timestamptz_send({0})",
        unholdable="({0} >= '294247-01-10 04:00:54.775807+00' and {0} < 'infinity')",
        infinity=TierKind.TIMESTAMPTZ.highest,
    ),
    LakeType("string", "varchar", "string", ("varchar", "text"), '{0}::text collate "C"'),
    LakeType("binary", "blob", "binary", ("bytea",)),
)  # fmt: skip
BY_NAME = {lake_type.name: lake_type for lake_type in _TABLE}
_BY_POSTGRES = {typname: lake_type for lake_type in _TABLE for typname in lake_type.postgres}


def of(lake_type: str) -> LakeType:
    """Its line in the table; KeyError for a type that is none of ours."""
    return BY_NAME[lake_type.partition("(")[0]]


def native(typname: str, precision: int | None = None, scale: int | None = None) -> str | None:
    """The lake type that holds the values of a Postgres type of its own as they are; None when there is none."""
    lake_type = _BY_POSTGRES.get(typname)
    if lake_type is None or lake_type.name != "decimal":
        return lake_type and lake_type.name
    if precision is None or scale is None or not 0 <= scale <= precision <= MAX_DECIMAL_PRECISION:
        return None
    return f"decimal({precision}, {scale})"


def duck_type(lake_type: str) -> str:
    """What DuckDB calls it, digits included."""
    return _spelled(of(lake_type).duck, lake_type)


def spark_type(lake_type: str) -> str:
    """What Spark calls it, digits included."""
    return _spelled(of(lake_type).spark, lake_type)


def _spelled(name: str, lake_type: str) -> str:
    return name + lake_type.removeprefix(of(lake_type).name)


def digits(lake_type: str) -> int | None:
    """How many digits a decimal has; None for other types."""
    known = decimal(lake_type)
    return known and known[0]


def decimal(lake_type: str) -> tuple[int, int] | None:
    """How many digits a decimal has, and how many of them behind the point; None for other types."""
    match = _DECIMAL.fullmatch(lake_type)
    return None if match is None else (int(match[1]), int(match[2]))


def can_become(old: str, new: str) -> bool:
    """Whether Iceberg lets a field of one type become the other."""
    if old == new or of(old).widens_to == new:
        return True
    narrow, wide = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return bool(narrow and wide and narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1]))
