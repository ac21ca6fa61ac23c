"""A result that cannot be told: it is told again until the lease is lost (semantics.md 6, 3)."""

import logging
from typing import Any

import pytest

from rqretry import App, Message
from tests.integration.harness import NAMESPACE, Seen, counted, until
from tests.integration.harness import Lab as LiveLab
from tests.support.faults.proxy import FaultProxy, proxied
from tests.support.faults.rules import Fault, always


def cutting(proxy: FaultProxy, seen: Seen, visibility: float) -> App:
    """An app whose first attempt finds, when it is over, that its server cannot be reached."""
    app = App(proxy.url, namespace=NAMESPACE)

    @app.consumer("t", group="g", visibility=visibility)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        proxy.rules = always(Fault.DROP_REQUEST) if message.attempt == 1 else []

    return app


@pytest.mark.parametrize(
    ("visibility", "said", "lease"),
    [(30, "settling failed, trying again", 1), (1.5, "a result was refused", 2)],
    ids=["while the lease lasts", "until it is lost"],
)
async def test_a_result_is_told_again_until_the_lease_is_lost(
    live: LiveLab, caplog: pytest.LogCaptureFixture, visibility: float, said: str, lease: int
) -> None:
    seen = Seen()
    with caplog.at_level(logging.WARNING, "rqretry"):
        async with proxied(live.server) as proxy:
            app = cutting(proxy, seen, visibility)
            async with live.working(app) as worker:
                worker._store.repeat_seconds = 0.05
                live.client().publish("t", 1)
                await until(lambda: said in caplog.text)
                proxy.rules = []
                await counted(live, "g", succeed=1, lease=lease, fail=0)
            await app.aclose()
    # Nothing is tried again in the process itself: another delivery is another attempt.
    assert seen.attempts == list(range(1, lease + 1))
