"""`@app.task`: what is sent is what is called."""

import asyncio
import copy
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rqretry import (
    BodyMismatch,
    CallNext,
    CodecError,
    ConfigError,
    ConsumeResult,
    InvalidArgument,
    Message,
    RetryPolicy,
)
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab, Seen, counted
from tests.contract.surface.harness import only_dead_letter, working
from tests.contract.surface.models import Bag, Cabin, Flight, Guest, Unknown

NOW = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
TAG = UUID("12345678-1234-5678-1234-567812345678")

CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {"when": NOW}),
    ((NOW,), {}),
    ((), {"tag": TAG, "price": Decimal("1.10")}),
    ((), {"flight": Flight(1, "UA", NOW, [Cabin.FIRST])}),
    ((), {"cabin": Cabin.ECONOMY}),
    ((), {"raw": b"\x00\xff"}),
    ((), {"guest": Guest(name="Ada", born=NOW)}),
    ((), {"guests": [Guest(name="Ada", born=NOW)]}),
    ((), {"bag": Bag(Decimal("23.5"), TAG)}),
    (
        (),
        {
            "wait": timedelta(seconds=90),
            "row": (1, "A"),
            "rows": {1, 2},
            "by_row": {3: Cabin.FIRST},
        },
    ),
    ((), {"flight": None, "anything": {"a": [1, None]}}),
]


