"""Middleware, callbacks for events, lifespan, include, and running inside another program."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rqretry import App, ConfigError, ConsumeResult, InvalidArgument, Message, Retry, RetryPolicy
from rqretry.core import middleware
from rqretry.core.middleware import Announcer, Callback, CallNext, Event, EventName, Hooks
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab, Seen, counted, until
from tests.contract.surface.handlers import describe
from tests.contract.surface.harness import only_dead_letter, working
from tests.contract.surface.models import Flight, returned

ONCE = RetryPolicy.fixed("1ms", max_retries=0)
TWICE = RetryPolicy.fixed("1ms", max_retries=1)


# -- middleware ------------------------------------------------------------------------------------


async def test_the_first_middleware_is_the_outermost_and_all_see_the_result(lab: Lab) -> None:
    app, stated = lab.app(), []

    def add(name: str) -> None:
        @app.middleware
        async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
            stated.append(f"{name} {message.body}")
            result = await call_next(message)
            stated.append(f"{name} {result!r}")
            return result

    add("outer")
    add("inner")

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        stated.append("handler")

    async with working(app):
        await app.publish("t", 7)
        await counted(lab, "g", succeed=1)
    success = repr(ConsumeResult.SUCCESS)
    assert stated == [
        "outer 7",
        "inner 7",
        "handler",
        f"inner {success}",
        f"outer {success}",
    ]


async def test_middleware_sees_signals_as_results_and_errors_as_exceptions(lab: Lab) -> None:
    app, stated = lab.app(), []

    @app.middleware
    async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        try:
            result = await call_next(message)
        except ValueError as error:
            stated.append(str(error))
            raise
        stated.append(result.reason or "success")
        return result

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms", max_retries=5))
    def handle(message: Message[Any]) -> ConsumeResult:
        if message.attempt == 1:
            raise Retry(after=0, reason="not yet")
        if message.attempt == 2:
            raise ValueError("wrong")
        return ConsumeResult.SUCCESS

    async with working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1, fail=2)
    assert stated == ["not yet", "wrong", "success"]


async def test_middleware_may_answer_itself_change_the_body_and_call_again(lab: Lab) -> None:
    app, bodies = lab.app(), []

    @app.middleware
    async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        if message.tag == "skip":
            return ConsumeResult.SUCCESS
        message.body = {**message.body, "carrier": "UA"}
        await call_next(message)
        return await call_next(message)

    @app.consumer("t", group="g")
    async def handle(flight: Flight) -> None:
        bodies.append(flight)

    async with working(app):
        await app.publish("t", {"number": 1})
        await app.publish("t", {"number": 2}, tag="skip")
        await counted(lab, "g", succeed=2, fail=0)
    assert bodies == [Flight(1, "UA")] * 2


async def test_middleware_is_around_sync_tasks_and_process_handlers_too(lab: Lab) -> None:
    app, names = lab.app(), []

    @app.middleware
    async def around(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        result = await call_next(message)
        names.append((message.topic, result))
        return result

    app.consumer("process", group="g", process=True, concurrency=1)(describe)
    note = app.task("thread")(print_nothing)
    async with working(app):
        await app.publish("process", 1)
        await note.send(1)
        await counted(lab, "thread", succeed=1)
        await counted(lab, "g", succeed=1)
    assert sorted(names) == [
        ("process", ConsumeResult.SUCCESS),
        ("thread", ConsumeResult.SUCCESS),
    ]


def print_nothing(_value: int) -> str:
    return "nothing"


async def test_middleware_that_forgets_the_result_fails_the_attempt(lab: Lab) -> None:
    app = lab.app()

    @app.middleware
    async def forgets(message: Message[Any], call_next: CallNext) -> ConsumeResult:
        await call_next(message)
        nothing: ConsumeResult = returned(None)
        return nothing

    app.consumer("t", group="g", policy=ONCE)(lambda _: None)
    async with working(app):
        await app.publish("t", 1)
        dead_letter = await only_dead_letter(lab, app, "g")
    assert "forgets" in dead_letter.error
    assert "return what call_next returned" in dead_letter.error


async def test_without_middleware_nothing_stands_between_a_slot_and_its_handler(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g")(lambda _: None)
    async with working(app) as worker:
        (consumer,) = worker._consumers
        assert consumer.execution._call == consumer._caller.call


def test_middleware_that_is_not_async_and_unknown_events_are_refused(lab: Lab) -> None:
    app = lab.app()
    with pytest.raises(InvalidArgument, match="must be an async function"):
        app.middleware(returned(lambda message, call_next: None))
    with pytest.raises(InvalidArgument, match="must be one of failure, dead_letter"):
        app.on("fialure")(print)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="must be a function"):
        app.on("failure")(returned(1))


# -- events ----------------------------------------------------------------------------------------


async def test_events_report_of_failures_dead_letters_start_and_stop(lab: Lab) -> None:
    app = lab.app()
    events: list[Event] = []
    for name in ("started", "failure", "dead_letter", "stopped"):
        app.on(name)(events.append)

    @app.consumer("t", group="g", policy=TWICE)
    async def handle(message: Message[Any]) -> None:
        raise ValueError("wrong")

    async with working(app) as worker:
        id_ = await app.publish("t", 1)
        await until(lambda: len(events) == 4)
        due = events[1].next_due_ms
        (dead,) = await app.admin.dead_letters("g")
    assert isinstance(due, int)
    kind = dead.fingerprint
    common = (worker.name, "g", "t", str(id_))
    assert events == [
        Event("started", worker.name),
        Event("failure", *common, 1, "ValueError: wrong", due, kind),
        Event("failure", *common, 2, "ValueError: wrong", None, kind),
        Event("dead_letter", *common, 2, "ValueError: wrong", None, kind),
        Event("stopped", worker.name),
    ]


async def cancels_itself(_event: Event) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("event", ["started", "failure", "stopped"])
@pytest.mark.parametrize("callback", [lambda _: sys.exit(3), cancels_itself])
async def test_a_callback_that_exits_or_is_cancelled_ends_nothing(
    lab: Lab, event: EventName, callback: Callback
) -> None:
    app = lab.app()
    app.on(event)(callback)
    app.consumer("t", group="g", policy=ONCE)(lambda message: message.body != "bad")
    async with working(app):
        await app.publish_many("t", ["bad", "good"])
        await counted(lab, "g", succeed=1, dead=1)
        await app.publish_many("t", ["bad", "good"])
        await counted(lab, "g", succeed=2, dead=2)


@pytest.mark.parametrize("event", ["started", "failure", "stopped"])
async def test_a_callback_that_hangs_holds_up_neither_messages_nor_the_end(
    lab: Lab, event: EventName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "LAST_CALLBACKS_S", 0.01)
    app, begun = lab.app(), asyncio.Event()

    @app.on(event)
    async def hangs(_event: Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    app.consumer("t", group="g", policy=ONCE)(lambda message: message.body != "bad")
    async with working(app):
        await app.publish_many("t", ["bad", "good"])
        await counted(lab, "g", succeed=1, dead=1)
    assert begun.is_set()


async def test_events_that_wait_for_a_callback_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks, heard, begun = Hooks(), [], asyncio.Event()
    free = asyncio.Event()

    async def slow(event: Event) -> None:
        begun.set()
        await free.wait()
        heard.append(event.attempt)

    hooks.add_callback("failure", slow)
    announcer = Announcer(hooks)
    running = asyncio.create_task(announcer.run())
    announcer.post(Event("failure", "w", attempt=-1))
    await begun.wait()
    for attempt in range(1007):
        announcer.post(Event("failure", "w", attempt=attempt))
    free.set()
    await announcer.close(Event("stopped", "w"))
    running.cancel()
    assert sorted(heard) == [-1, *range(8, 1007)]
    assert "the oldest were dropped, 1 since" in caplog.text


async def test_a_lost_lease_is_reported_of(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    events: list[Event] = []

    @app.on("lease_lost")
    async def note(event: Event) -> None:
        events.append(event)

    @app.consumer("t", group="g", visibility=0.3)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.attempt == 1:
            await asyncio.sleep(30)

    async with working(app) as worker:
        id_ = await app.publish("t", 1)
        (message,) = await seen.count(1)
        # As the heartbeat does when the server says that the lease is not ours any more.
        (consumer,) = worker._consumers
        (delivery,) = consumer.running
        consumer.running.lose(delivery)
        await until(lambda: bool(events))
        assert message.cancelled
        await counted(lab, "g", succeed=1, expire=1)
    assert events == [Event("lease_lost", worker.name, "g", "t", str(id_), 1)]


async def test_a_callback_that_fails_is_logged_and_harms_nobody(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app = lab.app()
    events: list[Event] = []

    @app.on("failure")
    async def broken(event: Event) -> None:
        raise RuntimeError("no network")

    app.on("failure")(events.append)

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms"))
    async def handle(message: Message[Any]) -> ConsumeResult:
        return ConsumeResult.SUCCESS if message.attempt > 1 else ConsumeResult.failure("later")

    with caplog.at_level(logging.ERROR, "rqretry"):
        async with working(app):
            await app.publish("t", 1)
            await counted(lab, "g", succeed=1, fail=1)
            await until(lambda: bool(events))
    (record,) = [r for r in caplog.records if "callback" in r.getMessage()]
    assert "broken" in record.getMessage()
    assert record.exc_info is not None
    assert events[0].reason == "later"


# -- lifespan, include, run ------------------------------------------------------------------------


class Pool:
    """What a lifespan would open."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @asynccontextmanager
    async def lifespan(self, _app: App) -> AsyncIterator["Pool"]:
        self.log.append("opened")
        try:
            yield self
        finally:
            self.log.append("closed")


