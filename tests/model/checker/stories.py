"""A random run in one process on a virtual clock: publishers, workers that fail, die and come late.

It uses the verbs alone, so it takes a second for thousands of steps, and scripts that are broken on
purpose can take the place of the real ones.
"""

import random
from dataclasses import dataclass, field

from rqretry.core.receipt import Receipt
from tests.model.checker.history import OK, Effect, Operation
from tests.model.checker.journal import Journal
from tests.model.checker.records import Records
from tests.model.checker.snapshot import take_snapshot
from tests.support.builders import HOUR, SECOND, failure
from tests.support.world import VISIBILITY_MS, World

MAX_RETRIES = 1
_STEPS = ("publish", "lease", "lease", "settle", "settle", "settle", "wait", "late", "renew")


@dataclass
class Story:
    """What happens to group g of a world, as its clients and handlers tell it."""

    world: World
    seed: int
    history: list[Operation] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    _held: list[tuple[Receipt, Effect]] = field(default_factory=list)
    _over: list[tuple[Receipt, Effect]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with a group."""
        self._chance = random.Random(self.seed)
        self.world.subscribe(max_retries=MAX_RETRIES)

    def emit(self, steps: int = 120) -> None:
        """So many random steps, and then until everything has ended."""
        for _ in range(steps):
            getattr(self, self._chance.choice(_STEPS))()
        for _ in range(12):
            self.world.advance(HOUR)
            self.lose_all()
            while self.lease():
                self.succeed_all()

    def publish(self) -> None:
        """A batch, and sometimes its call once more, as after a lost reply."""
        ids = [f"m{len(self.history)}-{n}" for n in range(self._chance.randint(1, 4))]
        self.world.publish(*ids)
        if self._chance.random() < 0.3:
            self.world.publish(*ids, seq=self.world.seq)
        for id_ in ids:
            fields = {"topic": "t", "id": id_, "tier_confirmed": "memory"}
            self.history.append(Operation("1", len(self.history), "publish", OK, fields, 1, 2))

    def lease(self) -> bool:
        """Take some messages; were there any?"""
        prefer = self._chance.choice(("ready", "retry"))
        found = self.world.lease(self._chance.randint(1, 5), prefer=prefer)
        for id_, (lease_no, attempt) in zip(found.ids, found.numbers, strict=True):
            effect = Effect("t", "g", id_, attempt, lease_no, "1", 1)
            self.effects.append(effect)
            self._held.append((Receipt(id_, lease_no), effect))
        return bool(found.ids)

    def settle(self) -> None:
        """End one attempt in one of the ways."""
        if not self._held:
            return
        at = self._chance.randrange(len(self._held))
        receipt, effect = self._held.pop(at)
        how = self._chance.choice(("succeed", "fail", "fail", "release", "lose"))
        if how == "lose":
            self._over.append((receipt, effect))
            return
        effect.ended_ns = 2
        effect.outcome = {"succeed": "success", "fail": "failure"}.get(how, "postpone")
        if how == "succeed":
            self.world.succeed(receipt)
        elif how == "fail":
            self.world.fail(failure(receipt.id, receipt.lease_no))
        else:
            self.world.release(receipt)

    def succeed_all(self) -> None:
        """What is held succeeds, twice, as after a lost reply."""
        for receipt, effect in self._held:
            effect.ended_ns, effect.outcome = 2, "success"
            self.world.succeed(receipt)
            self.world.succeed(receipt)
        self._held.clear()

    def wait(self) -> None:
        """Time goes on, sometimes past deadlines; then what is due is seen to."""
        self.world.advance(self._chance.choice((SECOND, 11 * SECOND, VISIBILITY_MS + 1)))
        self.world.expire()
        self.world.promote()

    def lose_all(self) -> None:
        """Every worker is gone; what it held expires."""
        self._over += self._held
        self._held.clear()
        self.world.expire()
        self.world.promote()

    def late(self) -> None:
        """A worker that has lost its lease comes back and has succeeded."""
        if self._over:
            receipt, effect = self._over.pop(self._chance.randrange(len(self._over)))
            effect.ended_ns, effect.outcome = 2, "success"
            self.world.succeed(receipt)

    def renew(self) -> None:
        """A worker keeps what it holds; an earlier renewal comes after it."""
        if self._held:
            receipts = [receipt for receipt, _ in self._held]
            self.world.renew(*receipts)
            self.world.renew(*receipts, visibility_ms=VISIBILITY_MS // 2)

    def records(self, journal: Journal) -> Records:
        """The three records of the run."""
        return Records(
            namespace="test",
            history=self.history,
            effects=self.effects,
            journal=journal,
            final=take_snapshot(self.world.client, "test"),
        )
