"""Break the rule that the environment names, in this process and in every one that it starts.

The runner puts `startup/` first on the path of Python, whose sitecustomize.py calls `apply`: before
anything of rqretry is imported.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.meta.mutation.case import Case, Symbol
from tests.meta.mutation.lua_changes import changed_scripts
from tests.meta.mutation.python_changes import ROOT, install
from tests.meta.mutation.rules import CASES

CASE, SCRIPTS = "TESTS_MUTATION", "TESTS_MUTATION_SCRIPTS"
STARTUP = Path(__file__).parent / "startup"


def apply() -> None:
    """Apply the case that the environment names."""
    case = CASES[int(os.environ[CASE])]
    scripts = os.environ.get(SCRIPTS)
    elsewhere = Symbol("protocol:script_directory", lambda _: lambda: Path(scripts or ""))
    install([*case.python, *([elsewhere] if scripts else [])])


@contextmanager
def environment(number: int) -> Iterator[dict[str, str]]:
    """The environment in which one of CASES is applied."""
    case: Case = CASES[number]
    path = os.pathsep.join([str(STARTUP), str(ROOT)])
    variables = {**os.environ, CASE: str(number), "PYTHONPATH": path}
    if not case.lua:
        yield variables
        return
    with tempfile.TemporaryDirectory(prefix="rqretry-mutation-") as folder:
        scripts = changed_scripts(case.lua, Path(folder))
        yield variables | {SCRIPTS: str(scripts)}


def chosen(rules: Sequence[str]) -> list[int]:
    """The numbers of the cases of these rules, or sections of rules; of all where none is named."""
    return [
        number
        for number, case in enumerate(CASES)
        if not rules or case.rule in rules or case.rule.partition(".")[0] in rules
    ]
