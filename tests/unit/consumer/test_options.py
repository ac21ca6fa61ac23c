"""What is refused of batch handlers, before anything starts: one sentence, with the fix."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rqretry import App, ConfigError, InvalidArgument, Message
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.parts import parts_of


async def takes_list(messages: list[Message[int]]) -> None: ...


async def takes_one(message: Message[int]) -> None: ...


def takes_anything(messages):  # type: ignore[no-untyped-def]
    """A handler without annotations."""


def spec_of(handler: Callable[..., Any], **options: Any) -> ConsumerSpec:
    app = App("redis://localhost")
    parts_of(app).register("t", "g", options)(handler)
    return parts_of(app).consumers[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch": 0}, "batch 0 must be from 1 to 1024"),
        ({"batch": 1025}, "batch 1025 must be from 1 to 1024"),
        ({"batch": "many"}, "batch 'many' must be a whole number, from 1 to 1024"),
        ({"batch": True}, "batch True must be a whole number, from 1 to 1024"),
        ({"batch_wait": "50ms"}, "batch_wait '50ms' needs batch=, such as batch=100"),
        ({"batch": 10, "batch_wait": "soon"}, "batch_wait 'soon' is not a duration"),
        ({"batch": 10, "batch_wait": -1}, "batch_wait -1 is out of range"),
        (
            {"batch": 10, "batch_wait": "8s"},
            "batch_wait '8s' must be at most 7.5 s, a quarter of visibility and of consume_timeo",
        ),
        (
            {"batch": 10, "ordered": True, "concurrency": 2},
            "concurrency=2 cannot be given with batch= and ordered=True, where one batch runs",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        spec_of(takes_list, **options)
    assert str(refused.value).startswith(sentence)


def test_a_handler_of_one_message_and_a_batch_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"annotate its one parameter with list\[Message\[T\]\]"):
        spec_of(takes_one, batch=10)
    with pytest.raises(ConfigError, match="give its consumer batch=, such as batch=100"):
        spec_of(takes_list)


def test_a_body_that_is_a_list_is_no_batch() -> None:
    def sums(numbers: list[int]) -> None: ...

    assert spec_of(sums).batch == 0
    with pytest.raises(ConfigError, match="with batch= is called with a list of messages"):
        spec_of(sums, batch=10)


def test_a_task_is_called_one_by_one() -> None:
    app = App("redis://localhost")
    with pytest.raises(InvalidArgument, match="batch 10 is not for tasks"):
        app.task("t", batch=10)(takes_anything)  # type: ignore[call-overload]


def test_what_is_not_named_has_a_default() -> None:
    def in_order(messages: Sequence[Message]) -> None: ...  # type: ignore[type-arg]

    spec = spec_of(takes_list, batch=10)
    assert (spec.batch, spec.batch_wait_ms, spec.concurrency) == (10, 50, 4)
    assert spec_of(takes_anything, batch=10, visibility="100ms").batch_wait_ms == 25
    ordered = spec_of(in_order, batch=10, ordered=True)
    assert (ordered.concurrency, ordered.at_once(8), spec.at_once(8)) == (1, 1, 8)
