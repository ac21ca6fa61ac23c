"""All chance of a run, from one seed: every choice has a name, and can be left out.

A choice is drawn from the seed and its own name, not from a stream that all share, so leaving one
out does not change the others: a failing run can be made smaller (shrinking.py).
"""

import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

_WHOLE = 1 << 64


class Chance:
    """What happens by chance.

    Attributes:
        seed: What all of it follows from.
        taken: The names of what happened, in order.
    """

    def __init__(self, seed: int, kept: AbstractSet[str] | None = None) -> None:
        """`kept`: only these may happen; None for all."""
        self.seed = seed
        self.taken: dict[str, None] = {}
        self._kept = kept
        self._numbers: dict[str, int] = {}

    def happens(self, name: str, rate: float) -> bool:
        """Whether the thing of this name happens."""
        if rate <= 0 or self.share(name) >= rate:
            return False
        if self._kept is not None and name not in self._kept:
            return False
        self.taken[name] = None
        return True

    def share(self, name: str) -> float:
        """From 0 to 1, without 1."""
        return self._number(name) / _WHOLE

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number in these bounds."""
        return least + self._number(name) % (most - least + 1)

    def one(self, name: str, of: Sequence[T]) -> T:
        """One of these."""
        return of[self._number(name) % len(of)]

    def numbered(self, name: str) -> str:
        """The name with a number that counts up: 0, 1, 2 ..."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return f"{name}/{number}"

    def bytes(self, name: str, size: int) -> bytes:
        """Noise."""
        blocks = range(-(-size // 64))
        text = f"{self.seed}:{name}"
        return b"".join(blake2b(f"{text}:{n}".encode()).digest() for n in blocks)[:size]

    def source(self, name: str) -> random.Random:
        """A generator of its own."""
        return random.Random(f"{self.seed}:{name}")

    def _number(self, name: str) -> int:
        digest = blake2b(f"{self.seed}:{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")
