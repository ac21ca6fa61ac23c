"""rqretry transaction, and dates on publish."""

from datetime import UTC, datetime, timedelta

import pytest

from rqretry import Client
from tests.edges.cli.shell import Shell


def test_list_show_and_status_report_what_is_not_decided(shell: Shell, client: Client) -> None:
    assert shell.json("transaction", "list") == {"namespace": "default", "transactions": []}
    tx = client.transaction("claims", producer_group="shop")
    tx.publish(1)
    (listed,) = shell.json("transaction", "list")["transactions"]
    assert (listed["id"], listed["state"], listed["producer_group"]) == (tx.id, "open", "shop")
    assert shell.json("transaction", "show", tx.id) == listed
    assert listed["places"] == [["claims", 0]]
    assert tx.id in shell.ok("transaction", "list")
    assert "0 of 15" in shell.ok("transaction", "show", tx.id)
    assert shell.json("transaction", "list", "--parked")["transactions"] == []
    assert shell.json("status")["transactions"] == {"unfinished": 1, "parked": 0}
    assert "1 transaction not finished" in shell.ok("status")
    tx.rollback()
    assert "transactions" not in shell.json("status")


@pytest.mark.parametrize(("verb", "state"), [("commit", "committed"), ("rollback", "rolled_back")])
def test_commit_and_rollback_decide_and_are_audited(
    shell: Shell, client: Client, verb: str, state: str
) -> None:
    tx = client.transaction("claims")
    tx.publish(1)
    done = shell.json("transaction", verb, tx.id)
    assert done == {"id": tx.id, "state": state, "done": True}
    assert "already" in shell.ok("transaction", verb, tx.id)
    other = "rollback" if verb == "commit" else "commit"
    shown = shell.fails("transaction", other, tx.id, status=1)
    assert f"it was {state.replace('_', ' ')} before" in shown
    (entry,) = shell.json("audit")["entries"]
    assert (entry["verb"], entry["arguments"]) == (f"{verb}_transaction", {"transaction": tx.id})
    assert client.admin.stats("claims").topics[0].stored == (verb == "commit")


def test_an_unknown_transaction_is_one_sentence(shell: Shell) -> None:
    for verb in ("show", "commit", "rollback"):
        assert "no transaction 'nobody'" in shell.fails("transaction", verb, "nobody", status=1)


def test_message_explains_a_half(shell: Shell, client: Client) -> None:
    tx = client.transaction("claims")
    id_ = tx.publish(1)
    (state,) = shell.json("message", id_)["states"]
    assert state["state"] == "prepared"
    assert f"its transaction {tx.id} is unresolved: check 1 of 15 in" in state["explain"]
    tx.rollback()


def test_publish_deliver_at_takes_a_date(shell: Shell, client: Client) -> None:
    date = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    shell.ok("publish", "claims", "--body", "1", "--deliver-at", date)
    assert client.admin.stats("claims").topics[0].scheduled == 1


@pytest.mark.parametrize(
    ("date", "shown"),
    [
        ("tomorrow", "is not a date: write it as"),
        ("2040-01-01T00:00:00", "has no time zone"),
        ("2140-01-01T00:00:00Z", "at most 40 d ahead"),
    ],
)
def test_publish_deliver_at_refuses_what_is_no_date(shell: Shell, date: str, shown: str) -> None:
    request_parts = ("publish", "claims", "--body", "1", "--deliver-at", date)
    assert shown in shell.fails(*request_parts, status=2)


def test_publish_takes_one_way_to_say_when(shell: Shell) -> None:
    date = "2040-01-01T00:00:00Z"
    request_parts = ("publish", "claims", "--body", "1", "--delay", "1s", "--deliver-at", date)
    assert "--delay and --deliver-at both set the delay" in shell.fails(*request_parts, status=2)
