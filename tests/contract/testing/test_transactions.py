"""Transactions and broadcast in the lab, in virtual time."""

from typing import Any

from rqretry import App, TransactionResolution
from rqretry.testing import Lab


def test_a_transaction_is_checked_after_6_s_then_every_30_s_and_parked_after_15_times() -> None:
    app, asked = App(), []
    with Lab(app) as lab:

        @app.transaction_checker("t")
        def check(tx: Any) -> TransactionResolution:
            asked.append(lab.now)
            return TransactionResolution.UNKNOWN

        tx = app.client.transaction("t")
        tx.publish(1)
        lab.advance("1h")
        assert asked == [6 + 30 * n for n in range(15)]
        assert lab.admin.transaction(tx.id).state == "parked"
        tx.rollback()


def test_what_a_checker_commits_is_delivered_and_what_it_rolls_back_is_not() -> None:
    app, got = App(), []
    with Lab(app) as lab:

        @app.consumer("t", group="g")
        def work(message: Any) -> None:
            got.append((lab.now, message.body))

        @app.transaction_checker("t")
        async def check(tx: Any) -> TransactionResolution:
            good = tx.messages[0].body == "good"
            return TransactionResolution.COMMIT if good else TransactionResolution.ROLLBACK

        for body in ("good", "bad"):
            app.client.transaction("t").publish(body)
        lab.advance("1m")
        assert got == [(6, "good")]
        assert lab.admin.transactions() == []


def test_broadcast_consumers_of_two_apps_get_every_message_once() -> None:
    one, two = App(), App()
    got: list[Any] = []

    for app in (one, two):

        @app.consumer("t", group="b", broadcast=True)
        async def handle(message: Any) -> None:
            got.append(message.body)
            raise ValueError("not again")

    with Lab(one) as lab:
        lab.app(two)
        lab.publish("t", 1)
        lab.publish("t", 2, delay="10s")
        assert lab.run_until_idle() == 2
        lab.advance("10s")
        assert got == [1, 1, 2, 2]
