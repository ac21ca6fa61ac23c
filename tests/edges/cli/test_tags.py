"""Tags at the command line: what a group takes, and how much it did not."""

import json

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.protocol.maintain import register
from tests.edges.cli.shell import Shell


def test_status_and_topic_show_say_what_is_taken_and_how_many_were_filtered(
    shell: Shell, client: Client
) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid || refunded")
    client.simple_consumer("orders", group="audit", create_group=True)
    for tag in ("paid", "open", "closed"):
        shell.ok("publish", "orders", "--body", "1", "--tag", tag)

    sentence = "group ship of topic orders takes paid || refunded: 2 messages filtered"
    assert sentence in shell.ok("status")
    assert sentence in shell.ok("topic", "show", "orders")
    groups = {group["group"]: group for group in shell.json("status")["topics"][0]["groups"]}
    assert (groups["ship"]["tags"], groups["ship"]["filtered"]) == ("paid || refunded", 2)
    assert not {"tags", "filtered"} & groups["audit"].keys()
    shown = shell.json("topic", "show", "orders")
    assert shown["tags"] == {"ship": "paid || refunded"}
    assert shown["filtered"] == {"ship": 2}


def test_message_says_which_group_does_not_take_it(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid")
    client.simple_consumer("orders", group="audit", create_group=True)
    sent = client.publish("orders", 1, tag="open")

    assert "takes paid: its tag is open" in shell.ok("message", sent)


def test_who_changed_the_tags_and_when_is_shown(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid")
    assert "tags_changed_at" not in shell.json("group", "show", "ship")
    client.simple_consumer("orders", group="ship", tags="open")

    shown = shell.json("group", "show", "ship")
    assert shown["tags"] == {"orders": "open"}
    assert shown["tags_changed_at"].endswith("Z")
    assert shown["tags_changed_by"]
    text = shell.ok("group", "show", "ship")
    assert "orders: open" in text
    assert "what was published before is as it was chosen" in text


def test_status_shows_workers_that_named_other_tags(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="open")
    about = {"groups": ["ship"], "topics": ["orders"], "tags": [["ship", "orders", "paid"]]}
    parts_of(client).store.run(
        register(parts_of(client).catalog.keys, worker="w", about=json.dumps(about), ttl_ms=60_000)
    )
    sentence = "takes open, and 1 live worker named something else at the start: paid"
    assert sentence in shell.ok("status")
    (group,) = shell.json("status")["topics"][0]["groups"]
    assert group["other_tags"] == ["paid"]
