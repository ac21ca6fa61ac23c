"""Publish an order and consume it with RocketMQ's own Python client."""

import sys
import threading

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

done = threading.Event()


class Billing(MessageListener):
    """Fails once, so that the message comes again."""

    def consume(self, message: Message) -> ConsumeResult:
        """Bill one order."""
        print(f"attempt {message.delivery_attempt}: {message.body.decode()}")
        if message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        done.set()
        return ConsumeResult.SUCCESS


def main(address: str) -> None:
    """Send an order, and wait until it is billed."""
    where = ClientConfiguration(address, Credentials())
    consumer = PushConsumer(where, "billing", Billing(), {"orders": FilterExpression()})
    consumer.startup()
    producer = Producer(where, ["orders"])
    producer.startup()
    order = Message()
    order.topic, order.body, order.tag = "orders", b'{"order": 1}', "book"
    print("sent", producer.send(order).message_id)
    done.wait(30)
    producer.shutdown()
    consumer.shutdown()


if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda _, error, __: print(error.__context__ or error, file=sys.stderr)
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("python rocketmq_client.py ADDRESS   of a gateway, such as 127.0.0.1:8081")
    main(sys.argv[1])
