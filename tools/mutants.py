"""Break the rules on purpose, one at a time, and see that the named tests notice.

The lists are tests/contract/conformance/mutations/ and tests/meta/guarantees/mutations.toml. Each
replaces one piece of a script or a module and names the tests of which one must fail then. It runs
in copies of the checkout, so that nothing here is touched. Exit status 1 if a mutation survived.

    python tools/mutants.py            all of them
    python tools/mutants.py 2.4 7      those of rule 2.4 and of all rules of section 7
    python tools/mutants.py R5 R7      those of two rules of docs/guarantees.md
    python tools/mutants.py --list
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("rqretry", "lua", "tests", "docs", "workers", "tools", "README.md", "pyproject.toml")
TESTS_FAILED = 1
"""The exit status of pytest that catches a mutation; others mean that it did not run."""

sys.path.insert(0, str(ROOT))
from tests.contract.conformance.mutations import MUTATIONS, Mutation  # noqa: E402
from tests.meta.guarantees.mutations import MUTATIONS as GUARANTEED  # noqa: E402


def main() -> int:
    """Run the chosen mutations and tell the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("rules", nargs="*", help="such as 2.4 or R5; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once; default 2")
    parser.add_argument("--list", action="store_true", help="show the mutations and run nothing")
    options = parser.parse_args()
    every = (*MUTATIONS, *GUARANTEED)
    chosen = [m for m in every if not options.rules or is_of(m.rule, options.rules)]
    if options.list:
        for mutation in chosen:
            print(f"{mutation.rule:6} {mutation.path}: {mutation.why}")
        return 0
    begun = time.monotonic()
    survivors = run_all(chosen, max(1, options.jobs))
    seconds = time.monotonic() - begun
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutations caught, in {seconds:.0f} s")
    for mutation in survivors:
        print(f"survived: {mutation.rule} {mutation.path}: {mutation.why}")
    return 1 if survivors else 0


def is_of(rule: str, wanted: Sequence[str]) -> bool:
    """Whether a rule, or its whole section, is among these."""
    return rule in wanted or rule.partition(".")[0] in wanted


def run_all(chosen: Sequence[Mutation], jobs: int) -> list[Mutation]:
    """Run mutations, each job in a copy of its own; answers those that survived."""
    copies: SimpleQueue[Path] = SimpleQueue()

    def survives(mutation: Mutation) -> bool:
        copy = copies.get()
        try:
            return not caught(mutation, copy)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="rqretry-mutants-") as folder:
        for number in range(jobs):
            copies.put(copied(Path(folder) / str(number)))
        with ThreadPoolExecutor(jobs) as pool:
            survived = list(pool.map(survives, chosen))
    return [mutation for mutation, alive in zip(chosen, survived, strict=True) if alive]


def copied(folder: Path) -> Path:
    """A checkout to break."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def caught(mutation: Mutation, copy: Path) -> bool:
    """Apply one mutation, run its tests, and put the piece back."""
    path = copy / mutation.path
    original = path.read_text()
    path.write_text(mutation.applied(original))
    begun = time.monotonic()
    try:
        status = run(mutation.tests, copy)
    finally:
        path.write_text(original)
    verdict = {TESTS_FAILED: "caught", 0: "SURVIVED"}.get(status, f"DID NOT RUN ({status})")
    seconds = time.monotonic() - begun
    print(f"{mutation.rule:6} {verdict:9} {seconds:5.1f} s  {mutation.why}", flush=True)
    return status == TESTS_FAILED


def run(tests: Sequence[str], copy: Path) -> int:
    """Run tests in the copy; pytest's exit status."""
    # Bytecode is off: a restored file of the same size and second would be taken from the cache.
    environment = ["env", "PYTHONDONTWRITEBYTECODE=1", f"PYTHONPATH={copy}"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "30", *tests]
    done = subprocess.run([*environment, *command], cwd=copy, capture_output=True, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
