"""A private server for the programs in workers/, whose apps are made when they are imported."""

from collections.abc import AsyncIterator, Callable

import pytest

from rqretry import App
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import NAMESPACE, Lab
from tests.support.soundness import assert_sound


@pytest.fixture
async def lab(redis_server: EmbeddedRedis) -> AsyncIterator[Lab]:
    lab = Lab(redis_server)
    lab.redis.flushall()
    yield lab
    assert_sound(parts_of(lab.client()).store, NAMESPACE)
    await lab.aclose()


@pytest.fixture
def placed(lab: Lab) -> Callable[[App], App]:
    """Point the app of a program to the test's server, as --url and --namespace do."""

    def place(app: App) -> App:
        app.configure(lab.url, NAMESPACE)
        return app

    return place
