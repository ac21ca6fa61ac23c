"""What a worker registers of what it does."""

import json
from typing import Any

import pytest

from rqretry.catalog.catalog import Catalog
from rqretry.core.redis_url import RedisUrl
from rqretry.core.worker_info import groups_of
from rqretry.transport.store import Store
from rqretry.worker.registration import Activity, Registration


def test_it_says_how_much_it_finished_a_second_in_the_last_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, done = [100.0], {("t", "g"): 5}
    slots = {"g": (2, 8), "h": (0, 1)}
    monkeypatch.setattr("rqretry.worker.registration.time.monotonic", lambda: now[0])
    store = Store(RedisUrl.parse("redis://127.0.0.1:1"))
    registered = Registration(
        store, Catalog("n"), "w", [], activity=lambda: Activity(slots, 3, done)
    )

    def about() -> Any:
        command = registered.blocked(1)
        return groups_of(next(arg for arg in map(str, command.args) if arg.startswith("{")))

    assert about().rates == {}
    for now[0], done["t", "g"], rate in ((110.0, 25, 2.0), (150.0, 105, 2.0), (165.0, 105, 1.455)):
        assert about().rates == {("t", "g"): pytest.approx(rate, abs=0.001)}
    now[0] = 300.0
    about()
    now[0] = 310.0
    assert about().rates == {}
    assert about().slots == slots
    assert json.loads(json.dumps(about().facts["of"])) == {"g": [2, 8], "h": [0, 1]}