async def test_a_lifespan_is_entered_once_and_left_after_the_last_message(lab: Lab) -> None:
    pool, seen = Pool(), Seen()
    app = lab.app(lifespan=pool.lifespan)

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        app.state.log.append(message.body)
        seen.add(message)

    assert app.state is None
    running = asyncio.ensure_future(app.run(signals=False))
    await lab.app().publish("t", "one")
    await seen.count(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert pool.log == ["opened", "one", "closed"]
    assert app.state is None
    await app.publish("t", "after")  # the app that embeds a worker goes on publishing
    assert (lab.stats("g").ready, lab.stats("g").counters["succeed"]) == (1, 1)


async def test_a_lifespan_is_left_when_the_worker_fails(lab: Lab) -> None:
    pool = Pool()
    app = lab.app(lifespan=pool.lifespan)
    with pytest.raises(ConfigError, match="no consumers"):
        await app.run(signals=False)
    assert pool.log == ["opened", "closed"]


async def test_a_cancelled_run_lets_running_handlers_finish(lab: Lab) -> None:
    app, seen, go_on, finished = lab.app(), Seen(), asyncio.Event(), []

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        await go_on.wait()
        finished.append(message.body)

    running = asyncio.ensure_future(app.run(signals=False, concurrency=1))
    await lab.app().publish_many("t", [1, 2])
    await seen.count(1)
    running.cancel()
    await asyncio.wait([running], timeout=0.05)
    assert not running.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (seen.bodies, finished) == ([1], [1])
    assert (lab.stats("g").ready, lab.stats("g").counters["succeed"]) == (1, 1)


async def test_a_signal_stops_a_run_gracefully_and_the_old_handler_is_back(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    app.on("started")(lambda _: seen.add(returned("started")))

    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.ensure_future(app.run())
    await seen.count(1)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await running

    assert signal.getsignal(signal.SIGTERM) == before


async def test_include_imports_modules_whose_consumers_run(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "surface_shop.py").write_text(
        "from rqretry import App\n"
        f"app = App({lab.url!r}, namespace='test', include=['surface_billing'])\n"
    )
    (tmp_path / "surface_billing.py").write_text(
        "from surface_shop import app\n\n"
        "@app.consumer('orders', group='billing')\n"
        "async def bill(message):\n"
        "    pass\n"
    )
    try:
        app: App = __import__("surface_shop").app
        assert len(parts_of(app).consumers) == 0
        async with working(app):
            await app.publish("orders", 1)
            await counted(lab, "billing", succeed=1)
        await app.aclose()
    finally:
        for name in ("surface_shop", "surface_billing"):
            sys.modules.pop(name, None)
