"""What an editor offers behind a dot is what users need, and nothing else."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import rqretry
from rqretry import (
    App,
    Client,
    PublishOptions,
)
from tests.contract.surface.surface import held, public

CLIENT = "admin publish publish_many recall simple_consumer transaction"
SIMPLE = "ack change_invisible_duration receive release"
TRANSACTION = "commit id publish publish_many rollback"
OFFERED = {
    "App": (
        "aclose admin async_client client configure consumer cron middleware on publish"
        " publish_many publish_many_sync publish_sync run state task topic transaction"
        " transaction_checker"
    ),
    "Client": f"{CLIENT} close",
    "AsyncClient": f"{CLIENT} aclose",
    "Topic": ("body checked consumer name publish publish_many publish_many_sync publish_sync"),
    "Task": "function name options send send_sync",
    "TaskSender": "send send_sync",
    "SimpleConsumer": f"{SIMPLE} close",
    "AsyncSimpleConsumer": f"{SIMPLE} aclose join",
    "Transaction": TRANSACTION,
    "AsyncTransaction": TRANSACTION,
    "Message": (
        "attempt body cancelled deadline fencing_token group headers id keys last_error"
        " max_retries message_group published_at receipt_handle reconsume_times remaining"
        " scheduled_for tag topic trace_id"
    ),
    "ConsumeResult": (
        "FAILURE SUCCESS dead_letter delay_ms failure level outcome postpone reason retry"
    ),
    "RetryPolicy": (
        "exponential fixed ladder parse rocketmq form jitter max_retries multiplier steps_ms"
    ),
    "TransactionCheck": ("check id max_checks messages opened_at opened_by producer_group topic"),
}
"""What users do something with."""


def test_completion_offers_what_users_need_and_nothing_else() -> None:
    with held() as objects:
        found = {
            name: set(public(dir(value))) for name, value in objects.items() if name in OFFERED
        }
    for name in OFFERED.keys() - found.keys():
        found[name] = set(public(dir(getattr(rqretry, name))))

    assert found == {name: set(offered.split()) for name, offered in OFFERED.items()}


@pytest.mark.parametrize("publish", [App.publish, Client.publish])
def test_publish_explains_each_of_its_options_with_its_type(publish: Callable[..., Any]) -> None:
    text = inspect.getdoc(publish) or ""
    explained = re.findall(r"^ {8}(\w+) \([^)]+\): \w", text, re.MULTILINE)
    assert sorted(explained) == sorted(PublishOptions.__annotations__)
    for error in ("InvalidArgument", "AmbiguousResult", "StoreUnavailable", "NotConfirmed"):
        assert error in text
