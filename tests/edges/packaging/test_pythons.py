"""tools/test_pythons.sh: which Pythons it finds, what it installs, and how it ends."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ("bash", "env", "sh", "dirname", "sort", "rm", "touch", "mkdir", "cp")
PYTHON = """#!/bin/bash
case "$*" in
  "-c import sys; print"*) echo {version} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*" install "*) echo {version} installs ;;
  "-m pytest "*) echo {version} tests "${{@: -1}}"; exit {status} ;;
esac
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the script in a checkout of its own, with these Pythons in pyenv: version to status."""
    programs, pythons = tmp_path / "bin", tmp_path / "pyenv" / "versions"
    (tmp_path / "tools").mkdir()
    for name in ("test_pythons.sh", "venv.sh"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    (tmp_path / "pyproject.toml").touch()
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(str(shutil.which(name)))

    def script(**statuses: int) -> "subprocess.CompletedProcess[str]":
        for version, status in statuses.items():
            python = pythons / version / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text(PYTHON.format(version=version.replace("_", "."), status=status))
            python.chmod(0o755)
        return subprocess.run(
            [tmp_path / "tools" / "test_pythons.sh", "tests/unit"],
            env={"PATH": str(programs), "PYENV_ROOT": str(tmp_path / "pyenv")},
            capture_output=True,
            text=True,
            check=False,
        )

    return script


def test_every_python_is_tested_and_installs_again_when_the_dependencies_change(
    run: Run, tmp_path: Path
) -> None:
    first = run(**{"2_7": 0, "3_10": 0, "3_12": 1, "3_13": 0})
    assert first.returncode == 1, first.stderr
    lines = first.stdout.splitlines()
    did = ("installs", "tests tests/unit")
    assert [line for line in lines if line.endswith(did)] == [
        "3.12 installs", "3.12 tests tests/unit", "3.13 installs", "3.13 tests tests/unit",
    ]  # fmt: skip
    assert lines[-1] == "tested on: 3.12 3.13; failed on: 3.12"

    again = run(**{"3_12": 0})
    assert "3.12 tests tests/unit" in again.stdout
    assert "installs" not in again.stdout

    complete = tmp_path / "build" / "pythons" / "3.13" / ".complete"
    newer = complete.stat().st_mtime + 10
    os.utime(tmp_path / "pyproject.toml", (newer, newer))
    assert "3.13 installs" in run().stdout


def test_where_there_is_no_python_nothing_is_said_to_be_tested(run: Run) -> None:
    done = run(**{"3_10": 0})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "no Python from 3.11 on is installed: neither on the PATH nor by pyenv\n"
    )
