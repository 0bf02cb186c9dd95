"""Checks of this machine: the programs and packages that Frostline runs on."""

import operator
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from frostline.observe.doctor.patient import Patient, Verdict, fault, ok, warning
from frostline.settings import FILE_NAME

OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;\s]*)")
_CONDITION = re.compile(r"(==|>=|<)(.+)")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}


def python(_: Patient) -> Verdict:
    """The Python that runs this."""
    return judge_python(sys.version_info[:3])


def judge_python(version: tuple[int, ...]) -> Verdict:
    """Whether a Python is new enough."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return fault(f"{text} is older than {wanted}", f"python{wanted} -m pip install frostline")
    return ok(text)


def frostline(_: Patient) -> Verdict:
    """The Frostline that runs this."""
    return ok(metadata.version("frostline"))


def settings(patient: Patient) -> Verdict:
    """Whether the settings can be read, and by whom the file can."""
    patient.read_settings()
    if patient.home is None:
        return ok("from the environment")
    file = patient.home / FILE_NAME
    return judge_mode(file, file.stat().st_mode)


def judge_mode(file: Path, mode: int) -> Verdict:
    """Whether others on the machine can read the passwords in the file."""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return warning(f"others may read {file}, which has passwords in it", f"chmod 600 {file}")
    return ok(str(file))


def java(_: Patient) -> Verdict:
    """The Java that Spark would be run with."""
    from frostline.pipeline.java import find_java, major  # noqa: PLC0415

    home = find_java()
    return ok(f"{major(home)} at {home}")


def spark(_: Patient) -> Verdict:
    """Whether Spark can be loaded, and is the one that Frostline was made for."""
    import pyspark  # noqa: PLC0415

    return judge_package("pyspark", pyspark.__version__)


def spark_runs(patient: Patient) -> Verdict:
    """Whether Spark starts and a Python task runs on it. Takes a while, so it is only done when asked for."""
    from frostline.pipeline import spark as pipeline_spark  # noqa: PLC0415
    from frostline.pipeline import tasks  # noqa: PLC0415

    chosen = patient.settings
    session = pipeline_spark.session(chosen.spark_master, memory=chosen.spark_memory)
    try:
        tasks.run(session, _nothing, [1, 2, 3], lambda _: None)
    finally:
        pipeline_spark.stop(session)
    return ok(f"a task ran on {chosen.spark_master}")


def _nothing(_: int) -> None:
    """A task of ours, which needs the package where it runs."""


def duckdb(_: Patient) -> Verdict:
    """Whether DuckDB and the extensions that the jobs need can be loaded, without a download."""
    import duckdb as package  # noqa: PLC0415

    from frostline.lake import duck  # noqa: PLC0415

    duck.connect(memory_limit="64MB", threads=1, temp_directory=tempfile.gettempdir()).close()
    return judge_package("duckdb", package.__version__)


def judge_package(name: str, version: str) -> Verdict:
    """Whether a package is of a version that this Frostline was made for."""
    wanted = required(name)
    if wanted is None or all(_holds(version, condition) for condition in wanted.split(",")):
        return ok(version)
    return warning(f"{version}, while Frostline was made for {wanted}", f"pip install '{name}{wanted}'")


def required(name: str) -> str | None:
    """The versions of a package that Frostline asks for, such as `>=4.1,<5`."""
    for requirement in metadata.requires("frostline") or ():
        match = _REQUIREMENT.match(requirement)
        if match and match[1] == name:
            return match[2] or None
    return None


def _holds(version: str, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    return match is None or _COMPARED[match[1]](_numbers(version), _numbers(match[2]))


def _numbers(version: str) -> tuple[int, ...]:
    """What counts in a version; zeros at the end do not."""
    numbers = [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
