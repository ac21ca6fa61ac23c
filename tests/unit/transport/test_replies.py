"""Commands on the wire, and what each error of a server means."""

from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from rqretry.core.errors import (
    AmbiguousResult,
    ConfigError,
    QueueFull,
    ScriptError,
    StoreUnavailable,
)
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Command
from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.node import Node, dialect_of, supported
from rqretry.transport.replies import TryAgain, block_seconds, broken, result_of
from rqretry.transport.session import spell
from rqretry.transport.share import load

COMMAND: Command[Any] = Command("succeed", ("k1", "k2"), ("g", 1), list)
PUBLISH: Command[Any] = Command("publish", ("k",), (), list)
PLAIN: Command[Any] = Command("ping", (), (), bytes, arguments=("PING",))


@pytest.fixture(scope="module")
def node() -> Node:
    return Node(RedisUrl.parse("redis://localhost:6379"), ScriptLibrary())


def test_a_script_is_called_by_its_hash(node: Node) -> None:
    request = spell(node, COMMAND)

    assert (request[0], *request[2:]) == ("EVALSHA", 2, "k1", "k2", "g", 1)
    assert spell(node, PLAIN) == ("PING",)


def test_each_dialect_has_hashes_of_its_own() -> None:
    node = Node(RedisUrl.parse("redis://x"), ScriptLibrary())
    modern = spell(node, COMMAND)[1], load(node, COMMAND)[2]
    node.dialect = Dialect.LEGACY

    assert spell(node, COMMAND)[1] != modern[0]
    assert str(modern[1]).startswith("#!lua")
    assert not str(load(node, COMMAND)[2]).startswith("#!lua")


@pytest.mark.parametrize(
    "code",
    [
        "LOADING",
        "BUSY",
        "READONLY",
        "NOREPLICAS",
        "MISCONF",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "UNBLOCKED",
    ],
)
def test_what_passes_is_worth_repeating_and_was_not_executed(node: Node, code: str) -> None:
    with pytest.raises(TryAgain) as caught:
        result_of(node, COMMAND, ResponseError(f"{code} some text of the server"))

    assert not caught.value.sent
    assert isinstance(caught.value.error, StoreUnavailable)
    assert "localhost:6379" in str(caught.value.error)


@pytest.mark.parametrize("code", ["NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "CROSSSLOT"])
def test_what_does_not_pass_is_a_matter_of_configuration(node: Node, code: str) -> None:
    with pytest.raises(ConfigError, match="localhost:6379"):
        result_of(node, COMMAND, ResponseError(f"{code} some text of the server"))


def test_a_full_server_is_a_full_queue_for_publishers_and_a_pause_for_the_rest(node: Node) -> None:
    full = ResponseError("OOM command not allowed when used memory > 'maxmemory'.")

    with pytest.raises(QueueFull):
        result_of(node, PUBLISH, full)
    with pytest.raises(TryAgain):
        result_of(node, COMMAND, full)


def test_too_many_clients_is_worth_repeating(node: Node) -> None:
    with pytest.raises(TryAgain, match="maxclients"):
        result_of(node, PLAIN, ResponseError("max number of clients reached"))


SHA = "0123456789" * 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"WRONGTYPE bad key script: {SHA}, on @user_script:20.", "WRONGTYPE bad key"),
        (f"user_script:20: boom script: {SHA}, on @user_script:20.", "boom"),
        (f"Error running script (call to f_{SHA}): @user_script:20: WRONGTYPE x", "WRONGTYPE x"),
        (f"Error running script (call to f_{SHA}): @user_script:20: user_script:20: boom", "boom"),
        (f"Error running script (call to f_{SHA}): @user_script:20: @user_script: 20: x", "x"),
    ],
    ids=["7.0 command", "7.0 Lua", "6.2 command", "6.2 Lua", "6.2 arguments"],
)
def test_an_error_in_a_script_names_the_file_and_line(node: Node, text: str, reason: str) -> None:
    with pytest.raises(ScriptError) as caught:
        result_of(node, COMMAND, ResponseError(text))

    assert (caught.value.script, caught.value.line) == located(node, 20)
    assert caught.value.reason.strip() == reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"WRONGTYPE bad key script: {SHA}, on @user_script:20.", AmbiguousResult),
        (
            f"ACL failure in script: x script: {SHA}, on @user_script:9.",
            AmbiguousResult,
        ),
        (f"Error running script (call to f_{SHA}): @user_script:20: WRONGTYPE x", AmbiguousResult),
        (f"OOM command not allowed script: {SHA}, on @user_script:20.", TryAgain),
        (f"Error running script (call to f_{SHA}): @user_script:9: -READONLY x", TryAgain),
        ("NOPERM this user has no permissions to run the 'evalsha' command", ConfigError),
    ],
)
def test_a_command_that_fails_inside_a_script_leaves_what_was_written_before(
    node: Node, text: str, found: type[Exception]
) -> None:
    command: Command[Any] = Command("succeed", ("k",), (), list, ids=("a",))
    with pytest.raises(found):
        result_of(node, command, ResponseError(text))


def located(node: Node, line: int) -> tuple[str, int]:
    """Where a line of the composed script comes from."""
    file, _, number = node.scripts.get("succeed").locate(line).partition(":")
    return file, int(number)


def test_a_good_reply_is_decoded(node: Node) -> None:
    assert result_of(node, COMMAND, (b"OK",)) == [b"OK"]


@pytest.mark.parametrize(
    ("error", "request_parts"),
    [(TimeoutError(), "did not answer in time"), (OSError("refused"), "is unreachable")],
)
def test_a_broken_connection_may_have_done_it_if_it_was_sent(
    node: Node, error: Exception, request_parts: str
) -> None:
    for sent in (True, False):
        again = broken(node, error, sent=sent)
        assert again.sent is sent
        assert request_parts in str(again)


@pytest.mark.parametrize(
    ("version", "is_supported", "dialect"),
    [
        ("5.0.14", False, Dialect.LEGACY),
        ("6.0.16", False, Dialect.LEGACY),
        ("6.2.0", True, Dialect.LEGACY),
        ("7.0.15", True, Dialect.SHEBANG),
        ("7.2.4", True, Dialect.SHEBANG),
        ("10.0", True, Dialect.SHEBANG),
        ("", False, Dialect.LEGACY),
    ],
)
def test_servers_are_known_by_their_version(
    version: str, is_supported: bool, dialect: Dialect
) -> None:
    assert supported(version) is is_supported
    assert dialect_of(version) is dialect


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0004, 0.001, 0.0015])
def test_the_shortest_wait_ends_on_every_server(server: EmbeddedRedis, seconds: float) -> None:
    path = str(server.socket_path)
    with redis.Redis(unix_socket_path=path, socket_timeout=20) as client:
        assert client.execute_command("BZPOPMIN", "nobody", block_seconds(seconds)) is None
