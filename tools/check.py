"""The checks of a minute: lint of what changed, the unit tests, the script tests on one server.

What changed is what differs from `main`, or on `main` itself from the last commit. Everything else,
and every other server, is for `make lint` and `make test`.

    python tools/check.py              all of it
    python tools/check.py --lint       the changed files alone, without any test
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON_FOLDERS = (
    "rqretry/", "tests/", "typing_tests/", "workers/", "benchmarks/", "tools/", "docs/examples/",
)  # fmt: skip
TESTS = ("tests/unit", "tests/lua")
SERVER = "redis-7"
TEST_OPTIONS = ("-q", "-n", "3", "--dist", "worksteal", "--server", SERVER)


def main() -> int:
    """Run the checks one after the other; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--lint", action="store_true", help="the changed files alone")
    options = parser.parse_args()
    begun = time.monotonic()
    commands = lint_commands(changed_files())
    if not options.lint:
        commands.append([sys.executable, "-m", "pytest", *TEST_OPTIONS, *TESTS])
    for command in commands:
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            print(f"check: failed: {shown(command)}")
            return 1
    print(f"check: passed in {time.monotonic() - begun:.0f} s; `make lint test` checks everything")
    return 0


def lint_commands(changed: Sequence[str]) -> list[list[str]]:
    """What looks at these files."""
    python = [name for name in changed if name.endswith(".py") and name.startswith(PYTHON_FOLDERS)]
    commands = []
    if python:
        commands += [
            [str(BIN / "ruff"), "check", "--quiet", *python],
            [str(BIN / "ruff"), "format", "--quiet", "--check", *python],
            [str(BIN / "mypy"), "--no-error-summary", *python],
        ]
    if any(name.startswith("rqretry/") for name in python):
        commands.append([str(BIN / "lint-imports")])
    if any(name.endswith(".lua") for name in changed):
        commands.append([sys.executable, "tools/lint_lua.py"])
    return commands


def changed_files() -> list[str]:
    """Files that differ from `main`, or from the last commit on it, and still exist."""
    base = git("merge-base", "HEAD", "main")
    if base == git("rev-parse", "HEAD"):
        base = ["HEAD~1"]
    names = {
        *git("diff", "--name-only", *(base or ["HEAD"])),
        *git("ls-files", "--others", "--exclude-standard"),
    }
    return sorted(name for name in names if (ROOT / name).is_file())


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def shown(command: Sequence[str]) -> str:
    """A command in one line."""
    parts = [Path(command[0]).name, *command[1:]]
    return " ".join(parts[:8]) + (" ..." if len(parts) > 8 else "")


if __name__ == "__main__":
    sys.exit(main())
