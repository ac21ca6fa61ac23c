"""What is decorated: with its parentheses, and a function that can be called as it will be."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry import App, InvalidArgument

# As a program without a type checker sees it.
app: Any = App()


def handler(_message: Any) -> None:
    """One."""


async def around(_message: Any) -> None:
    """What takes one argument, and would get two."""


class Handler:
    """What is made, and not called, with a message."""

    def __init__(self, message: Any) -> None:
        self.message = message


BARE: list[tuple[Callable[..., Any], str]] = [
    (app.consumer, '@app.consumer("orders", group="billing")'),
    (app.topic("t").consumer, '@topic.consumer(group="billing")'),
    (app.cron, '@app.cron("0 3 * * *")'),
    (app.on, '@app.on("dead_letter")'),
    (app.transaction_checker, '@app.transaction_checker("shop")'),
]
MADE: dict[str, Callable[[], Callable[..., Any]]] = {
    "consumer": lambda: app.consumer("t", group="g"),
    "batch": lambda: app.consumer("t", group="g", batch=2),
    "of a topic": lambda: app.topic("t").consumer(group="g"),
    "task": app.task,
    "cron": lambda: app.cron(every="1m"),
    "on": lambda: app.on("failure"),
    "checker": lambda: app.transaction_checker("g"),
    "middleware": lambda: app.middleware,
}


@pytest.mark.parametrize(("decorator", "written"), BARE, ids=[text for _, text in BARE])
def test_a_decorator_without_its_parentheses_says_what_to_write(
    decorator: Callable[..., Any], written: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decorator(handler)
    assert f"write {written}" in str(caught.value)


@pytest.mark.parametrize("thing", [int, Handler, 5, None])
@pytest.mark.parametrize("made", MADE)
def test_what_is_no_function_is_refused_where_it_is_registered(made: str, thing: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"must be an? (async )?function"):
        MADE[made]()(thing)


@pytest.mark.parametrize(
    ("made", "function", "taken"),
    [
        ("on", lambda: None, r"must take \(event\), and takes \(\)"),
        ("checker", lambda: None, r"must take \(transaction\), and takes \(\)"),
        ("middleware", around, r"must take \(message, call_next\), and takes \(_message"),
    ],
    ids=["on", "checker", "middleware"],
)
def test_a_function_that_cannot_be_called_so_is_refused_where_it_is_registered(
    made: str, function: Callable[..., Any], taken: str
) -> None:
    with pytest.raises(InvalidArgument, match=taken):
        MADE[made]()(function)


def test_an_object_that_is_called_is_a_handler() -> None:
    class Calls:
        def __call__(self, message: Any) -> None:
            """Handle it."""

    assert app.consumer("calls", group="calls")(Calls())
