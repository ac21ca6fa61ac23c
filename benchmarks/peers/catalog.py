"""Which systems are measured, what is installed for each, and the settings they run with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """One system.

    Attributes:
        packages: What its environment gets from the package index; npm where `node`.
        worker: What its own command for one worker process is; () where the adapter starts it.
        settings: How it is set up, for the table.
        messages: How many messages its draining is measured with.
        node: It runs in Node.
    """

    packages: tuple[str, ...]
    worker: tuple[str, ...]
    settings: str
    messages: int = 20_000
    node: bool = False


_FAST = ("hiredis", "uvloop")
_CELERY = (
    "-m", "celery", "-A", "celery_peer", "worker", "-P", "prefork", "-c", "1", "-l", "ERROR",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip
_TASKIQ = (
    "-m", "taskiq", "worker", "taskiq_peer:broker", "-w", "1", "--max-async-tasks", "100",
    "--ack-type", "when_executed", "--log-level", "ERROR",
)  # fmt: skip

PEERS: dict[str, Peer] = {
    "bullmq": Peer(
        ("bullmq", "ioredis"),
        (),
        "concurrency 100; removeOnComplete; lockDuration and stalledInterval 10 s; addBulk of 500",
        node=True,
    ),
    "dramatiq": Peer(
        ("dramatiq[redis]", "hiredis"),
        ("-m", "dramatiq", "dramatiq_peer", "-p", "1", "-t", "1"),
        "1 thread, dramatiq_queue_prefetch=1000; heartbeat_timeout 10 s; no bulk publish",
    ),
    "taskiq": Peer(
        ("taskiq", "taskiq-redis", *_FAST),
        _TASKIQ,
        "RedisStreamBroker; ack when executed; 100 tasks at once; idle_timeout 10 s",
    ),
    "repid": Peer(
        ("repid[redis]", "typing_extensions", *_FAST),
        (),
        "RedisServer (streams); batch_size 100; claim_interval 5 s, min_idle 10 s",
    ),
    "huey": Peer(
        ("huey", "redis", "hiredis"),
        ("huey_worker.py",),
        "RedisHuey, blocking; 1 thread worker; no results; it has no redelivery",
    ),
    "celery": Peer(
        ("celery[redis]", "hiredis"),
        _CELERY,
        "prefork, 1 process; acks_late, reject_on_worker_lost; prefetch 100; visibility 10 s",
        messages=5_000,
    ),
    "rq": Peer(
        ("rq", "hiredis"),
        (),
        "SimpleWorker; no results kept; enqueue_many of 500; retry of 3 at abandonment",
        messages=2_000,
    ),
    "arq": Peer(
        ("arq", *_FAST),
        (),
        "max_jobs 100; poll_delay 10 ms; keep_result 0; job_timeout 10 s",
        messages=10_000,
    ),
    "saq": Peer(
        ("saq[redis]", "typing_extensions", *_FAST),
        (),
        "concurrency 100; ttl -1 (no results); sweep every 5 s, heartbeat 10 s, 3 retries",
        messages=10_000,
    ),
    "streaq": Peer(
        ("streaq", *_FAST),
        (),
        "concurrency 100; idle_timeout 10 s; result ttl 0; enqueue_many of 500",
        messages=10_000,
    ),
}
