"""Values as text, as Postgres reads them."""

from datetime import date, timedelta

import duckdb
import pytest

from frostline.lake.ducktext import printed_value


def test_days_of_four_digits_are_as_in_iso_8601() -> None:
    days = [date.min + timedelta(number) for number in range(0, date.max.toordinal(), 97)]
    source = f"range({len(days)}) as r(i)"
    printed = printed_value("(date '0001-01-01' + (97 * i)::int)", "date")
    with duckdb.connect() as connection:
        texts = connection.execute(f"select {printed} from {source} order by i").fetchall()
    assert [text for (text,) in texts] == [day.isoformat() for day in days]


@pytest.mark.parametrize(
    ("day", "text"),
    [
        ("0001-01-01", "0001-01-01"),
        ("9999-12-31", "9999-12-31"),
        ("10000-01-01", "10000-01-01"),
        ("0001-12-31 (BC)", "0001-12-31 BC"),
        ("4713-01-01 (BC)", "4713-01-01 BC"),
        ("5874897-12-31", "5874897-12-31"),
        ("infinity", "infinity"),
        ("-infinity", "-infinity"),
    ],
)
def test_other_days_are_as_postgres_writes_them(day: str, text: str) -> None:
    printed = printed_value(f"date '{day}'", "date")
    with duckdb.connect() as connection:
        assert connection.execute(f"select {printed}").fetchall() == [(text,)]
