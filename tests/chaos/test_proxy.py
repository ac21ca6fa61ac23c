"""The fault proxy itself: each fault does what it says, to real requests before a real server."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
import redis

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import ServerOf, emptied
from tests.support.faults.proxy import FaultProxy
from tests.support.faults.resp import ReplyReader, RequestReader, frame_end
from tests.support.faults.rules import Fault, Rule, random_rules, verb_of, verbs
from tests.support.servers import SERVERS

INCR = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"
PING = b"*1\r\n$4\r\nPING\r\n"


@pytest.fixture(scope="session", params=list(SERVERS))
def running(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    return server_of(request.param)


@pytest.fixture(params=["unix", "tcp"])
def proxy(request: pytest.FixtureRequest, running: EmbeddedRedis) -> Iterator[FaultProxy]:
    emptied(running)
    with FaultProxy(running, tcp=request.param == "tcp") as proxy:
        yield proxy


class Line:
    """A plain socket to the proxy."""

    def __init__(self, proxy: FaultProxy, seconds: float = 10.0) -> None:
        if proxy.url.startswith("unix"):
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(proxy.url.removeprefix("unix://").partition("?")[0])
            except OSError:
                self.socket.close()
                raise
        else:
            place = proxy.url.removeprefix("redis://").partition("/")[0]
            host, _, port = place.partition(":")
            self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(seconds)
        self.replies = ReplyReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> bytes:
        """The reply; what came of it where the connection ended before its end."""
        self.socket.sendall(request)
        return self.read()

    def read(self) -> bytes:
        got = b""
        while data := self.socket.recv(1 << 16):
            got += data
            for reply in self.replies.feed(data):
                return reply.raw
        return got


def count(server: EmbeddedRedis) -> int:
    """How often INCR was executed."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        return int(client.get("n") or 0)


def test_without_rules_everything_passes_and_is_counted(
    proxy: FaultProxy, running: EmbeddedRedis
) -> None:
    with Line(proxy) as line:
        assert [line.ask(INCR), line.ask(INCR), line.ask(PING)] == [
            b":1\r\n",
            b":2\r\n",
            b"+PONG\r\n",
        ]
    assert proxy.seen == proxy.passed == {"INCR": 2, "PING": 1}
    assert proxy.bytes_up == 2 * len(INCR) + len(PING)
    assert proxy.bytes_down == len(b":1\r\n:2\r\n+PONG\r\n")
    assert proxy.struck == []


@pytest.mark.parametrize(
    ("fault", "executed", "got"),
    [
        (Fault.DROP_REQUEST, 0, b""),
        (Fault.DROP_REPLY, 1, b""),
        (Fault.CUT_REQUEST, 0, b""),
        (Fault.HALF_CLOSE, 1, b""),
        (Fault.DELAY_REQUEST, 1, b":1\r\n"),
        (Fault.DELAY_REPLY, 1, b":1\r\n"),
        (Fault.REPLAY, 2, b":1\r\n"),
        (Fault.THROTTLE, 1, b":1\r\n"),
        (Fault.STALL, 1, b":1\r\n"),
        (Fault.HALF_CLOSE_SERVER, 1, None),
    ],
)
def test_a_fault_does_what_it_says(
    proxy: FaultProxy, running: EmbeddedRedis, fault: Fault, executed: int, got: bytes | None
) -> None:
    proxy.rules = [Rule(fault, "INCR", amount=1000 if fault == Fault.THROTTLE else 10)]
    with Line(proxy) as line:
        try:
            reply = line.ask(INCR)
        except ConnectionError:
            reply = b""
        assert got is None or reply == got
        assert proxy.struck == [("INCR", fault)]
        deadline = 1000
        while count(running) != executed and deadline:
            deadline -= 1
        assert count(running) == executed
    with Line(proxy) as line:  # it struck once; the next connection is well
        assert line.ask(INCR) == f":{executed + 1}\r\n".encode()


def test_a_cut_reply_arrives_in_part(proxy: FaultProxy, running: EmbeddedRedis) -> None:
    proxy.rules = [Rule(Fault.CUT_REPLY, "INCR", amount=2)]
    with Line(proxy) as line:
        try:
            got = line.ask(INCR)
        except ConnectionError:  # a reset also takes what was not read yet
            got = b""
    assert got in (b"", b":1")
    assert count(running) == 1


def test_a_reset_is_a_reset() -> None:
    with EmbeddedRedis() as server, FaultProxy(server, tcp=True) as proxy:
        proxy.rules = [Rule(Fault.RESET, "INCR")]
        with Line(proxy) as line, pytest.raises(ConnectionResetError):
            line.ask(INCR)
        assert count(server) == 0


