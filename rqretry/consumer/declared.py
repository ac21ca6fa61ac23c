"""What an app declares: topics, handlers, schedules, checkers and hooks, for those that run it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rqretry.consumer.options import AnyOptions
from rqretry.consumer.registry import ConsumerSpec, Registry
from rqretry.consumer.transaction_checker import Checkers
from rqretry.core.errors import ConfigError, show
from rqretry.core.middleware import Hooks
from rqretry.core.public_call import hinted
from rqretry.core.schedule import ScheduleRecord

F = TypeVar("F", bound=Callable[..., Any])


class Declared:
    """What was declared on one app.

    Attributes:
        topics: Topics that were declared, and how many partitions each is to have.
        registry: Handlers, of tasks and schedules too.
        schedules: When the messages of schedules are published.
        checkers: Transaction checkers.
        hooks: Middleware and callbacks.
    """

    def __init__(self) -> None:
        self.topics: dict[str, int | None] = {}
        self.registry = Registry()
        self.schedules: list[ScheduleRecord] = []
        self.checkers = Checkers()
        self.hooks = Hooks()
        self._workers = 0

    @property
    def consumers(self) -> list[ConsumerSpec]:
        """The handlers."""
        return self.registry.consumers

    @property
    def count(self) -> int:
        """How many things a worker would serve."""
        return len(self.consumers) + len(self.checkers.specs)

    def register(
        self,
        topics: str | Sequence[str],
        group: str,
        options: AnyOptions,
        *,
        body_type: Any = None,
    ) -> Callable[[F], F]:
        """The decorator of a handler, of a topic with a body type too."""

        @hinted
        def decorate(handler: F) -> F:
            self.refuse_late(f"handler of group {show(group)}")
            self.registry.add(handler, topics, group, options, body_type=body_type)
            return handler

        return decorate

    def refuse_late(self, what: str) -> None:
        """Raise ConfigError if a worker of this app runs."""
        if self._workers:
            raise ConfigError(
                f"the {what} is registered while a worker of this app runs, which would never serve"
                " it: register it before, as where the module is imported"
            )

    @contextmanager
    def serving(self, known: int) -> Iterator[None]:
        """Around the run of a worker that was made when so many were registered."""
        if known != self.count:
            raise ConfigError(
                "handlers were registered after the worker was made, which would never serve them:"
                " register all of them before, as where the module is imported"
            )
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1
