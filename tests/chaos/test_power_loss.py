"""A power loss: everything that was not synced is gone (docs/guarantees.md)."""

import random
import time
from typing import Any

import pytest

from rqretry import Client, OutgoingMessage
from rqretry.core.errors import ConfigError
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import missing, program
from tests.support.faults.power import NoCompiler, PoweredRedis
from tests.support.servers import SERVERS, ServerBinary, available_servers
from tests.support.soundness import assert_sound

pytestmark = pytest.mark.chaos

NAMESPACE = "test"


@pytest.fixture(params=list(SERVERS))
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Each server."""
    return program(request.param)


def powered(appendfsync: str, binary: ServerBinary, *extra: str) -> PoweredRedis:
    try:
        return PoweredRedis(appendfsync, *extra, binary=binary.path)
    except NoCompiler as error:
        missing(str(error))
        raise


def publish_for(client: Client, seconds: float, **options: Any) -> list[tuple[str, float]]:
    """Ids that were accepted, and when."""
    accepted: list[tuple[str, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(accepted) < 20:
        id_ = client.publish("t", len(accepted), **options)
        accepted.append((id_, time.monotonic()))
    return accepted


def survivors(server: EmbeddedRedis) -> set[str]:
    """What is there, received message by message; everything agrees with itself."""
    with Client(server.url, namespace=NAMESPACE) as client:
        assert_sound(parts_of(client).store, NAMESPACE)
        consumer = client.simple_consumer("t", group="g")
        found: set[str] = set()
        while messages := consumer.receive(32, wait=0):
            found |= {message.id for message in messages}
            consumer.ack(messages)
        return found


def prepared(server: EmbeddedRedis) -> Client:
    client = Client(server.url, namespace=NAMESPACE)
    client.admin.create_topic("t")
    client.simple_consumer("t", group="g", create_group=True).receive(1, wait=0)
    return client


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_with_always_a_power_loss_takes_nothing_that_was_accepted(
    binary: ServerBinary, seed: int | None
) -> None:
    with powered("always", binary) as machine:
        with prepared(machine.embedded) as client:
            accepted = publish_for(client, 0.2)
            machine.lose_power(None if seed is None else random.Random(seed))
        machine.embedded.start()
        assert {id_ for id_, _ in accepted} <= survivors(machine.embedded)


def test_with_everysec_it_takes_the_last_messages_and_no_others(binary: ServerBinary) -> None:
    with powered("everysec", binary) as machine:
        with prepared(machine.embedded) as client:
            accepted = publish_for(client, 1.6)
            machine.lose_power()
        machine.embedded.start()
        found = survivors(machine.embedded)
    kept = [id_ in found for id_, _ in accepted]
    lost = kept.count(False)
    assert kept == [True] * (len(kept) - lost) + [False] * lost  # a suffix: nothing in the middle
    assert lost < len(kept)  # a second is over: some were synced


def test_the_recorder_sees_what_is_not_synced(binary: ServerBinary) -> None:
    """Without any sync everything goes: the tests above can fail."""
    with powered("no", binary) as machine:
        with prepared(machine.embedded) as client:
            client.publish("t", 1)
            gone = machine.lose_power()
        assert gone > 1000
        machine.embedded.start()
        with Client(machine.embedded.url, namespace=NAMESPACE) as client:
            assert client.admin.topics() == []


def test_a_cut_inside_a_script_takes_the_whole_script(binary: ServerBinary) -> None:
    with powered("no", binary) as machine:
        with prepared(machine.embedded) as client:
            ids = [client.publish("t", n) for n in range(5)]
            machine.embedded.kill()  # before the client is closed, which writes too
        (journal,) = [path for path in machine.journals() if path.stat().st_size]
        with journal.open("r+b") as file:
            file.truncate(journal.stat().st_size - 20)
        machine.embedded.start()
        assert survivors(machine.embedded) == set(ids[:4])


def test_half_a_script_that_was_cut_off_the_file_does_not_come_back(binary: ServerBinary) -> None:
    """Redis leaves it in the file, and executes it when the file is loaded once more."""
    with powered("no", binary) as machine:
        with prepared(machine.embedded) as client:
            ids = [client.publish("t", n) for n in range(3)]
            machine.embedded.kill()
        (journal,) = [path for path in machine.journals() if path.stat().st_size]
        with journal.open("r+b") as file:
            file.truncate(journal.stat().st_size - 20)
        machine.repair()
        machine.embedded.start()
        with Client(machine.embedded.url, namespace=NAMESPACE) as client:
            ids[2] = client.publish("t", 2)
            machine.embedded.kill()
        machine.embedded.start()
        assert survivors(machine.embedded) == set(ids)


def test_disk_durability_survives_a_power_loss_under_everysec() -> None:
    """WAITAOF: what `durability="disk"` confirmed is synced, whatever appendfsync says."""
    able = [b for b in available_servers() if tuple(map(int, b.version.split(".")[:2])) >= (7, 2)]
    if not able:
        missing("durability 'disk' needs WAITAOF, and no Redis 7.2 or newer is here")
    with powered("everysec", able[0]) as machine:
        if able[0].version.startswith("8.0."):
            refused_before_it_is_stored(machine)
            return
        with prepared(machine.embedded) as client:
            accepted = publish_for(client, 0.2, durability="disk")
            unconfirmed = client.publish_many("t", [OutgoingMessage(body=0)] * 3)
            machine.lose_power()
        machine.embedded.start()
        found = survivors(machine.embedded)
    assert {id_ for id_, _ in accepted} <= found
    assert len(unconfirmed) == 3


def refused_before_it_is_stored(machine: PoweredRedis) -> None:
    """Valkey 8.0 confirms before the file is synced: nothing may rest on its word."""
    with prepared(machine.embedded) as client:
        with pytest.raises(ConfigError, match=r"Valkey 8\.0\.\d+ at .* confirms before the file"):
            client.publish("t", 1, durability="disk")
        assert client.admin.stats("t").topics[0].stored == 0


def test_the_same_machine_works_on_after_it(binary: ServerBinary) -> None:
    with powered("always", binary) as machine:
        kept: set[str] = set()
        prepared(machine.embedded).close()
        for seed in range(3):
            with Client(machine.embedded.url, namespace=NAMESPACE) as client:
                kept |= {client.publish("t", seed), client.publish("t", seed, id=f"own-{seed}")}
                machine.lose_power(random.Random(seed))
            machine.embedded.start()
        assert survivors(machine.embedded) == kept
