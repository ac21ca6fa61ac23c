"""Break the rules on purpose, one at a time, and see that the named tests notice.

Nothing of the checkout is touched: what is wrong is put in while the tests run. Exit status 1 if a
case survived.

    python -m tests.meta.mutation.run            all of them
    python -m tests.meta.mutation.run 1.4 7      those of rule 1.4 and of all rules of section 7
    python -m tests.meta.mutation.run R5 R7      those of two rules of docs/guarantees.md
    python -m tests.meta.mutation.run --list
    python -m tests.meta.mutation.run --scripts lease    the generated ones of a script (scripts.py)
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.meta.mutation import scripts as generated
from tests.meta.mutation.applied import chosen, environment
from tests.meta.mutation.python_changes import ROOT
from tests.meta.mutation.rules import CASES

TESTS_FAILED = 1
"""The exit status of pytest that catches a mutation; others mean that it did not run."""


def main() -> int:
    """Run the chosen cases and report the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("rules", nargs="*", help="such as 1.4 or R5; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once; default 2")
    parser.add_argument("--list", action="store_true", help="show the cases and run nothing")
    parser.add_argument("--scripts", nargs="+", help="the generated ones of these scripts, or all")
    options = parser.parse_args()
    if options.scripts:
        return generated.main([*options.scripts, "--jobs", str(options.jobs)])
    numbers = chosen(options.rules)
    if options.list:
        for number in numbers:
            print(f"{CASES[number].rule:6} {CASES[number].broken}")
        return 0
    begun = time.monotonic()
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        caught = list(pool.map(is_caught, numbers))
    seconds = time.monotonic() - begun
    print(f"{sum(caught)} of {len(caught)} mutations caught, in {seconds:.0f} s")
    for number, noticed in zip(numbers, caught, strict=True):
        if not noticed:
            print(f"survived: {CASES[number].rule} {CASES[number].broken}")
    return 0 if all(caught) else 1


def is_caught(number: int) -> bool:
    """Whether a test of a case fails with it; a test that depends on time may miss it once."""
    return _is_caught(number) or _is_caught(number)


def _is_caught(number: int) -> bool:
    case, begun = CASES[number], time.monotonic()
    # The rewriting of assertions would import the package itself, without its changes.
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert", "plain", "--timeout", "30"]
    with environment(number) as variables:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *case.tests],
            cwd=ROOT, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
    verdict = {TESTS_FAILED: "caught", 0: "SURVIVED"}.get(done.returncode)
    seconds = time.monotonic() - begun
    shown = verdict or f"DID NOT RUN ({done.returncode})"
    print(f"{case.rule:6} {shown:9} {seconds:5.1f} s  {case.broken}{how(done.stdout)}", flush=True)
    return verdict == "caught"


def how(output: str) -> str:
    """The first line of the failure: was it the assertion, or an error that the case causes?"""
    lines = [line[4:] for line in output.splitlines() if line.startswith("E   ")]
    first = lines[0].strip() if lines else ""
    return f"  [{first[:110]}]"


if __name__ == "__main__":
    sys.exit(main())
