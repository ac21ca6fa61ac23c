"""The model of Redis against Redis: the same commands, the same keys."""

import random

import pytest
import redis

from tests.conftest import ServerOf, emptied
from tests.model.checker.keyspace import Keyspace
from tests.model.checker.snapshot import disagreements, take_snapshot

PREFIX = "rqretry:test:"
COMMANDS = [
    ["SET", "s", "1"], ["SET", "s", "2", "PX", "100000"], ["INCR", "n"], ["INCRBY", "n", "5"],
    ["DEL", "s"], ["UNLINK", "l"], ["HSET", "h", "a", "1", "b", "2"], ["HSETNX", "h", "a", "9"],
    ["HSETNX", "h", "c", "9"], ["HDEL", "h", "a", "zz"], ["HINCRBY", "h", "b", "3"],
    ["RPUSH", "l", "a", "b", "a"], ["LPUSH", "l", "x", "y"], ["LPOP", "l"], ["RPOP", "l", "2"],
    ["LTRIM", "l", "1", "-1"], ["LTRIM", "l", "0", "2"], ["LTRIM", "l", "3", "1"],
    ["LMOVE", "l", "m", "LEFT", "RIGHT"], ["LREM", "l", "1", "a"], ["LREM", "l", "-1", "a"],
    ["LREM", "l", "0", "b"], ["RENAME", "l", "m"], ["RPUSH", "l", "c"],
    ["ZADD", "z", "1", "a", "2.5", "b"], ["ZADD", "z", "XX", "GT", "2", "a"],
    ["ZADD", "z", "LT", "1", "b", "7", "c"], ["ZADD", "z", "NX", "9", "a", "9", "d"],
    ["ZREM", "z", "a", "zz"], ["ZPOPMIN", "z"], ["ZREMRANGEBYSCORE", "z", "-inf", "(2"],
    ["ZREMRANGEBYSCORE", "z", "2", "3"], ["HDEL", "h", "b", "c"],
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_the_same_commands_end_in_the_same_keys(server_of: ServerOf, seed: int) -> None:
    server = emptied(server_of("redis-7"))
    chance, space = random.Random(seed), Keyspace()
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        for _ in range(200):
            request_parts = list(chance.choice(COMMANDS))
            keys = 2 if request_parts[0] in {"RENAME", "LMOVE"} else 1
            request_parts[1 : 1 + keys] = [PREFIX + word for word in request_parts[1 : 1 + keys]]
            try:
                client.execute_command(*request_parts)
            except redis.ResponseError:  # RENAME of nothing: nothing is in the journal
                continue
            space.apply(request_parts)
        assert disagreements(space, take_snapshot(client, "test"), "test") == []


def test_what_was_there_before_is_noted_until_it_is_forgotten() -> None:
    space = Keyspace()
    space.apply(["RPUSH", "l", "a", "a"])
    space.apply(["ZADD", "z", "1", "a"])
    space.forget()

    space.apply(["RENAME", "l", "m"])
    space.apply(["ZADD", "z", "2", "a"])
    space.apply(["ZREM", "z", "a"])

    assert space.before == {("l", "a"): 2, ("m", "a"): 0, ("z", "a"): 1.0}
    assert (space.now("m", "a"), space.now("z", "a")) == (2, None)


def test_what_is_removed_by_rank_goes_by_score_and_then_by_name() -> None:
    space = Keyspace()
    space.apply(["ZADD", "z", "2", "b", "1", "d", "1", "c", "3", "a"])
    space.apply(["ZREMRANGEBYRANK", "z", "0", "1"])
    assert space.scores("z") == {"b": 2.0, "a": 3.0}
    space.apply(["ZREMRANGEBYRANK", "z", "-1", "-1"])
    assert space.scores("z") == {"b": 2.0}
