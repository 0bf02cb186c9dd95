"""The Spark connector: a managed table as a DataFrame, both tiers at one point in time."""

from frostline.spark.frames import read, read_many, reading, release, view
from frostline.spark.source import register
from frostline.spark.writes import Written, write

__all__ = ["Written", "read", "read_many", "reading", "register", "release", "view", "write"]
