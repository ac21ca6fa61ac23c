"""Rules broken on purpose: each mutation must make one of its tests fail (tools/mutants.py)."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One piece of the code, replaced by a wrong one."""

    rule: str
    """The row of docs/conformance.md that it breaks."""
    path: str
    find: str
    """Occurs exactly once in the file."""
    put: str
    why: str
    """What is wrong then, in words."""
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The broken file."""
        assert text.count(self.find) == 1, f"{self.path} has not exactly one {self.find!r}"
        return text.replace(self.find, self.put)


MUTATIONS = (
    Mutation(
        "2.5",
        "lua/include/wait_or_bury.lua",
        "attempt >= policy.max_attempts",
        "attempt > policy.max_attempts",
        "one delivery too many before the DLQ",
        ("tests/testing/test_ladder.py::test_a_whole_ladder_takes_less_than_a_second",),
    ),
)
