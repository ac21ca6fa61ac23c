"""Clients of the official Python library."""

from collections.abc import Callable
from types import ModuleType
from typing import Any


class Official:
    """They are shut down at the end."""

    def __init__(self, library: ModuleType, address: str, credentials: Any = None) -> None:
        self.library = library
        signed = credentials or library.Credentials()
        self.configuration = library.ClientConfiguration(address, signed)
        self._started: list[Any] = []

    def producer(self, *topics: str, **options: Any) -> Any:
        return self._start(self.library.Producer(self.configuration, topics, **options))

    def simple(self, group: str, topic: str, tags: str = "*", *, wait: int = 5) -> Any:
        wanted = {topic: self.library.FilterExpression(tags)}
        make = self.library.SimpleConsumer
        return self._start(make(self.configuration, group, wanted, wait))

    def push(self, group: str, topic: str, handle: Callable[[Any], bool]) -> Any:
        result = self.library.ConsumeResult

        class Listener(self.library.MessageListener):  # type: ignore[misc,name-defined]
            def consume(self, message: Any) -> Any:
                return result.SUCCESS if handle(message) else result.FAILURE

        wanted = {topic: self.library.FilterExpression()}
        make = self.library.PushConsumer
        return self._start(make(self.configuration, group, Listener(), wanted))

    def message(self, topic: str, body: bytes, **fields: Any) -> Any:
        made = self.library.Message()
        made.topic, made.body = topic, body
        for name, value in fields.pop("properties", {}).items():
            made.add_property(name, value)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def close(self) -> None:
        for client in reversed(self._started):
            client.shutdown()

    def _start(self, client: Any) -> Any:
        client.startup()
        self._started.append(client)
        return client
