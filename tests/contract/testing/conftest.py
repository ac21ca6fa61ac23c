"""Each test of the lab runs on both servers; at its end the data must agree with itself."""

from collections.abc import Iterator

import pytest

from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from tests.support.soundness import assert_sound


@pytest.fixture(params=["redis", "fakeredis"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab of the plugin, on a real Redis and on fakeredis."""
    made: Lab = request.getfixturevalue(f"lab_{request.param}")
    yield made
    assert_sound(parts_of(made.client).store, made.namespace)