def test_a_black_hole_swallows_everything_on_its_connection(
    proxy: FaultProxy, running: EmbeddedRedis
) -> None:
    proxy.rules = [Rule(Fault.BLACK_HOLE, "INCR")]
    with Line(proxy, seconds=0.2) as line:
        with pytest.raises(TimeoutError):
            line.ask(INCR)
        with pytest.raises(TimeoutError):
            line.ask(PING)
        assert count(running) == 0
        proxy.cut()
        with pytest.raises((ConnectionError, BrokenPipeError)):
            assert not line.read()
            raise ConnectionError
    assert proxy.passed == {}


def test_one_way_requests_are_executed_and_no_reply_comes(
    proxy: FaultProxy, running: EmbeddedRedis
) -> None:
    proxy.rules = [Rule(Fault.ONE_WAY, "INCR")]
    with Line(proxy, seconds=0.2) as line:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                line.ask(INCR)
    assert count(running) == 2


def test_who_is_refused_cannot_connect_until_it_is_over(
    proxy: FaultProxy, running: EmbeddedRedis
) -> None:
    proxy.refuse()
    with pytest.raises(OSError), Line(proxy) as line:
        line.ask(PING)
    proxy.accept()
    with Line(proxy) as line:
        assert line.ask(PING) == b"+PONG\r\n"


def test_a_server_that_is_down_resets_who_comes(tmp_path: Path) -> None:
    with EmbeddedRedis() as server, FaultProxy(server, tcp=True) as proxy:
        server.kill()
        with pytest.raises(ConnectionError), Line(proxy) as line:
            assert not line.ask(PING)
            raise ConnectionError
        server.start()
        with Line(proxy) as line:
            assert line.ask(PING) == b"+PONG\r\n"


def test_a_rule_strikes_by_number_and_by_script(proxy: FaultProxy, running: EmbeddedRedis) -> None:
    rule = Rule(Fault.REPLAY, "publish", nth=2, every=2)
    assert [n for n in range(1, 8) if rule.strikes(n)] == [2, 4, 6]
    assert [n for n in range(1, 8) if Rule(Fault.REPLAY, nth=3).strikes(n)] == [3]
    with Client(proxy.url, namespace="test") as client:
        client.publish("t", 0)
        already = proxy.passed["publish"]
        proxy.rules = [rule]
        ids = [client.publish("t", n) for n in range(1, 5)]
        assert [verb for verb, _ in proxy.struck] == ["publish"] * 2
        assert proxy.passed["publish"] == already + 4
        assert client.admin.stats("t").topics[0].stored == 5  # what is replayed is stored once
    assert len(set(ids)) == 4


def test_rules_come_from_their_seed() -> None:
    drawn = {seed: random_rules(seed) for seed in range(1, 200)}
    assert all(rules == random_rules(seed) for seed, rules in drawn.items())
    assert {rule.fault for rules in drawn.values() for rule in rules} == set(Fault)


def test_scripts_are_known_by_their_digest() -> None:
    digest = next(sha for sha, verb in verbs().items() if verb == "lease")
    assert verb_of((b"evalsha", digest)) == "lease"
    assert verb_of((b"EVALSHA", b"0" * 40)) == "EVALSHA"
    assert verb_of((b"ping",)) == "PING"


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"$5\r\na\r\nbc\r\n",
        b"*0\r\n", b"*-1\r\n", b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", b"%1\r\n+a\r\n:1\r\n", b"_\r\n",
        b"#t\r\n", b",1.5\r\n", b"=5\r\ntxt:a\r\n", b">2\r\n+message\r\n+a\r\n",
        b"|1\r\n+a\r\n+b\r\n:7\r\n",
    ],
)  # fmt: skip
def test_a_frame_ends_where_it_ends(frame: bytes) -> None:
    assert frame_end(frame, 0) == len(frame)
    for cut in range(len(frame)):
        assert frame_end(frame[:cut], 0) is None
    reader = ReplyReader()
    pieces = [reader.feed(bytes([byte])) for byte in frame + frame]
    found = [reply for piece in pieces for reply in piece]
    assert [reply.raw for reply in found] == [frame, frame]
    assert found[0].push is frame.startswith(b">")


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="0x3f"):
        frame_end(b"?2\r\n", 0)


def test_requests_are_cut_apart_inline_ones_too() -> None:
    reader = RequestReader()
    requests = reader.feed(INCR + b"ping a\r\n" + PING[:5])
    assert [(r.raw, r.request_parts) for r in requests] == [
        (INCR, (b"INCR", b"n")),
        (b"ping a\r\n", (b"ping", b"a")),
    ]
    assert [r.raw for r in reader.feed(PING[5:])] == [PING]
