"""What is wrong with an argument is said before a server is waited for: there is none here."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import rqretry
from rqretry import App, Client
from tests.contract.surface.docstrings import errors
from tests.contract.surface.surface import callables, given

NOWHERE = "redis://127.0.0.1:1"
ANYTHING = {("App.topic", "body"), ("Retry", "reason")}
"""Every value is one."""
LATER = {"OutgoingMessage", "Task.options", "Task.function"}
"""What is judged when it is published, or called."""
REFUSALS = (
    ValueError, rqretry.CodecError, rqretry.ConfigError, rqretry.InvalidReceiptHandle,
)  # fmt: skip
AWAY = (rqretry.StoreUnavailable, rqretry.AmbiguousResult)


class Bad:
    """What no argument may be."""

    def __repr__(self) -> str:
        return "<bad>"


def waiting_for_nobody() -> dict[str, Any]:
    """One of each kind that programs hold, on a server that is not there."""
    app, client = App(NOWHERE, timeout=0.01), Client(NOWHERE, timeout=0.01)
    joining: Any = {"group": "s", "create_group": True}

    @app.task
    def work(argument: int) -> None:
        """Nothing."""

    return {
        "App": app,
        "Client": client,
        "AsyncClient": app.async_client,
        "Admin": client.admin,
        "AsyncAdmin": app.admin,
        "Topic": app.topic("t", body=int),
        "Task": work,
        "TaskSender": work.options(),
        "AsyncSimpleConsumer": app.async_client.simple_consumer("t", **joining),
        "Transaction": client.transaction("t"),
        "AsyncTransaction": app.transaction("t"),
    }


def names_of(call: Callable[..., Any]) -> Iterator[str]:
    """Every argument, options too."""
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation) or (rqretry.DeadLetterFilter,)
            yield from getattr(options, "__annotations__", ())
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            yield parameter.name


async def answer(call: Callable[..., Any], **other: Any) -> Exception | None:
    """What is raised, at the latest by what was decorated."""
    positional, by_name = given(call, other)
    try:
        made = call(*positional, **by_name)
        if inspect.isawaitable(made):
            await made
        elif inspect.isfunction(made):
            made(lambda _message: None)
    except Exception as error:  # noqa: BLE001 - that is the question
        return error
    return None


def is_said(error: Exception, path: str, call: Callable[..., Any]) -> bool:
    """Whether the text of a call names an error, or a base of it."""
    names = errors(path, call)
    return any(kind.__name__ in names for kind in type(error).__mro__[:-3])


async def test_every_argument_of_every_call_is_judged_before_the_server_is_asked() -> None:
    late, unsaid, count = [], [], 0
    for path, call in callables(waiting_for_nobody()):
        for name in names_of(call):
            if (path, name) in ANYTHING or path in LATER:
                continue
            count += 1
            error = await answer(call, **{name: Bad()})
            if not isinstance(error, REFUSALS):
                late.append(f"{path}({name}): {error!r:.200}")
            elif not is_said(error, path, call):
                unsaid.append(f"{path}({name}): {type(error).__name__}")
    assert late == [], "\n".join(late)
    assert unsaid == [], "\n".join(unsaid)
    assert count > 250


async def test_what_a_call_raises_without_a_server_is_in_its_text() -> None:
    unsaid, count = [], 0
    for path, call in callables(waiting_for_nobody()):
        if path == "App.run":  # which waits for one
            continue
        error = await answer(call)
        count += isinstance(error, AWAY)
        if isinstance(error, AWAY) and not is_said(error, path, call):
            unsaid.append(f"{path}: {type(error).__name__}")
    assert unsaid == [], "\n".join(unsaid)
    assert count > 80


async def test_a_module_of_include_that_is_not_there_is_named() -> None:
    app = App(NOWHERE, include=["nosuch.handlers"])
    with pytest.raises(rqretry.ConfigError, match="there is no module 'nosuch': correct it"):
        await app.run()
