"""Checks of this machine: the programs and packages that Frostline runs on."""

import stat
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from frostline.embedded.doctor.finding import Verdict, fault, ok, warning
from frostline.embedded.doctor.patient import Patient
from frostline.settings import FILE_NAME

OLDEST_PYTHON = (3, 11)


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

    found = find_java()
    return ok(f"{major(found)} at {found}")


def spark(_: Patient) -> Verdict:
    """Whether Spark can be loaded, and is the one that Frostline was made for."""
    import pyspark  # noqa: PLC0415

    return judge_package("pyspark", pyspark.__version__)


def spark_runs(patient: Patient) -> Verdict:
    """Whether Spark starts and a Python task runs on it. Takes a while, so it is only done when asked for."""
    from frostline.pipeline import spark as pipeline_spark  # noqa: PLC0415
    from frostline.pipeline.apart import apart  # noqa: PLC0415

    chosen = patient.settings
    session = pipeline_spark.session(chosen.spark_master, memory=chosen.spark_memory)
    try:
        context = session.sparkContext
        squares = apart(lambda: context.parallelize([1, 2, 3], 2).map(lambda one: one * one).collect())
    finally:
        pipeline_spark.stop(session)
    if squares != [1, 4, 9]:
        return fault(f"a task on {chosen.spark_master} gave {squares}", "pip install --force-reinstall frostline")
    return ok(f"a task ran on {chosen.spark_master}")


def duckdb(_: Patient) -> Verdict:
    """Whether DuckDB and the extensions that the jobs need can be loaded, without a download."""
    import duckdb as package  # noqa: PLC0415

    from frostline.lake import duck  # noqa: PLC0415

    duck.connect(memory_limit="64MB", threads=1, temp_directory=tempfile.gettempdir()).close()
    return judge_package("duckdb", package.__version__)


def judge_package(name: str, version: str) -> Verdict:
    """Whether a package is of the version that this Frostline was tested with."""
    wanted = pinned(name)
    if wanted is not None and version != wanted:
        return warning(f"{version}, while Frostline was tested with {wanted}", f"pip install {name}=={wanted}")
    return ok(version)


def pinned(name: str) -> str | None:
    """The version of a package that Frostline asks for."""
    for requirement in metadata.requires("frostline") or ():
        package, _, version = requirement.partition(";")[0].strip().partition("==")
        if package.partition("[")[0] == name:
            return version or None
    return None
