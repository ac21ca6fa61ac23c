"""celery with late acknowledgement."""

from typing import Any

import peer
from celery import Celery

app = Celery("bench", broker=peer.URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    broker_transport_options={"visibility_timeout": 10},
    broker_connection_retry_on_startup=True,
)


@app.task(autoretry_for=(peer.FirstAttemptError,), default_retry_delay=0)
def work(message: dict[str, Any]) -> None:
    """The handler."""
    peer.saw(message)


def one(number: int) -> None:
    """Publish one."""
    work.delay(peer.body(number))


def bulk(numbers: range) -> None:
    """Publish many: one by one, over one connection."""
    with app.producer_or_acquire() as producer:
        for number in numbers:
            work.apply_async((peer.body(number),), producer=producer)


def main() -> None:
    """Publish, or work."""
    peer.serve(one, bulk)
