"""What do the 22 queries of TPC-H take through the relation at scale factor 1?

The same as `tpch`, with ten times the rows. It takes as long as many other cases together.
"""

from collections.abc import Iterator

from benchmarks.cases import tpch
from benchmarks.sample import Sample
from benchmarks.world import Lab

QUESTIONS = tpch.questions("TPC-H at scale factor 1")


def measure(lab: Lab, scale: float) -> Iterator[Sample]:
    """Ten times what is usual."""
    return tpch.measure(lab, 10 * scale)
