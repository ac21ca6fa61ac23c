"""What an editor offers behind a dot is what users need, and nothing else."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import rqretry
from rqretry import (
    App,
    Client,
    ConsumeResult,
    PublishOptions,
    RetryPolicy,
)
from rqretry.testing import Lab

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


@contextmanager
def held() -> Iterator[dict[str, Any]]:
    """One of each kind that a program holds."""
    app = App("redis://localhost:1")

    @app.task
    def work() -> None:
        """Nothing."""

    with Lab(app) as lab, closing(lab.client) as client:
        app.client.admin.create_topic("t")
        ways: Any = {"group": "s", "create_group": True}
        yield {
            "App": app,
            "Client": client,
            "AsyncClient": app.async_client,
            "Topic": app.topic("t"),
            "Task": work,
            "TaskSender": work.options(),
            "SimpleConsumer": app.client.simple_consumer("t", **ways),
            "AsyncSimpleConsumer": app.async_client.simple_consumer("t", **ways),
            "Transaction": app.client.transaction("t"),
            "AsyncTransaction": app.transaction("t"),
            "ConsumeResult": ConsumeResult.SUCCESS,
            "RetryPolicy": RetryPolicy.rocketmq(),
        }


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_completion_offers_what_users_need_and_nothing_else() -> None:
    with held() as objects:
        found = {name: public(dir(value)) for name, value in objects.items()}
    for name in OFFERED.keys() - found.keys():
        found[name] = public(dir(getattr(rqretry, name)))

    assert found == {name: set(offered.split()) for name, offered in OFFERED.items()}


@pytest.mark.parametrize("publish", [App.publish, Client.publish])
def test_publish_explains_each_of_its_options_with_its_type(publish: Callable[..., Any]) -> None:
    text = publish.__doc__ or ""
    explained = re.findall(r"^ {16}(\w+) \([^)]+\): \w", text, re.MULTILINE)
    assert sorted(explained) == sorted(PublishOptions.__annotations__)
    for error in ("InvalidArgument", "AmbiguousResult", "StoreUnavailable", "NotConfirmed"):
        assert error in text
