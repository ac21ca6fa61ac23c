"""What a RocketMQ producer and push consumer become."""

from typing import Any

from rqretry import App, ConsumeResult, Message, MessageId

app = App()


@app.consumer("orders", group="billing", tags="paid || refunded", max_retries=16)
def bill(message: Message[dict[str, Any]]) -> ConsumeResult:
    if message.body["amount"] < 0:
        return (
            ConsumeResult.retry(level=4) if message.reconsume_times < 1 else ConsumeResult.FAILURE
        )
    return ConsumeResult.SUCCESS


@app.consumer("orders", group="ledger", ordered=True)
def book(message: Message[dict[str, Any]]) -> ConsumeResult:
    print(message.message_group, message.keys, message.headers["channel"])
    return ConsumeResult.SUCCESS


def publish(amount: int) -> MessageId:
    return app.publish_sync(
        "orders",
        {"order": 17, "amount": amount},
        tag="paid",
        keys="order-17",
        headers={"channel": "web"},
        message_group="customer-4",
    )