@pytest.mark.parametrize(("args", "kwargs"), CALLS)
async def test_arguments_arrive_with_the_types_they_were_sent_with(
    lab: Lab, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    app = lab.app()
    got: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @app.task()
    async def everything(
        when: datetime | None = None,
        *,
        tag: UUID | None = None,
        price: Decimal = Decimal(0),
        flight: Flight | None = None,
        cabin: Cabin = Cabin.FIRST,
        raw: bytes = b"",
        guest: Guest | None = None,
        guests: list[Guest] | None = None,
        bag: Bag | None = None,
        wait: timedelta = timedelta(0),
        row: tuple[int, str] = (0, ""),
        rows: set[int] = set(),  # noqa: B006
        by_row: dict[int, Cabin] = {},  # noqa: B006
        anything: Any = None,
    ) -> None:
        got.set_result(locals())

    async with working(app):
        await everything.send(*args, **kwargs)
        async with asyncio.timeout(10):
            seen = await got
        await counted(lab, "everything", succeed=1, fail=0)

    expected = {**kwargs, **({"when": args[0]} if args else {})}
    assert {name: seen[name] for name in expected} == expected
    assert {name: type(seen[name]) for name in expected} == {
        n: type(v) for n, v in expected.items()
    }


async def test_positional_only_and_starred_parameters_arrive_too(lab: Lab) -> None:
    app, calls = lab.app(), []

    @app.task()
    async def add(first: datetime, /, second: int = 2, *more: Decimal, **named: UUID) -> None:
        calls.append((first, second, more, named))

    async with working(app):
        await add.send(NOW)
        await counted(lab, "add", succeed=1)
        await add.send(NOW, 3, Decimal("1.5"), Decimal(2), named=TAG)
        await counted(lab, "add", succeed=2)

    assert calls == [
        (NOW, 2, (), {}),
        (NOW, 3, (Decimal("1.5"), Decimal(2)), {"named": TAG}),
    ]


async def test_a_task_that_is_called_runs_here_and_now(lab: Lab) -> None:
    app = lab.app()

    @app.task()
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    @app.task("later")
    async def triple(number: int) -> int:
        return 3 * number

    assert (double(4), await triple(4)) == (8, 12)
    assert (double.__name__, double.__doc__, double.name) == (
        "double",
        "Twice the number.",
        "double",
    )
    assert (triple.__name__, triple.name, repr(triple)) == ("triple", "later", "<Task later>")
    assert lab.redis.dbsize() == 0


async def test_a_sync_task_runs_in_a_thread_and_can_be_sent_without_asyncio(lab: Lab) -> None:
    app, names, loop_thread = lab.app(), [], threading.get_ident()

    @app.task()
    def note(name: str) -> None:
        assert threading.get_ident() != loop_thread
        names.append(name)

    async with working(app):
        note.send_sync("a")
        note.send_sync(name="b")
        await counted(lab, "note", succeed=2, fail=0)

    assert sorted(names) == ["a", "b"]


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("value", [False, None, 0, "x", ConsumeResult.FAILURE])
async def test_what_a_task_returns_means_nothing(lab: Lab, value: Any, middleware: bool) -> None:
    app = lab.app()
    if middleware:

        @app.middleware
        async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
            return await call_next(message)

    @app.task()
    async def promises() -> ConsumeResult:
        return value  # type: ignore[no-any-return]

    @app.task(max_retries=0)
    def runs_in_a_thread() -> bool:
        return value  # type: ignore[no-any-return]

    async with working(app):
        await promises.send()
        await runs_in_a_thread.send()
        await counted(lab, "promises", succeed=1, fail=0, dead=0)
        await counted(lab, "runs_in_a_thread", succeed=1, fail=0, dead=0)


async def test_what_a_task_raises_and_what_middleware_answers_decides(lab: Lab) -> None:
    app = lab.app()

    @app.middleware
    async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        result = await call_next(message)
        return ConsumeResult.dead_letter("not here") if message.group == "vetoed" else result

    @app.task(max_retries=0)
    async def raises() -> bool:
        raise ValueError("no seat")

    @app.task()
    async def vetoed() -> None: ...

    @app.task(max_retries=0)
    def never_runs() -> Any:
        return (n for n in range(3))  # a generator that nobody runs: the work was not done

    async with working(app):
        for task in (raises, vetoed, never_runs):
            await task.send()
        errors = [(await only_dead_letter(lab, app, t.name)).error for t in (raises, vetoed)]
        unrun = await only_dead_letter(lab, app, "never_runs")
    assert errors == ["ValueError: no seat", "not here"]
    assert "nobody ran" in unrun.error


def test_none_is_cannot_be_given_for_a_task(lab: Lab) -> None:
    app = lab.app()

    for none_is in ("failure", "success"):
        with pytest.raises(InvalidArgument, match=f"none_is '{none_is}' is not for tasks"):

            @app.task(none_is=none_is)
            def anything() -> None: ...

    assert parts_of(app).consumers == []


async def test_options_give_the_message_its_delay_id_tag_and_keys(lab: Lab) -> None:
    app = lab.app()

    @app.task()
    async def send_email(to: str) -> None: ...

    once = send_email.options(id="mail-1", delay="1h", tag="web", keys="k1", headers={"h": "1"})
    first = await once.send("a@example.org")
    second = await once.send(to="a@example.org")  # by name or by place: the same call
    message = await app.admin.message("mail-1")

    assert (first, first.duplicate, second.duplicate) == ("mail-1", False, True)
    assert (message.tag, message.keys, message.headers) == ("web", ("k1",), {"h": "1"})
    assert message.body == {"kwargs": {"to": "a@example.org"}}


async def test_a_delayed_task_runs_after_its_delay(lab: Lab) -> None:
    app, seen = lab.app(), asyncio.Event()

    @app.task()
    async def later() -> None:
        seen.set()

    async with working(app):
        loop = asyncio.get_running_loop()
        start = loop.time()
        await later.options(delay="100ms").send()
        async with asyncio.timeout(5):
            await seen.wait()
        assert loop.time() - start >= 0.1


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((), {}, InvalidArgument, "missing a required argument: 'number'"),
    ((1, NOW, 3, 4), {}, InvalidArgument, "too many positional arguments"),
    ((1,), {"other": 1}, InvalidArgument, "unexpected keyword argument 'other'"),
    (("one",), {}, BodyMismatch, "argument number is not a valid int"),
    ((1,), {"when": "yesterday"}, BodyMismatch, "argument when is not a valid datetime"),
    ((1,), {"when": Unknown()}, CodecError, "has no JSON form"),
    ((1,), {"free": NOW}, CodecError, "body.kwargs.free"),
]


