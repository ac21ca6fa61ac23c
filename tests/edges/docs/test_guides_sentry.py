"""docs/guides/sentry.md: failures become events of the real SDK, with tags and without bodies."""

import json
import logging
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from rqretry import App, ConsumeResult, Message
from rqretry.contrib.sentry import capture_failures
from rqretry.testing import Lab
from tests.edges.docs.examples import example

Events = list[dict[str, Any]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    """What would be sent to Sentry."""
    found: Events = []

    class Recorder(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            event = envelope.get_event()
            if event is not None:
                found.append(json.loads(json.dumps(event)))

    # Without the integrations that would change other libraries for the rest of this process.
    init = partial(
        sentry_sdk.init,
        "http://key@127.0.0.1:9/1",
        transport=Recorder,
        default_integrations=False,
        integrations=[LoggingIntegration()],
    )
    init()
    monkeypatch.setattr(sentry_sdk, "init", init)
    yield found
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def tags(event: dict[str, Any]) -> dict[str, str]:
    return {name.removeprefix("rqretry."): value for name, value in event["tags"].items()}


def test_the_program_sends_one_event_when_the_message_is_dead(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with example("sentry_shop") as shop, Lab(shop.app) as lab:
        shop.charge.send_sync(card="4111-secret", amount=7)
        lab.run_until_idle()
        assert events == []
        lab.advance("1h")
        (dead,) = lab.admin.dead_letters("charge")
    (event,) = events
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ConnectionError", "the bank does not answer")
    assert raised["stacktrace"]["frames"][-1]["function"] == "charge"
    assert event["level"] == "error"
    assert tags(event) == {
        "group": "charge",
        "topic": "charge",
        "message_id": dead.id,
        "attempt": "3",
        "fingerprint": dead.fingerprint,
    }
    logged = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
    assert logged.count("charging 7") == 1  # of this attempt alone
    assert "4111-secret" not in json.dumps(event)


def test_retried_failures_are_warnings_where_they_are_asked_for(events: Events, lab: Lab) -> None:
    app = App()
    capture_failures(app, retried=True)

    @app.consumer("orders", group="g", max_retries=1)
    async def fail(message: Message[Any]) -> None:
        sentry_sdk.capture_message("in the handler")
        raise KeyError(message.body)

    lab.app(app)
    lab.publish("orders", "nope")
    lab.advance("1m")
    seen = [(event["level"], tags(event).get("attempt"), "exception" in event) for event in events]
    own, retried, own_again, final = seen
    assert own == ("info", "1", False)
    assert retried == ("warning", "1", True)
    assert own_again == ("info", "2", False)
    assert final == ("error", "2", True)


def test_bodies_are_sent_where_they_are_asked_for(events: Events, lab: Lab) -> None:
    app = App()
    capture_failures(app, bodies=True)

    @app.consumer("orders", group="g", max_retries=0)
    def fail(message: Message[Any]) -> None:
        order = message.body
        raise KeyError(order["id"])

    lab.app(app)
    lab.publish("orders", {"id": 7})
    lab.run_until_idle()
    (event,) = events
    assert event["contexts"]["message"]["body"] == {"id": 7}
    frame = event["exception"]["values"][0]["stacktrace"]["frames"][-1]
    assert frame["vars"]["order"] == {"id": "7"}


def test_a_failure_without_an_exception_is_an_event_with_its_reason(
    events: Events, lab: Lab
) -> None:
    app = App()
    capture_failures(app)

    @app.consumer("orders", group="g")
    async def reject(message: Message[Any]) -> ConsumeResult:
        return ConsumeResult.dead_letter("no such order")

    lab.app(app)
    lab.publish("orders", "wrong")
    lab.run_until_idle()
    (event,) = events
    assert event["message"] == "group g: no such order"
    assert tags(event)["attempt"] == "1"


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rqretry.contrib.sentry")
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'rqretry\[sentry\]'"):
        import rqretry.contrib.sentry  # noqa: F401, PLC0415
