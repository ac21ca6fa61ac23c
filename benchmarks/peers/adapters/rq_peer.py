"""rq with its SimpleWorker, which does not fork."""

import logging

import peer
import redis
from rq import Queue, Retry, SimpleWorker
from rq_jobs import work

connection = redis.Redis(port=peer.PORT)
queue = Queue("bench", connection=connection)


def one(number: int) -> None:
    """Publish one."""
    queue.enqueue(work, peer.body(number), result_ttl=0, retry=Retry(3), job_timeout=10)


def bulk(numbers: range) -> None:
    """Publish many in one pipeline."""
    jobs = [
        Queue.prepare_data(work, (peer.body(number),), result_ttl=0, retry=Retry(3), timeout=10)
        for number in numbers
    ]
    queue.enqueue_many(jobs)


def run() -> None:
    """One worker."""
    worker = SimpleWorker([queue], connection=connection, worker_ttl=20, maintenance_interval=5)
    worker.work(logging_level=logging.ERROR)


def main() -> None:
    """Publish, or work."""
    peer.serve(one, bulk, run)