@pytest.mark.parametrize(("args", "kwargs", "error", "text"), WRONG)
async def test_wrong_arguments_are_refused_before_anything_is_written(
    lab: Lab, args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], text: str
) -> None:
    app = lab.app()

    @app.task()
    async def count(number: int, when: datetime = NOW, free: Any = None) -> None: ...

    with pytest.raises(error, match=text):
        await count.send(*args, **kwargs)
    with pytest.raises(error, match=text):
        count.send_sync(*args, **kwargs)
    assert await app.admin.topics() == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("text", "the body is not a call of a task"),
        ({"kwargs": {"number": 1}, "more": 1}, "the body is not a call of a task"),
        ({"args": 1}, "the body is not a call of a task"),
        ({"kwargs": {}}, "missing a required argument: 'number'"),
        ({"kwargs": {"number": "x"}}, "argument number is not a valid int"),
    ],
)
async def test_a_stored_call_that_does_not_fit_any_more_is_dead_lettered_at_once(
    lab: Lab, body: Any, reason: str
) -> None:
    app = lab.app()

    @app.task()
    async def count(number: int) -> None: ...

    async with working(app):
        await app.publish("count", body)
        dead_letter = await only_dead_letter(lab, app, "count")

    assert (dead_letter.cause, dead_letter.attempt) == ("mismatch", 1)
    assert reason in dead_letter.error


async def test_a_mismatch_inside_a_handler_is_its_own_failure_and_is_retried(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.task()
    async def count(number: int) -> None: ...

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms"))
    async def handle(message: Any) -> None:
        seen.add(message)
        await count.send("one" if message.attempt == 1 else 1)  # type: ignore[arg-type]

    async with working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1, fail=1)


def test_a_task_whose_name_is_taken_or_impossible_is_refused(lab: Lab) -> None:
    app = lab.app()

    @app.task()
    def send() -> None: ...

    with pytest.raises(ConfigError, match="two handlers for topic 'send'"):
        app.task("send")(lambda: None)
    with pytest.raises(InvalidArgument, match="topic"):
        app.task()(lambda: None)
    with pytest.raises(ConfigError, match="Unknown is not a dataclass"):

        @app.task()
        def take(value: Unknown) -> None: ...


async def test_a_task_needs_no_parentheses(lab: Lab) -> None:
    app = lab.app()
    got: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @app.task
    async def greet(name: str) -> str:
        got.set_result(name)
        return name

    assert greet.name == "greet"
    assert await greet("here") == "here"
    got = asyncio.get_running_loop().create_future()
    async with working(app):
        await greet.send("Ada")
        assert await asyncio.wait_for(got, 10) == "Ada"


def test_a_function_is_no_topic(lab: Lab) -> None:
    topic: Any = lab.app().topic
    with pytest.raises(InvalidArgument, match="is builtin_function_or_method, not str"):
        topic(print)


@pytest.mark.parametrize("name", ["delay", "apply_async", "enqueue", "kiq", "send_with_options"])
def test_the_verbs_of_other_libraries_name_ours(lab: Lab, name: str) -> None:
    @lab.app().task
    def task() -> None:
        """Do nothing."""

    with pytest.raises(AttributeError, match=r"send(_sync)?\("):
        getattr(task, name)
    assert not hasattr(task, name)
    assert not hasattr(task, "nothing")


def test_a_task_can_be_copied(lab: Lab) -> None:
    """An instance that is being made has no name yet, and asks itself for `__setstate__`."""

    @lab.app().task
    def add(a: int, b: int) -> int:
        return a + b

    twin = copy.copy(add)
    assert (twin(1, 2), twin.name) == (3, "add")
    with pytest.raises(AttributeError, match=r"has no attribute '__setstate__'"):
        _ = type(add).__new__(type(add)).__setstate__


async def test_a_keyword_may_have_any_name(lab: Lab) -> None:
    app, names = lab.app(), ("self", "args", "kwargs", "function", "call", "handler", "message")
    got: list[dict[str, Any]] = []

    @app.task
    def note(value: int, **others: int) -> int:
        got.append({"value": value, **others})
        return value

    given = dict.fromkeys(names, 1)
    assert note(0, **given) == 0
    async with working(app):
        await note.send(1, **given)
        await asyncio.to_thread(note.send_sync, 2, **given)
        await note.options(tag="x").send(3, **given)
        await counted(lab, "note", succeed=3)
    assert sorted(one.pop("value") for one in got) == [0, 1, 2, 3]
    assert all(one == given for one in got)
