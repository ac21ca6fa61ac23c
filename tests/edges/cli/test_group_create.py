"""rqretry group create: a group for consumers that cannot create their own."""

import json

import pytest

from rqretry import Client
from tests.edges.cli.shell import Shell


def test_a_group_is_there_before_its_consumers(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    client.admin.create_topic("bills")
    client.publish("orders", 1)
    made = shell.ok(
        "group", "create", "java", "--topic", "orders", "--max-retries", "3",
        "--policy", "ladder:1s 5s", "--tags", "a || b",
    )  # fmt: skip
    assert "push" in made
    assert "a || b" in made
    shell.ok("group", "create", "java", "--topic", "bills")
    info = json.loads(shell.ok("group", "show", "java", "--json"))
    assert (info["kind"], sorted(info["topics"])) == ("push", ["bills", "orders"])
    assert (info["max_retries"], info["policy"]) == (3, "ladder:1s 5s")
    shell.ok("group", "create", "rows", "--topic", "orders", "--kind", "simple", "--ordered")
    assert client.admin.group("rows").ordered
    assert client.simple_consumer("orders", group="rows").receive(wait=0) == []
    with pytest.raises(Exception, match="push"):
        client.simple_consumer("orders", group="java")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topic", "nowhere"], "nowhere"),
        (["--topic", "orders", "--kind", "simple", "--policy", "fixed:1s"], "is for push groups"),
        (["--topic", "orders", "--tags", "a |"], "tag"),
        ([], "--topic"),
    ],
)
def test_what_cannot_be_is_refused_and_creates_nothing(
    shell: Shell, client: Client, options: list[str], text: str
) -> None:
    client.admin.create_topic("orders")
    failed = shell("group", "create", "none", *options)
    assert failed.exit_code != 0
    assert text in failed.output
    assert client.admin.groups() == []
