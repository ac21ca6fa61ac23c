"""What an editor offers behind a dot is what users need, and nothing else."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from rqretry import App, Client, Message, PublishOptions, RetryPolicy

OFFERED: list[tuple[type, str]] = [
    (
        RetryPolicy,
        "exponential fixed ladder parse rocketmq form jitter max_retries multiplier steps_ms",
    ),
    (
        Message,
        (
            "attempt body cancelled deadline fencing_token group headers id keys last_error"
            " max_retries message_group published_at receipt_handle reconsume_times remaining"
            " scheduled_for tag topic trace_id"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "names"), OFFERED, ids=[kind.__name__ for kind, _ in OFFERED])
def test_completion_offers_what_users_need(kind: type, names: str) -> None:
    assert [name for name in dir(kind) if not name.startswith("_")] == sorted(names.split())


@pytest.mark.parametrize("publish", [App.publish, Client.publish])
def test_publish_explains_each_of_its_options_with_its_type(publish: Callable[..., Any]) -> None:
    text = publish.__doc__ or ""
    explained = re.findall(r"^ {16}(\w+) \([^)]+\): \w", text, re.MULTILINE)
    assert sorted(explained) == sorted(PublishOptions.__annotations__)
    for error in ("InvalidArgument", "AmbiguousResult", "StoreUnavailable", "NotConfirmed"):
        assert error in text
