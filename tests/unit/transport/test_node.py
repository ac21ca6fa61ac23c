"""How often servers are asked whether they evict, and whose answer counts."""

from types import SimpleNamespace
from typing import Any

import pytest

from rqretry.core.errors import RqretryError, StoreUnavailable, UnsafeServer
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport import node as watched
from rqretry.transport.node import (
    LOOK_AGAIN_S,
    LOOK_EVERY_S,
    EvictionWatch,
    Node,
    Together,
    Topology,
)
from rqretry.transport.replies import TryAgain

GOOD, BAD = b"maxmemory_policy:noeviction\r\n", b"maxmemory_policy:volatile-ttl\r\n"
URLS = [RedisUrl.parse(f"redis://h{number}") for number in (1, 2)]


class Servers:
    """A watch of two servers, which answer as the test says, at the time that it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked, self.notified = 100.0, 0, 0
        self.answers: list[Any] = [[GOOD], [GOOD]]
        monkeypatch.setattr(watched, "time", SimpleNamespace(monotonic=lambda: self.now))
        topology = Topology(URLS[0], ScriptLibrary())
        topology.nodes = {url: Node(url, ScriptLibrary()) for url in URLS}
        self.nodes = list(topology.nodes.values())
        self.watch = EvictionWatch(topology, self._notice)

    def admit(self) -> RqretryError | None:
        """Publish; why that was refused."""
        procedure = self.watch.admit()
        try:
            effect = next(procedure)
            assert isinstance(effect, Together)
            assert [requests() for _, requests in effect.trips] == [[("INFO", "memory")]] * 2
            self.asked += 1
            procedure.send(self.answers)
        except StopIteration:
            return None
        except UnsafeServer as error:
            return error
        raise AssertionError("one look is enough")

    def _notice(self) -> None:
        self.notified += 1


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    return Servers(monkeypatch)


def test_servers_are_asked_before_the_first_publish_and_every_ten_seconds(servers: Servers) -> None:
    for _ in range(31):
        assert servers.admit() is None
        servers.now += 1
    assert servers.asked == 4
    assert LOOK_EVERY_S <= 15


def test_one_of_two_that_evicts_is_enough_and_is_asked_every_second(servers: Servers) -> None:
    assert servers.admit() is None
    servers.answers[1] = [BAD]
    servers.now += LOOK_EVERY_S
    for _ in range(20):
        assert "Redis at h2:6379 throws messages away" in str(servers.admit())
        servers.now += LOOK_AGAIN_S / 4
    assert (servers.asked, servers.notified) == (1 + 5, 1)
    servers.answers[1] = [GOOD]
    servers.now += LOOK_AGAIN_S
    assert servers.admit() is None
    assert (servers.watch.fault, servers.notified) == (None, 2)


def test_what_a_server_says_when_it_is_greeted_is_no_fault_where_it_keeps_all(
    servers: Servers,
) -> None:
    del servers.watch._topology.nodes[URLS[1]]
    for memory, fault in (
        (GOOD, None),
        (BAD, "Redis at h1:6379 throws messages away"),
        (GOOD, None),
    ):
        servers.watch.hear(memory)
        found = servers.watch.fault
        assert found is fault if fault is None else fault in str(found)


def test_what_cannot_be_asked_is_asked_again_the_next_time(servers: Servers) -> None:
    servers.answers[0] = TryAgain(StoreUnavailable("gone"), sent=False)
    with pytest.raises(TryAgain):
        servers.admit()
    servers.answers[0] = [GOOD]
    assert servers.admit() is None
    assert servers.asked == 2


def test_a_worker_asks_the_servers_that_it_has_called_since(servers: Servers) -> None:
    first, second = servers.nodes

    def look(answers: list[Any]) -> list[Node]:
        servers.now += LOOK_EVERY_S
        procedure = servers.watch.look(used=True)
        effect = next(procedure)
        assert isinstance(effect, Together)
        for node, _ in effect.trips:
            node.used = True  # by this very question
        with pytest.raises(StopIteration):
            procedure.send(answers)
        return [node for node, _ in effect.trips]

    assert look([]) == []
    first.used = second.used = True
    assert look([[GOOD], [GOOD]]) == [first, second]
    second.used = True
    assert look([[BAD]]) == [second]
    assert look([[GOOD], [GOOD]]) == [first, second]  # while one evicts
    assert look([]) == []
