"""A result that cannot be reported is reported again until the lease is lost."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from rqretry import App, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.observability import observer
from rqretry.observability.counters import Figures, Tally
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import NAMESPACE, Seen, counted, until
from tests.contract.integration.harness import Lab as LiveLab
from tests.support.faults.proxy import FaultProxy, proxied
from tests.support.faults.rules import Fault, Rule, always


def cutting(proxy: FaultProxy, seen: Seen, visibility: float) -> App:
    """An app whose first attempt finds, when it is over, that its server cannot be reached."""
    app = App(proxy.url, namespace=NAMESPACE)

    @app.consumer("t", group="g", visibility=visibility)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        proxy.rules = always(Fault.DROP_REQUEST) if message.attempt == 1 else []

    return app


@pytest.mark.parametrize(
    ("visibility", "logged", "lease"),
    [(30, "settling failed, trying again", 1), (1.5, "a result was rejected", 2)],
    ids=["while the lease lasts", "until it is lost"],
)
async def test_a_result_is_reported_again_until_the_lease_is_lost(
    live: LiveLab, caplog: pytest.LogCaptureFixture, visibility: float, logged: str, lease: int
) -> None:
    seen = Seen()
    with caplog.at_level(logging.WARNING, "rqretry"):
        async with proxied(live.server) as proxy:
            app = cutting(proxy, seen, visibility)
            async with live.working(app) as worker:
                worker._store.repeat_seconds = 0.05
                live.client().publish("t", 1)
                await until(lambda: logged in caplog.text)
                proxy.rules = []
                await counted(live, "g", succeed=1, lease=lease, fail=0)
            await app.aclose()
    # Nothing is tried again in the process itself: another delivery is another attempt.
    assert seen.attempts == list(range(1, lease + 1))


@pytest.fixture
def tally() -> Iterator[Tally]:
    """What a worker with a metrics port counts."""
    counting = Tally()
    observer.install(counting)
    yield counting
    observer.install(None)


def outcomes(tally: Tally) -> dict[str, float]:
    figures = Figures.read(tally.snapshot())
    return {outcome: count for (_, _, outcome), count in figures.attempts.items()}


def in_doubt(worker: Worker) -> bool:
    return any(place.outbox.doubts for place in worker._settler._dirty)


@pytest.mark.parametrize("again", ["while the lease lasts", "after it is over"])
@pytest.mark.parametrize("outcome", ["success", "failure", "dead_letter"])
async def test_a_result_whose_answer_is_lost_is_counted_as_the_history_has_it(
    live: LiveLab, tally: Tally, outcome: str, again: str
) -> None:
    verb = "succeed" if outcome == "success" else "fail"
    lasts = again == "while the lease lasts"
    async with proxied(live.server) as proxy:
        app, died = App(proxy.url, namespace=NAMESPACE), list[str]()
        retries = 0 if outcome == "dead_letter" else 1
        policy = RetryPolicy.fixed("1h", max_retries=retries)

        @app.on("dead_letter")
        async def hear(event: Any) -> None:
            died.append(event.message_id)

        @app.consumer("t", group="g", visibility=30 if lasts else 1, policy=policy)
        async def handle(message: Message[Any]) -> None:
            later = [] if lasts else always(Fault.DROP_REQUEST, verb)
            proxy.rules = [Rule(Fault.DROP_REPLY, verb), *later]
            if verb == "fail":
                raise ValueError(message.body)

        async with live.working(app, hooks=parts_of(app).hooks) as worker:
            worker._store.repeat_seconds = 0.05
            id_ = live.client().publish("t", 1)
            await until(lambda: (verb, Fault.DROP_REPLY) in proxy.struck)
            if not lasts:
                await until(lambda: outcomes(tally) != {} or in_doubt(worker))
                proxy.rules = []
            await until(lambda: outcomes(tally) != {})
            assert outcomes(tally) == {outcome: 1}
            await counted(live, "g", lease=1, **{verb: 1})
            wanted = [id_] if outcome == "dead_letter" else []
            await until(lambda: died == wanted)
        await app.aclose()


async def test_a_result_that_was_never_taken_is_counted_as_refused(
    live: LiveLab, tally: Tally
) -> None:
    seen = Seen()
    async with proxied(live.server) as proxy:
        app = cutting(proxy, seen, 1)
        async with live.working(app) as worker:
            worker._store.repeat_seconds = 0.05
            live.client().publish("t", 1)
            await until(lambda: outcomes(tally) != {} or in_doubt(worker))
            proxy.rules = []
            await counted(live, "g", succeed=1, lease=2, fail=0)
            await until(lambda: len(outcomes(tally)) == 2)
        await app.aclose()
    assert outcomes(tally) == {"stale": 1, "success": 1}
