"""A simple consumer that extends its lease while it works, without a worker process.

    python -m workers.simple_extend             publishes one image and receives it

The message is invisible to others for 1 s, and the work takes 2 s. Before each step the program
makes it invisible for another second with change_invisible_duration, so nobody else receives it,
and acknowledges it in the end. Leave out the extension and the ack raises InvalidReceiptHandle:
the message is visible again, and the next `receive` gets it as attempt 2.
"""

import sys
import time

from rqretry import Client, Message

STEPS, STEP_S = 4, 0.5


def work(client: Client, wait: float = 20) -> Message[str] | None:
    """Receive one image and convert it; None if none came within `wait` seconds."""
    with client.simple_consumer("images", group="thumbnails", create_group=True) as consumer:
        for message in consumer.receive(max_messages=1, invisible_duration="1s", wait=wait):
            for step in range(STEPS):
                consumer.change_invisible_duration(message, "1s")
                print(f"{message.body}: step {step + 1}, attempt {message.attempt}", flush=True)
                time.sleep(STEP_S)
            consumer.ack(message)
            return message
    return None


def main(client: Client) -> None:
    """Publish an image, and convert it."""
    client.publish("images", "sunset.png")
    work(client)


if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)
    with Client() as to_default_server:
        main(to_default_server)
