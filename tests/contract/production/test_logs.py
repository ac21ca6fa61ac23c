"""What a worker logs: one line per record, JSON where a machine reads it, nothing that hides."""

import io
import json
import logging
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from rqretry.observability.log_format import (
    AttemptFacts,
    JsonFormatter,
    MessageFilter,
    TextFormatter,
    about,
    default_format,
    within_attempt,
)
from tests.contract.production.conftest import Service, Site, until

NASTY = "no such\r\nflight \x1b[31m\u202e {"


def made_dead(site: Site, service: Service) -> str:
    """The id of a message that was dead-lettered for a nasty reason."""
    id_ = site.client.publish("odd", ["die", NASTY])
    until(lambda: site.stats("odd").dead == 1, say=service.diagnosis)
    service.says("dead letter")
    return str(id_)


@pytest.mark.chaos
def test_off_a_terminal_every_line_is_json_and_names_its_message(site: Site) -> None:
    service = site.ready()
    id_ = made_dead(site, service)
    (pid,) = service.pids()
    service.stop()

    (dead,) = [r for r in service.records() if r["message"].startswith("dead letter")]

    when = datetime.fromisoformat(dead.pop("ts"))
    assert when.utcoffset() == timedelta(0)
    assert dead == {
        "level": "warning",
        "logger": "rqretry",
        "message": f"dead letter: message {id_} of odd, group odd, after 1 delivery: {NASTY}",
        "pid": pid,
        "message_id": id_,
        "topic": "odd",
        "group": "odd",
        "attempt": 1,
    }


@pytest.mark.chaos
def test_as_text_a_dead_letter_is_one_readable_line(site: Site) -> None:
    service = site.ready("--log-format", "text", "--log-level", "warning")
    id_ = made_dead(site, service)
    service.stop()

    (line,) = service.log_path.read_text().splitlines()

    shown = r"no such\r\nflight \x1b[31m\u202e {"
    assert line.endswith(
        f" WARNING dead letter: message {id_} of odd, group odd, after 1 delivery: {shown}"
    )


@pytest.mark.chaos
def test_at_level_debug_a_failed_attempt_is_reported_once(site: Site) -> None:
    service = site.ready("--log-level", "debug")
    site.client.publish("many", 0)
    service.says("failed, next in ")
    service.stop()
    (record,) = [r for r in service.records() if " failed, next in " in r["message"]]
    assert (record["attempt"], record["level"]) == (1, "warning")
    assert "ValueError: once" in record["message"]


@pytest.mark.chaos
@pytest.mark.parametrize("how", ["async", "thread", "process"])
def test_what_a_handler_logs_names_its_message_and_only_its_own(site: Site, how: str) -> None:
    service = site.ready("--log-level", "info", app="talker:app")
    topic = f"talk-{how}"
    ids = site.client.publish_many(topic, range(6))
    until(lambda: site.stats(f"g-{how}").counters.get("succeed") == 6, say=service.diagnosis)
    service.stop()

    shown = [r for r in service.records() if r["logger"] == "talker" and how in r["message"]]
    assert len(shown) == 3 * 6  # at the first attempt, which fails, at the second, and in a helper
    for line in shown:
        assert (line["topic"], line["group"]) == (topic, f"g-{how}")
        assert line["message"].split()[1:3] == [line["message_id"], str(line["attempt"])]
    assert {line["message_id"] for line in shown} == set(ids)
    assert {line["attempt"] for line in shown} == {1, 2}
    (outside,) = [r for r in service.records() if r["message"] == "outside of any attempt"]
    assert "message_id" not in outside


def test_a_filter_adds_the_message_to_the_records_of_its_context_and_to_no_other() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter())
    handler.addFilter(MessageFilter())
    logger = logging.getLogger("test-of-the-filter")
    logger.propagate = False
    logger.addHandler(handler)

    logger.warning("before")
    with within_attempt(AttemptFacts("m1", "orders", "billing", 3, None)):
        logger.warning("inside")
        logger.warning("of another", extra=about("m2", "t", "g", 1))
    logger.warning("after")

    lines = [line.split(" WARNING ")[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "before",
        "inside [message m1 of orders, group billing, attempt 3]",
        "of another",
        "after",
    ]


def record(text: str, error: BaseException | None = None) -> logging.LogRecord:
    trace = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("shop", logging.ERROR, __file__, 1, text, None, trace)
    made.__dict__.update(about("id", "t", "g", 2))
    return made


def test_a_traceback_stays_inside_its_record() -> None:
    made = record("it failed", ValueError("first\n2026-01-01 00:00:00,000 INFO all is well\x07"))

    line = json.loads(JsonFormatter().format(made))
    first, *rest = TextFormatter().format(made).splitlines()

    assert line["exception"].startswith("ValueError: first\n")
    assert first.endswith("ERROR it failed")
    assert all(row.startswith("    ") for row in rest)
    assert rest[-1] == r"    2026-01-01 00:00:00,000 INFO all is well\x07"


def test_json_lines_are_ascii_whatever_the_message_holds() -> None:
    line = JsonFormatter().format(record("a\nb\u2028c\udc80"))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == "a\nb\u2028c\udc80"


def test_the_default_is_text_for_people_and_json_for_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert default_format(io.StringIO()) == "json"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert default_format(sys.stderr) == "text"


def formatted(logger_extra: dict[str, Any]) -> dict[str, Any]:
    """A handler's record with this `extra`, as JSON."""
    made = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, __file__, 1, "charged", (), None, extra=logger_extra
    )
    MessageFilter().filter(made)
    line: dict[str, Any] = json.loads(JsonFormatter().format(made))
    return line


def test_what_an_application_gives_as_extra_is_kept() -> None:
    with within_attempt(AttemptFacts("m1", "orders", "billing", 3, None)):
        line = formatted({"order": 7, "when": timedelta(1), "level": "mine", "attempt": 4})
        loop: dict[Any, Any] = {(1, 2): 3}
        loop["itself"] = loop
        odd = formatted({"order": loop})
    assert (line["order"], line["when"], line["level"]) == (7, "1 day, 0:00:00", "info")
    assert (line["message_id"], line["attempt"]) == ("m1", 3)
    assert "in_attempt" not in line
    assert "(1, 2): 3" in odd["order"]
    assert odd["message_id"] == "m1"


def test_a_line_about_a_traced_attempt_has_its_trace_and_its_span() -> None:
    trace, span = "1" * 32, "2" * 16
    made = logging.LogRecord("rqretry", logging.WARNING, __file__, 1, "it failed", None, None)
    made.__dict__.update(about("id", "t", "g", 2, f"00-{trace}-{span}-01"))

    line = json.loads(JsonFormatter().format(made))

    assert (line["trace_id"], line["span_id"]) == (trace, span)
    assert TextFormatter().format(made).endswith(f"it failed [trace {trace}, span {span}]")
    with within_attempt(AttemptFacts("m1", "orders", "billing", 3, trace, span)):
        assert formatted({})["span_id"] == span
