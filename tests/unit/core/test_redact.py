"""What must not be shown is taken out, and what is no secret stays."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rqretry import App, InvalidArgument
from rqretry.core import redact
from rqretry.core.failure_record import describe_exception, formatted, reason_in
from rqretry.core.redact import redacted
from rqretry.observability.log_format import JsonFormatter, TextFormatter


@pytest.fixture(autouse=True)
def nobody_else() -> Iterator[None]:
    redact._chosen.clear()
    yield
    redact._chosen.clear()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:hunter2@host:6379/0 failed", "redis://user:***@host:6379/0 failed"),
        ("{'password': 'hunter 2'}", "{'password': ***}"),
        ('"api_key": "hunter2"', '"api_key": ***'),
        ("DB_PASSWORD=hunter2; next", "DB_PASSWORD=***; next"),
        ("Authorization: Bearer hunter2.x1", "Authorization: Bearer ***"),
        ("?access_token=hunter2&page=1", "?access_token=***&page=1"),
        ("it was eyJhbGciOiJIUzI1NiJ9.hunter2", "it was eyJ***"),
        ("aws_secret_access_key = hunter2", "aws_secret_access_key = ***"),
        ("basic authentication failed for order 17", "basic authentication failed for order 17"),
        ("KeyError: 'password'", "KeyError: 'password'"),
        ("unexpected token: }", "unexpected token: }"),
        ("http://host:80/a@b", "http://host:80/a@b"),
    ],
)
def test_passwords_tokens_and_credentials_in_urls_are_hidden_and_nothing_else(
    text: str, shown: str
) -> None:
    assert redacted(text) == shown


def everything(error: BaseException, extra: dict[str, Any]) -> str:
    """What is recorded and logged of an error, as text and as JSON."""
    made = logging.LogRecord("shop", 40, "f", 1, "%s", (error,), (type(error), error, None))
    made.__dict__.update(extra)
    record = describe_exception(error, "f", "w", 0.0)
    shown = (record, formatted(error), JsonFormatter().format(made), TextFormatter().format(made))
    return "\n".join(shown)


def test_an_app_says_what_else_is_a_secret_in_records_and_logs() -> None:
    error = ValueError("card 4111 1111, password=hunter2")
    extra = {"password": "hunter2", "cards": ["4111 1111"], "of": {"token": 7}, "order": 17}
    App(redact=lambda text: text.replace("4111 1111", "CARD"))
    shown = everything(error, extra)
    assert "hunter2" not in shown
    assert "4111" not in shown
    assert (
        reason_in(describe_exception(error, "f", "w", 0.0)) == "ValueError: card CARD, password=***"
    )
    made = logging.makeLogRecord({"msg": "x", **extra})
    line = json.loads(JsonFormatter().format(made))
    assert (line["order"], line["of"], line["cards"]) == (17, {"token": "***"}, ["CARD"])


def test_a_function_that_fails_shows_nothing_and_stops_nothing() -> None:
    def fails(_text: str) -> str:
        raise KeyError("4111")

    App(redact=fails)
    shown = everything(ValueError("card 4111"), {})
    assert "4111" not in shown
    assert "[redact raised KeyError]" in shown
    with pytest.raises(InvalidArgument, match="must be a function from text to text"):
        App(redact="password")  # type: ignore[arg-type]


@pytest.mark.parametrize("run", ["a", "a-", "a.", "://x:", "bearer ", "password ", 'key="x '])
def test_a_long_text_is_searched_in_time_in_proportion_to_it(run: str) -> None:
    text = f"token {run * (200_000 // len(run))} password=hunter2"
    begun = time.process_time()
    assert redacted(text).endswith("***")
    assert time.process_time() - begun < 10  # where each place was searched from to the end: hours
