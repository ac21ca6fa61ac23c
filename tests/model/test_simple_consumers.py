"""Random simple consumers on the real scripts, in virtual time: fair, and N+1 deliveries.

They acknowledge, give back, change, release and crash, and are kept or made anew for each receive;
their group has 1 to 16 places. Who waits behind a backlog of the other kind, retries behind new
messages or new messages behind retries, is seen in a bounded number of receives.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from rqretry import App, Message
from rqretry.client import SimpleConsumer
from rqretry.core.errors import InvalidArgument
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.meta.mutation.cases.groups import IN_STEP
from tests.meta.mutation.python_changes import replaced
from tests.support.soundness import assert_sound

PLACES = [(1, 1), (1, 2), (4, 4), (1, 4), (2, 4), (1, 3)]
"""Topics, and partitions of each."""
LEFT_S = 600
MAX_POSTPONES = 2


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


class Shop:
    """A group with some places, its consumers, and what each message has been through."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.chance = lab, random.Random(seed)
        parts_of(lab.client).catalog.chance.seed(seed)
        topics, self.partitions = PLACES[seed % len(PLACES)]
        self.topics = [f"t{number}" for number in range(topics)]
        self.retries = self.chance.choice((1, 3, 16))
        self.anew = self.chance.choice((0.0, 0.3, 1.0))
        for topic in self.topics:
            lab.admin.create_topic(topic, partitions=self.partitions)
        self.consumers = [self.consumer() for _ in range(self.chance.choice((1, 1, 2)))]
        self.counted: Counter[str] = Counter()
        """Deliveries of each message that count."""
        self.released: Counter[str] = Counter()
        self.done: set[str] = set()

    def consumer(self) -> SimpleConsumer:
        return self.lab.client.simple_consumer(
            self.topics,
            group="g",
            create_group=True,
            max_retries=self.retries,
            max_postpones=MAX_POSTPONES,
        )

    def publish(self, count: int) -> set[str]:
        """In any of the topics."""
        topics = Counter(self.chance.choice(self.topics) for _ in range(count))
        published = (self.lab.publish_many(topic, range(n)) for topic, n in topics.items())
        return {id_ for ids in published for id_ in ids}

    def receive(self, most: int) -> list[Message[object]]:
        """By one of the consumers, which may be one that was never there before."""
        at = self.chance.randrange(len(self.consumers))
        if self.chance.random() < self.anew:
            self.consumers[at] = self.consumer()
        received = self.consumers[at].receive(most, invisible_duration=LEFT_S, wait=0)
        for message in received:
            assert message.id not in self.done, "it was acknowledged"
            self.counted[message.id] += 1
            assert message.attempt == self.counted[message.id] <= self.retries + 1
        return received

    def see_to(self, message: Message[object]) -> None:
        """Whatever consumers do."""
        consumer = self.chance.choice(self.consumers)
        how = self.chance.choice(("ack", "ack", "give back", "release", "change", "crash"))
        if how == "ack":
            consumer.ack(message)
            self.done.add(message.id)
        elif how == "give back":
            consumer.change_invisible_duration(message, 0)
        elif how == "change":
            consumer.change_invisible_duration(message, self.chance.randint(1, LEFT_S))
        elif how == "release":
            over = self.released[message.id] == MAX_POSTPONES
            try:
                consumer.release(message)
            except InvalidArgument:
                assert over
                return
            assert not over
            self.released[message.id] += 1
            self.counted[message.id] -= 1

    def given_back(self, ids: set[str]) -> set[str]:
        """Deliver all there is, and give each back at once."""
        received: list[Message[object]] = []
        while len(received) < len(ids):
            received += self.receive(32)
        for message in received:
            self.consumers[0].change_invisible_duration(message, 0)
        return {message.id for message in received}

    def drain(self) -> None:
        """Everything is acknowledged or dead in the end."""
        for _ in range(100 * (self.retries + 1)):
            received = self.receive(32)
            for message in received:
                self.see_to(message)
            if not received:
                self.lab.advance(LEFT_S)
                self.lab.reap()
                stats = self.lab.admin.stats(group="g")
                if not stats.ready + stats.retry + stats.inflight:
                    break
        dead = set(self.counted) - self.done
        assert self.lab.admin.stats(group="g").dead == len(dead)
        assert all(self.counted[id_] == self.retries + 1 for id_ in dead)


def longest_wait(lab: Lab, seed: int, *, behind: str) -> tuple[int, int]:
    """How many receives it takes to see what waits behind a backlog, and how many it may take."""
    shop = Shop(lab, seed)
    waiting, most = shop.chance.randint(1, 24), shop.chance.randint(4, 16)
    # Three times what one place takes, where the two kinds take turns; who is made anew draws lots.
    bound = 3 * 2 * -(-waiting // most) + (12 if shop.anew else 0)
    backlog = (bound + 1) * most
    if behind == "new":
        wanted = shop.given_back(shop.publish(waiting))
        shop.publish(backlog)
    else:
        shop.given_back(shop.publish(backlog))
        wanted = shop.publish(waiting)
    for number in range(1, bound + 1):
        wanted -= {message.id for message in shop.receive(most)}
        if not wanted:
            return number, bound
    return bound + 1, bound


@pytest.mark.parametrize("behind", ["new", "retries"])
@pytest.mark.parametrize("seed", range(len(PLACES)))
def test_what_waits_behind_a_backlog_is_seen_in_a_bounded_number_of_receives(
    server: EmbeddedRedis, seed: int, behind: str
) -> None:
    with Lab(server=server) as lab:
        took, bound = longest_wait(lab, seed, behind=behind)
        assert took <= bound


def test_one_shared_preference_of_all_places_is_found(server: EmbeddedRedis) -> None:
    with replaced(IN_STEP):
        for seed in range(len(PLACES)):
            with Lab(server=server) as lab:
                took, bound = longest_wait(lab, seed, behind="new")
            if took > bound:
                return
    pytest.fail("no seed notices that half of the places are asked for new messages alone")


@pytest.mark.parametrize("seed", range(4))
def test_a_message_is_delivered_n_plus_1_times_at_most_however_each_delivery_ends(
    server: EmbeddedRedis, seed: int
) -> None:
    with Lab(App(), server=server) as lab:
        shop = Shop(lab, seed)
        shop.publish(30)
        shop.drain()
        assert_sound(parts_of(lab.client).store, lab.namespace)
