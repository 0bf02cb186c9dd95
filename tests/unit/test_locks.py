"""The lock files: every package in them has hashes, names no place, and is what pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / name for name in ("requirements.lock", "requirements-build.lock", "requirements-java.lock")]
_ENTRY = re.compile(
    r"^([a-z0-9.-]+)==(\S+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def entries(lock: Path) -> dict[str, str]:
    text = lock.read_text()
    rest = _ENTRY.sub("", text)
    assert [line for line in rest.splitlines() if not line.startswith("#")] == [], "nothing else is in the file"
    return {name: version for name, version, _ in _ENTRY.findall(text)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_of_a_lock_has_hashes(lock: Path) -> None:
    assert entries(lock)
    assert "://" not in lock.read_text()


def test_what_pyproject_asks_for_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = {
        LOCKS[0]: [*project["project"]["dependencies"], *extras["dev"]],
        LOCKS[1]: project["build-system"]["requires"],
        LOCKS[2]: extras["java"],
    }
    for lock, requirements in wanted.items():
        locked = entries(lock)
        for requirement in requirements:
            name, exact = re.split(r"[\[<>=]", requirement)[0], requirement.partition("==")[2]
            assert name in locked
            assert not exact or locked[name] == exact
