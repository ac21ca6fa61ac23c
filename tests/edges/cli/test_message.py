"""rqretry message: the story of one message, or of those with a key."""

from rqretry import Client
from rqretry.core.message import OutgoingMessage
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.protocol.lease import lease, succeed
from tests.edges.cli.shell import Shell

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def committed(client: Client) -> str:
    parts_of(client).store.perform(parts_of(client).catalog.join("g", "push", ["t"]))
    id_ = client.publish("t", OutgoingMessage(body=1, keys=["order-7"], headers=HEADERS))
    keys = parts_of(client).catalog.group_keys("t", 0, "g")
    leased = parts_of(client).store.run(lease(keys, worker="w", want=1, visibility_ms=60_000))
    parts_of(client).store.run(succeed(keys, [Receipt(id_, leased.numbers[0][0])], worker="w"))
    return id_


def test_a_committed_message_is_reported_from_its_history(shell: Shell, client: Client) -> None:
    id_ = committed(client)
    stated = shell.json("message", id_)
    assert (stated["id"], stated["topic"]) == (id_, "t")
    (state,) = stated["states"]
    assert (state["group"], state["state"]) == ("g", "committed")
    assert state["explain"].startswith("committed at ")
    assert [event["event"] for event in stated["timeline"]] == [
        "publish",
        "lease",
        "succeed",
    ]
    assert stated["timeline"][0]["trace_id"] == TRACE
    url = "http://localhost:16686/trace/{trace_id}"
    linked = shell.json("message", id_, "--trace-url", url)
    assert linked["timeline"][0]["trace_url"] == f"http://localhost:16686/trace/{TRACE}"


def test_messages_are_found_by_their_key(shell: Shell, client: Client) -> None:
    id_ = committed(client)
    stated = shell.json("message", "--key", "order-7")
    assert [message["id"] for message in stated["messages"]] == [id_]


def test_what_message_is_given_is_checked(shell: Shell, client: Client) -> None:
    committed(client)
    assert "give the ID" in shell.fails("message", status=2)
    assert "give the ID" in shell.fails("message", "x", "--key", "y", status=2)
    assert "{trace_id}" in shell.fails("message", "x", "--trace-url", "http://jaeger", status=2)
    assert "no message with key 'nine'" in shell.fails("message", "--key", "nine", status=1)
