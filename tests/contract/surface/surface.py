"""What a program holds of rqretry, one of each kind, for tests of the whole surface."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import rqretry
from rqretry import App, ConsumeResult, OutgoingMessage, RetryPolicy
from rqretry.testing import Lab


@contextmanager
def held() -> Iterator[dict[str, Any]]:
    """One of each kind that a program holds."""
    app = App("redis://localhost:1")

    @app.task
    def work() -> None:
        """Nothing."""

    with Lab(app) as lab, closing(lab.client) as client:
        client.admin.create_topic("t")
        joining: Any = {"group": "s", "create_group": True}
        yield {
            "App": app,
            "Client": client,
            "AsyncClient": app.async_client,
            "Admin": client.admin,
            "AsyncAdmin": app.admin,
            "Topic": app.topic("t"),
            "Task": work,
            "TaskSender": work.options(),
            "SimpleConsumer": client.simple_consumer("t", **joining),
            "AsyncSimpleConsumer": app.async_client.simple_consumer("t", **joining),
            "Transaction": client.transaction("t"),
            "AsyncTransaction": app.transaction("t"),
            "ConsumeResult": ConsumeResult.SUCCESS,
            "RetryPolicy": RetryPolicy.rocketmq(),
            "OutgoingMessage": OutgoingMessage(body=1),
        }


MADE = ("App", "Client", "AsyncClient", "OutgoingMessage", "DeadLetterFilter", "Retry", "Postpone")
"""What programs make with options."""


def public(names: list[str]) -> list[str]:
    """Those without an underscore."""
    return [name for name in names if not name.startswith("_")]


def callables(objects: dict[str, Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Everything that programs call, with its name."""
    for name in MADE:
        yield name, getattr(rqretry, name)
    for kind, value in objects.items():
        for name in public(dir(value)):
            method = inspect.getattr_static(value, name, None)
            if callable(method) or isinstance(method, classmethod) or hasattr(method, "__get__"):
                bound = getattr(value, name)
                if inspect.isroutine(bound):
                    yield f"{kind}.{name}", bound


GOOD = {
    "all": True, "args": 1, "bodies": [1], "body": 1, "duration": 1, "group": "g", "id": "x",
    "key": "k", "message": "t/0/g/1/x", "messages": [1], "name": "t", "topic": "t", "topics": "t",
}  # fmt: skip
"""For what has to be given."""


def given(call: Callable[..., Any], other: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """What a call needs, but for what `other` names."""
    left, positional, by_name = dict(other), [], {}
    for one in inspect.signature(call).parameters.values():
        needed = one.default is one.empty or one.name in left
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) or not needed:
            continue
        value = left.pop(one.name, GOOD.get(one.name, "x"))
        if one.kind is one.POSITIONAL_ONLY:
            positional.append(value)
        else:
            by_name[one.name] = value
    return positional, {**by_name, **left}
