"""The databases that tests get."""

import psycopg


def test_a_test_database_has_the_catalog(database: str) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute("select count(*) from pg_namespace where nspname = 'frostline'").fetchone()
    assert row == (1,)


def test_an_empty_database_has_no_catalog(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        row = connection.execute("select count(*) from pg_namespace where nspname = 'frostline'").fetchone()
    assert row == (0,)
