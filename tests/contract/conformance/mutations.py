"""Rules broken on purpose: each mutation must make one of its tests fail (tools/mutants.py).

They are in mutations/*.toml, by the sections of semantics.md.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "mutations"


class Mutation(NamedTuple):
    """One piece of the code, replaced by a wrong one."""

    rule: str
    """The row of docs/conformance.md, or of docs/guarantees.md, that it breaks."""
    path: str
    find: str
    """Occurs exactly once in the file."""
    put: str
    why: str
    """What is wrong then, in words."""
    tests: tuple[str, ...]
    """The narrowest tests of which at least one must fail, as pytest takes them."""

    def applied(self, text: str) -> str:
        """The broken file."""
        assert text.count(self.find) == 1, f"{self.path} has not exactly one {self.find!r}"
        return text.replace(self.find, self.put)


def read_mutations(path: Path) -> list[Mutation]:
    """Those of a file."""
    tables = tomllib.loads(path.read_text())["mutation"]
    return [Mutation(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def _number(mutation: Mutation) -> tuple[int, ...]:
    return tuple(map(int, mutation.rule.split(".")))


MUTATIONS = tuple(
    sorted((m for path in FOLDER.glob("*.toml") for m in read_mutations(path)), key=_number)
)
