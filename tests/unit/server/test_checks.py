"""Which expressions the lake server evaluates for a CHECK: others can write into a table's metadata, too."""

import pytest
from tests.fixtures.lake_tables import column

from frostline.errors import FrostlineError
from frostline.model.lake_tables import Check
from frostline.server.writes import checks

COLUMNS = (column(1, "id", "bigint", "int8"), column(2, "note", "text", "text"))


def test_the_columns_that_the_checks_use_are_sent() -> None:
    held = checks.compiled(COLUMNS, (Check("a", "(length(note) > 1)"), Check("b", "note <> 'x' -- and nothing else")))
    assert (held.places, held.names, held.functions) == ((1,), ("a", "b"), {"length"})
    assert checks.compiled(COLUMNS, (Check("c", "1 > 0"),)).places == (0,)


@pytest.mark.parametrize(
    "expression",
    [
        "true) or (select true",
        "true) is false or (id > 0",
        "true) is false; drop table frostline.seam; select (true",
        "true) is false union select 1 where (true",
        "true) is false order by (true",
        "true) is false limit (select 1) offset (1",
        "true) is false group by id having (true",
        "true) is false for update; select (true",
        "exists (select from frostline.seam)",
        "evil.f(id)",
        "id operator(evil.>) 0",
        "note::evil.domain is null",
        "(note::regclass).pg_read_file is null",
        "lake_0 is not null",
        "lake_0.* is not null",
        "lake_0.id > 0",
        "ctid is not null",
        "nosuch > 0",
        "$1::text is null",
        "id > 0 /* ",
        "",
    ],
)
def test_what_is_no_condition_on_the_row_alone_is_refused(expression: str) -> None:
    with pytest.raises(FrostlineError):
        checks.compiled(COLUMNS, (Check("sly", expression),))


def test_a_column_of_somebodys_type_is_not_looked_at() -> None:
    mood = column(3, "mood", "public.mood", "mood", builtin=False)
    with pytest.raises(FrostlineError, match="does not evaluate CHECK 'sly'"):
        checks.compiled((*COLUMNS, mood), (Check("sly", "mood is not null"),))
