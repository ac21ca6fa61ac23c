"""The ways to run the scripts: a real server through the sync store, or fakeredis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fakeredis
import redis
from redis.exceptions import NoScriptError, ResponseError

from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Command
from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.transport.node import Node
from rqretry.transport.replies import result_of
from rqretry.transport.session import spell
from rqretry.transport.share import load
from rqretry.transport.store_sync import SyncStore

Run = Callable[[Command[Any]], Any]


@dataclass(frozen=True)
class Backend:
    """How commands get to a server, and a client for looking at what is there."""

    name: str
    run: Run
    client: Any
    clock_in_slot: bool = False
    close: Callable[[], None] = lambda: None


def server_backend(
    name: str, url: str, library: ScriptLibrary, *, clock_in_slot: bool = False
) -> Backend:
    """A real server, through the sync store."""
    parsed = RedisUrl.parse(url)
    store = SyncStore(parsed, library)
    path = str(parsed.redis_kwargs()["path"])
    client = redis.Redis(unix_socket_path=path, protocol=2)

    def close() -> None:
        store.close()
        client.close()

    return Backend(name, store.run, client, clock_in_slot, close)


def fake_backend(library: ScriptLibrary) -> Backend:
    """Fakeredis: it takes the words of 6.2."""
    node = Node(RedisUrl.parse("redis://fakeredis"), library)
    node.dialect = Dialect.LEGACY
    fake = fakeredis.FakeServer(version=(6, 2))
    raw: Any = fakeredis.FakeStrictRedis(server=fake)
    raw.response_callbacks.clear()  # replies as the stores get them

    def send(request_parts: Sequence[Any]) -> Any:
        try:
            return raw.execute_command(*request_parts)
        except ResponseError as error:
            return error

    def run(command: Command[Any]) -> Any:
        for one in command.ahead:
            send(one)
        reply = send(spell(node, command))
        if isinstance(reply, NoScriptError):
            send(load(node, command))
            reply = send(spell(node, command))
        return result_of(node, command, reply)

    return Backend("fakeredis", run, fakeredis.FakeStrictRedis(server=fake))
