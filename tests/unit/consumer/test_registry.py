"""Registering handlers: what is checked before anything runs."""

import functools
from typing import Any

import pytest

from rqretry import App, ConfigError, ConsumeResult, InvalidArgument, Message, RetryPolicy
from rqretry.core.parts import parts_of


async def handle(message: Message[Any]) -> ConsumeResult:
    return ConsumeResult.SUCCESS


def handle_sync(message: Message[Any]) -> None:
    pass


class Callable:
    async def __call__(self, message: Message[Any]) -> None:
        pass


class CallableSync:
    def __call__(self, message: Message[Any]) -> None:
        pass


@pytest.fixture
def app() -> App:
    return App("redis://localhost")


@pytest.mark.parametrize(
    ("handler", "is_async", "concurrency"),
    [
        (handle, True, 64),
        (handle_sync, False, 16),
        (Callable(), True, 64),
        (CallableSync(), False, 16),
        (functools.partial(handle), True, 64),
        (lambda message: None, False, 16),
    ],
    ids=["async", "sync", "async object", "object", "partial", "lambda"],
)
def test_async_handlers_run_in_the_loop_and_others_in_threads(
    app: App, handler: Any, is_async: bool, concurrency: int
) -> None:
    app.consumer("t", group="g")(handler)
    (spec,) = parts_of(app).consumers

    assert (spec.is_async, spec.concurrency) == (is_async, concurrency)
    assert (spec.topics, spec.group, spec.visibility_ms) == (("t",), "g", 30_000)


def test_a_decorated_handler_stays_an_ordinary_function(app: App) -> None:
    assert app.consumer("t", group="g")(handle) is handle


def test_several_topics_are_kept_in_order_and_once(app: App) -> None:
    app.consumer(["b", "a", "b"], group="g")(handle)
    assert parts_of(app).consumers[0].topics == ("b", "a")


def test_settings_are_kept_as_the_scripts_want_them(app: App) -> None:
    app.consumer(
        "t",
        group="g",
        max_retries="unlimited",
        policy=RetryPolicy.fixed(1),
        visibility="2m",
        consume_timeout=1.5,
        concurrency=3,
    )(handle)
    (spec,) = parts_of(app).consumers

    assert (spec.max_retries, spec.visibility_ms, spec.consume_timeout_ms) == (-1, 120_000, 1_500)
    assert (spec.concurrency, spec.policy) == (3, RetryPolicy.fixed(1))


def test_a_policy_may_name_max_retries_and_the_argument_wins(app: App) -> None:
    app.consumer("t", group="a", policy=RetryPolicy.fixed(1, max_retries=4))(handle)
    app.consumer("t", group="b", policy=RetryPolicy.fixed(1, max_retries=4), max_retries=5)(handle)
    app.consumer("t", group="c")(handle)

    assert [spec.max_retries for spec in parts_of(app).consumers] == [4, 5, None]


def test_two_handlers_for_one_topic_of_a_group_are_refused_with_both_places(app: App) -> None:
    app.consumer(["t", "u"], group="g")(handle)
    app.consumer("t", group="other")(handle)
    app.consumer("v", group="g")(handle)

    with pytest.raises(ConfigError, match=r"'u'.*'g'.*handle .*test_registry\.py:\d+.*handle_sync"):
        app.consumer("u", group="g")(handle_sync)


async def yielding(message: Any) -> Any:
    yield message


@pytest.mark.parametrize(
    "bad",
    [
        lambda: None,
        lambda message, other: None,
        lambda *, message: None,
        yielding,
    ],
    ids=["no parameter", "two parameters", "keyword only", "yields"],
)
def test_a_function_that_cannot_take_one_message_is_refused(app: App, bad: Any) -> None:
    with pytest.raises(ConfigError):
        app.consumer("t", group="g")(bad)
    assert list(parts_of(app).consumers) == []


@pytest.mark.parametrize("bad", [None, 3, "handle"])
def test_what_is_no_function_is_refused(app: App, bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        app.consumer("t", group="g")(bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"topics": ""},
        {"topics": []},
        {"topics": "a b"},
        {"topics": "a{b}"},
        {"topics": "x" * 128},
        {"group": ""},
        {"group": "queuё"},
        {"group": "x" * 121},
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1.5},
        {"max_retries": "many"},
        {"policy": "fixed:1s"},
        {"concurrency": -1},
        {"concurrency": 10_001},
        {"concurrency": True},
        {"visibility": 0.05},
        {"visibility": "13h"},
        {"consume_timeout": 0},
        {"consume_timeout": -1},
        {"consume_timeout": float("inf")},
        {"consume_timeout": "30 apples"},
        {"max_postpones": -1},
        {"none_is": "maybe"},
        {"dead_letter_on": False},
        {"dead_letter_on": 0},
        {"dead_letter_on": ""},
        {"retry_on": False},
    ],
    ids=str,
)
def test_a_setting_outside_its_limits_is_refused(app: App, bad: dict[str, Any]) -> None:
    options = {"topics": "t", "group": "g", **bad}
    with pytest.raises(InvalidArgument):
        app.consumer(options.pop("topics"), **options)(handle)
    assert list(parts_of(app).consumers) == []
