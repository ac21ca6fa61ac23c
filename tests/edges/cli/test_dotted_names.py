"""Names such as `orders.created`, which other systems use, from the first publish to a redrive."""

import asyncio

from rqretry import Client
from rqretry.cli.metrics import render
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell, dead_letter
from tests.edges.dashboard.conftest import browsing

TOPIC, GROUP = "orders.created", "mail.send"


def test_a_topic_and_a_group_with_dots_have_a_whole_life(
    shell: Shell, client: Client, server: EmbeddedRedis
) -> None:
    (id_,) = dead_letter(client, TOPIC, GROUP, {"order": 1})
    assert shell.json("status", TOPIC)["topics"][0]["groups"][0]["group"] == GROUP
    assert shell.json("message", id_)["topic"] == TOPIC
    assert shell.json("dlq", "show", GROUP, id_)["topic"] == TOPIC
    metrics = render(client.admin.stats(), evicts=False)
    assert f'topic="{TOPIC}"' in metrics
    assert f'group="{GROUP}"' in metrics
    asyncio.run(pages_show(server.url, id_))

    shell.ok("dlq", "redrive", GROUP, "--all", "--yes")
    (message,) = shell.json("receive", TOPIC, "--group", GROUP, "--ack")["messages"]
    assert (message["id"], message["topic"], message["attempt"]) == (id_, TOPIC, 1)

    dead_letter(client, f"{TOPIC}.v2", GROUP, 2)
    source = f"%DLQ%{GROUP}"
    shell.ok("receive", source, "--group", "watch.dead", "--create-group")
    shell.ok("topic", "delete", TOPIC, "--yes", "--force")
    assert shell.json("fsck")["findings"] == []


async def pages_show(url: str, id_: str) -> None:
    async with browsing(url) as browser:
        for page in (f"/group/{GROUP}", f"/dead/{GROUP}", f"/message/{id_}"):
            answer = await browser.get(page)
            assert answer.status_code == 200
            assert id_ in answer.text or TOPIC in answer.text
