"""A misspelt option in Python is answered as one of the command line is: with what was meant."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from rqretry import App, Client, RetryPolicy
from rqretry.core.public_call import hinted
from tests.contract.surface.surface import callables, held

# As a program without a type checker sees them.
apps: Any = App
clients: Any = Client
policies: Any = RetryPolicy
app: Any = App()


def given(_message: Any) -> None:
    """A handler."""


TYPOS: list[tuple[Callable[[], Any], str]] = [
    (lambda: apps(redis_ulr="x"), "'redis_ulr'; did you mean url[?]"),
    (lambda: apps(namespce="x"), "did you mean namespace[?]"),
    (lambda: apps(frobnicate=1), "there are url, namespace, delay_levels"),
    (lambda: clients(namspace="x"), "did you mean namespace[?]"),
    (lambda: app.consumer("t", gruop="g"), "'gruop'; did you mean group[?]"),
    (lambda: app.consumer("t", group="g", retires=1)(given), "did you mean max_retries[?]"),
    (lambda: app.topic("t", partitons=2), "did you mean partitions[?]"),
    (lambda: app.topic("t").consumer(gruop="g"), "did you mean group[?]"),
    (lambda: app.task(max_retires=1)(given), "did you mean max_retries[?]"),
    (lambda: app.client.publish("t", 1, dealy="1s"), "'dealy' .*did you mean delay[?]"),
    (lambda: app.client.simple_consumer("t", gruop="g"), "did you mean group[?]"),
    (lambda: app.client.simple_consumer("t", group="g", visibilty=1), "'visibilty' is not one of"),
    (lambda: policies.exponential(multiplyer=3), "did you mean multiplier[?]"),
]


@pytest.mark.parametrize(("typo", "answer"), TYPOS, ids=[answer for _, answer in TYPOS])
def test_a_misspelt_option_is_answered_with_what_was_meant(
    typo: Callable[[], Any], answer: str
) -> None:
    either = answer.replace("did you mean ", "[Dd]id you mean '?").replace("[?]", "'?[?]")
    with pytest.raises((TypeError, ValueError), match=either) as caught:  # Python 3.13 says it, too
        typo()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_publishing_with_asyncio_names_the_option_too() -> None:
    with pytest.raises(ValueError, match=r"did you mean delay[?]"):
        await app.publish("t", 1, dealy="1s")


def test_what_a_function_itself_raises_stays_as_it_is() -> None:
    @hinted
    def broken(first: int) -> None:
        raise TypeError(f"'frist' is not {first}")

    with pytest.raises(TypeError, match=r"^'frist' is not 1$"):
        broken(first=1)
    assert list(inspect.signature(App).parameters)[:2] == ["url", "namespace"]


GIVEN = {"topic": "t", "body": 1, "group": "g", "messages": [], "bodies": []}
"""For what has no default."""
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
SHORTEST = 4
"""Letters of a name in which two can change places and leave no doubt."""


def names_of(call: Callable[..., Any]) -> Iterator[str]:
    """What can be given by name, options too."""
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation) or (object,)
            yield from getattr(options, "__annotations__", ())
        elif parameter.default is not parameter.empty and parameter.kind is not POSITIONAL:
            yield parameter.name


def first_arguments(call: Callable[..., Any]) -> list[Any]:
    return [
        GIVEN.get(one.name, "x")
        for one in inspect.signature(call).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]


async def answer(call: Callable[..., Any], misspelt: str) -> str:
    """What is raised, at the latest by what was decorated."""
    with pytest.raises((TypeError, ValueError)) as caught:
        made = call(*first_arguments(call), **{misspelt: 1})
        await made if inspect.isawaitable(made) else made(given)
    return str(caught.value)


async def test_every_name_of_every_call_is_suggested_where_two_letters_changed_places() -> None:
    unanswered, answers, count = [], list[str](), 0
    with held() as objects:
        for path, call in callables(objects):
            for name in names_of(call):
                misspelt = name[:-2] + name[-1] + name[-2]
                if len(name) < SHORTEST or misspelt == name:
                    continue
                count += 1
                answers.append(text := await answer(call, misspelt))
                if not re.search(rf"[Dd]id you mean '?{name}'?[?]", text):
                    unanswered.append((path, name, text))
    assert unanswered == []
    assert not [text for text in answers if re.search(r"\b_[A-Z]|Decorators", text)]
    assert count > 300
