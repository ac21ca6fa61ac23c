"""Random resets to a time where a topic keeps what was consumed, on the real scripts.

What was consumed since that time, and is kept, is delivered exactly once more at attempt 1 (and its
retries); nothing else is, and to no other group.
"""

import random

import pytest

from rqretry.client import SimpleConsumer
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.testing.clock import START_MS
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.support.soundness import assert_sound

KEEP_S, GONE_S = 3600, 3660


class Group:
    """What one group has to get, and what it has done."""

    def __init__(self, lab: Lab, name: str, chance: random.Random) -> None:
        self.lab, self.name, self.chance = lab, name, chance
        self.owed: dict[str, int] = {}
        """Messages, each with its next attempt."""
        self.consumed: dict[str, float] = {}
        """Messages, each with when that was."""
        self.consumer: SimpleConsumer = lab.client.simple_consumer(
            "t", group=name, create_group=True
        )

    def work(self, most: int, fails: float) -> int:
        """Receive some; acknowledge them or give them back."""
        received = self.consumer.receive(most, wait=0)
        for message in received:
            assert message.attempt == self.owed[message.id]
            if self.chance.random() < fails:
                self.consumer.change_invisible_duration(message, 0)
                self.owed[message.id] += 1
            else:
                self.consumer.ack(message)
                del self.owed[message.id]
                self.consumed[message.id] = self.lab.now
        return len(received)

    def reset(self, to: float) -> None:
        """Go back to a time."""
        now = self.lab.now
        if any(GONE_S >= now - at >= KEEP_S for at in self.consumed.values()):
            return  # it is about to be forgotten
        again = {i for i, at in self.consumed.items() if at >= to and now - at < KEEP_S}
        assert self.lab.admin.reset(self.name, to=START_MS / 1000 + to) == len(again)
        for id_ in again:
            del self.consumed[id_]
            self.owed[id_] = 1

    def check(self) -> None:
        """Nothing is in flight between two steps."""
        stats = self.lab.admin.stats(group=self.name)
        assert stats.ready + stats.retry == len(self.owed)


@pytest.mark.parametrize(("seed", "partitions"), [(0, 1), (1, 4), (2, 1), (3, 4)])
def test_a_reset_delivers_exactly_once_more_what_was_consumed_since_and_is_kept(
    seed: int, partitions: int
) -> None:
    chance = random.Random(seed)
    with EmbeddedRedis() as server, Lab(server=server) as lab:
        lab.admin.create_topic("t", partitions=partitions)
        lab.admin.set_topic("t", keep=KEEP_S)
        groups = goes_back, goes_on = Group(lab, "g", chance), Group(lab, "h", chance)
        for _ in range(40):
            for id_ in lab.publish_many("t", range(chance.choice((0, 0, 1, 5)))):
                goes_back.owed[id_] = goes_on.owed[id_] = 1
            for group in groups:
                group.work(chance.randint(1, 8), 0.2)
            lab.advance(chance.choice((1, 60, 600, 1800)))
            lab.reap()
            if chance.random() < 0.3:
                goes_back.reset(lab.now - chance.choice((30, 700, 2500, 9000)) - 0.5)
            for group in groups:
                group.check()
        for group in groups:
            while group.work(32, 0.0):
                pass
            assert group.owed == {}
        assert_sound(parts_of(lab.client).store, lab.namespace)
