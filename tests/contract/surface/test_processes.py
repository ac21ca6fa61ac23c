"""Handlers with `process=True`: what comes back, and what happens when the process does not."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rqretry import App, ConfigError, InvalidArgument, Message, RetryPolicy
from rqretry.consumer.process_pool import ProcessDied, ProcessSlot
from tests.contract.integration.harness import Lab, counted, until
from tests.contract.surface import handlers
from tests.contract.surface.harness import working
from tests.contract.surface.models import Stubborn

TWICE = RetryPolicy.fixed("1ms", max_retries=1)


def process_app(lab: Lab, handler: Any, **options: Any) -> App:
    app = lab.app()
    app.consumer("t", group="g", **{"process": True, "concurrency": 1, "policy": TWICE, **options})(
        handler
    )
    return app


async def test_a_handler_gets_message_and_body_and_its_signals_come_back(lab: Lab) -> None:
    app = process_app(lab, handlers.fly)
    async with working(app):
        await app.publish("t", {"number": 7, "carrier": "UA"}, tag="web", headers={"a": "b"})
        await counted(lab, "g", dead=1)
    (dead_record,) = await app.admin.dead_letters("g")
    assert (dead_record.cause, dead_record.error) == ("rejected", "Flight 7 1 g web")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("wrong", "ValueError: wrong"),
        ("stubborn", "Stubborn: it holds a lock"),
        ("picky", "Picky: it wants a code"),
        ("local", "Local: nobody can import it"),
        ("exit", "SystemExit: 3"),
    ],
)
async def test_the_failure_record_has_type_and_text_of_what_was_raised(
    lab: Lab, body: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = process_app(lab, handlers.fail_badly)
    async with working(app):
        await app.publish("t", body)
        await counted(lab, "g", dead=1, fail=2)
    (dead_record,) = await app.admin.dead_letters("g")
    kind, _, text = error.partition(": ")
    for found in dead_record.errors:
        assert found.type.rpartition(".")[2] == kind
        assert found.message == text
    assert dead_record.error.endswith(text)
    (logged,) = [line for line in caplog.messages if " failed, next in " in line]
    assert "(handlers.py:" in logged


async def test_one_error_at_two_places_has_two_fingerprints_and_its_own_traceback(lab: Lab) -> None:
    app = process_app(lab, handlers.fail_badly)
    app.consumer("t", group="h", process=True, concurrency=1, policy=TWICE)(handlers.other_place)
    async with working(app):
        await app.publish_many("t", ["wrong", "wrong"])
        await counted(lab, "g", dead=2)
        await counted(lab, "h", dead=2)
    dead_records = [dead_record for g in "gh" for dead_record in await app.admin.dead_letters(g)]
    fingerprints = [dead_record.errors[-1].fingerprint for dead_record in dead_records]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2] == fingerprints[3]


def test_retry_on_sees_the_class_of_an_exception_that_cannot_travel() -> None:
    slot = ProcessSlot()
    try:
        with pytest.raises(Stubborn, match="it holds a lock") as caught:
            slot.call(handlers.fail_badly, (_Body("stubborn"),), {})
        assert "fail_badly" in str(caught.value.__cause__)
    finally:
        slot.close()
    with pytest.raises(ProcessDied, match="stopping"):
        slot.call(handlers.fail_badly, (_Body("wrong"),), {})


def test_no_traceback_keeps_a_view_of_a_buffer() -> None:
    """In a cycle the collector of Python 3.12 frees the buffer first: SIGSEGV."""
    slot = ProcessSlot()
    try:
        with pytest.raises(ProcessDied) as caught:
            slot.call(handlers.die, (_Body("kill"),), {})
    finally:
        slot.close()
    frames = [entry.frame for entry in caught.traceback]
    assert any(frame.code.name == "call" for frame in frames)
    kept = [value for frame in frames for value in frame.f_locals.values()]
    assert not [value for value in kept if isinstance(value, memoryview)]


class _Body:
    def __init__(self, body: str) -> None:
        self.body = body


@pytest.mark.parametrize(("body", "ended"), [("die", "exit status 7"), ("kill", "SIGKILL")])
async def test_a_handler_that_takes_its_process_down_fails_its_own_attempt_alone(
    lab: Lab, body: str, ended: str
) -> None:
    app = process_app(lab, handlers.die)
    async with working(app):
        await app.publish_many("t", ["fine", body, "fine", "fine"])
        await counted(lab, "g", succeed=3, dead=1, fail=2, expire=0)
    (dead_record,) = await app.admin.dead_letters("g")
    assert (dead_record.body, dead_record.attempt) == (body, 2)
    assert dead_record.errors[-1].type == "ProcessDied"
    assert dead_record.errors[-1].message == f"the handler's process ended with {ended}"


async def test_consume_timeout_kills_the_process_and_the_slot_is_free_again(lab: Lab) -> None:
    app = process_app(lab, handlers.hang, consume_timeout=3, policy=RetryPolicy.fixed("1ms", 0))
    async with working(app) as worker:
        await app.publish("t", "warm")
        await counted(lab, "g", succeed=1)
        (slot,) = worker._consumers[0]._caller._slots  # type: ignore[attr-defined]
        pid = slot._process.pid
        await app.publish("t", "hang")
        await counted(lab, "g", dead=1)
        await app.publish("t", "fine")
        await counted(lab, "g", succeed=2, fail=1)
        assert slot._process.pid != pid
        assert not worker.needs_replacement
    (dead_record,) = await app.admin.dead_letters("g")
    assert dead_record.cause == "timeout"


async def test_a_worker_that_stops_gives_back_what_computes_and_leaves_no_process(lab: Lab) -> None:
    app = process_app(lab, handlers.slow)
    async with working(app, grace=0.1) as worker:
        await app.publish("t", 1)
        (slot,) = worker._consumers[0]._caller._slots  # type: ignore[attr-defined]
        await until(lambda: slot._process is not None)
        process = slot._process
        start = time.monotonic()
    assert time.monotonic() - start < 3
    await until(lambda: process.exitcode is not None)
    stats = lab.stats("g")
    assert (stats.ready, stats.inflight, stats.counters.get("fail", 0)) == (1, 0, 0)


async def test_values_that_cannot_travel_mean_what_they_mean_elsewhere(lab: Lab) -> None:
    app = process_app(lab, handlers.answer, policy=RetryPolicy.fixed("1ms", 0))
    app.consumer("u", group="h", process=True, concurrency=1, max_retries=0)(handlers.promised)
    async with working(app):
        await app.publish_many("t", ["generator", "module", "false"])
        await app.publish_many("u", ["yes", "no"])
        await counted(lab, "g", succeed=1, dead=2)
        await counted(lab, "h", succeed=1, dead=1)
    errors = {
        dead_record.body: dead_record.error for dead_record in await app.admin.dead_letters("g")
    }
    assert "nobody ran" in errors.pop("generator")
    assert errors == {"false": "handler returned False"}
    (dead_record,) = await app.admin.dead_letters("h")
    assert (dead_record.body, dead_record.error) == ("no", "handler returned False")


async def test_a_task_with_process_runs_elsewhere_and_can_be_called_here(
    lab: Lab, tmp_path: Path
) -> None:
    app, path = handlers._app, tmp_path / "ran"
    app.configure(lab.url, "test")
    try:
        async with working(app):
            await handlers.task.send("worker", str(path))
            await counted(lab, "record", succeed=1, fail=0)
        handlers.task("here", str(path))
    finally:
        await app.aclose()
    (there, pid), (here, mine) = [line.split() for line in path.read_text().splitlines()]
    assert (there, here, int(mine)) == ("worker", "here", os.getpid())
    assert int(pid) != os.getpid()


async def test_what_another_process_cannot_find_is_refused_when_it_is_registered(lab: Lab) -> None:
    app = lab.app()

    def local(message: Message[Any]) -> None: ...

    class Service:
        def handle(self, message: Message[Any]) -> None: ...

    for handler in (local, lambda message: None, Service().handle):
        with pytest.raises(ConfigError, match="must be a function at the top of a module"):
            app.consumer("t", group="g", process=True)(handler)
    with pytest.raises(InvalidArgument, match="is async and cannot run with process=True"):

        @app.consumer("t", group="g", process=True)
        async def handle(message: Message[Any]) -> None: ...


async def test_two_slots_compute_at_the_same_time(lab: Lab) -> None:
    app = process_app(lab, handlers.hang, concurrency=2)
    async with working(app, grace=0.1) as worker:
        await app.publish("t", "hang")
        await asyncio.wait_for(_running(worker, 1), 10)
        await app.publish("t", "fine")
        await counted(lab, "g", succeed=1)


async def _running(worker: Any, count: int) -> None:
    await until(lambda: len(worker._consumers[0].running) == count)


async def test_a_copy_that_a_handler_forked_does_not_answer_for_the_next_message(lab: Lab) -> None:
    app = process_app(lab, handlers.fork_once, policy=RetryPolicy.fixed("1ms", max_retries=0))
    async with working(app):
        await app.publish("t", "fork")
        await app.publish("t", "second")
        await counted(lab, "g", succeed=1, dead=1)
    (dead_record,) = await app.admin.dead_letters("g")
    assert dead_record.error == "ValueError: the second fails"
