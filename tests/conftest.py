"""Fixtures live in `tests/fixtures`; this only names them."""

pytest_plugins = [
    "tests.fixtures.lakeserver",
    "tests.fixtures.cluster",
    "tests.fixtures.command",
    "tests.fixtures.conversion",
    "tests.fixtures.golden",
    "tests.fixtures.postgres",
    "tests.fixtures.spark",
    "tests.fixtures.tables",
    "tests.fixtures.lake",
    "tests.fixtures.own_server",
    "tests.fixtures.pair",
    "tests.fixtures.seaweed",
    "tests.fixtures.s3",
    "tests.fixtures.twins",
    "tests.fixtures.sparkrows",
]

collect_ignore = ["interop"]
"""Needs jars that `make interop` fetches."""
