"""Which systems are measured, what is installed for each, and the settings they run with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """One system.

    Attributes:
        packages: What its environment gets, from where its runtime has packages from.
        worker: What its own command for one worker process is; () if the adapter starts it.
        settings: How it is set up, for the table.
        messages: How many messages its draining is measured with.
        failing: How many where each fails once: some seconds of work.
        runtime: "python", with packages from the package index; "node", from npm; "ruby", from
            Debian.
        at_most_once: It takes messages off the server: what a killed worker held is lost.
    """

    packages: tuple[str, ...]
    worker: tuple[str, ...]
    settings: str
    messages: int = 20_000
    failing: int = 700
    runtime: str = "python"
    at_most_once: bool = False


_FAST = ("hiredis", "uvloop")
_CELERY = (
    "-m", "celery", "-A", "celery_peer", "worker", "-P", "prefork", "-c", "1", "-l", "ERROR",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip
_TASKIQ = (
    "-m", "taskiq", "worker", "taskiq_peer:broker", "-w", "1", "--max-async-tasks", "100",
    "--ack-type", "when_executed", "--log-level", "ERROR",
)  # fmt: skip
_SIDEKIQ = ("-S", "sidekiq", "-r", "./sidekiq_peer.rb", "-q", "bench", "-c", "25")

PEERS: dict[str, Peer] = {
    "bullmq": Peer(
        ("bullmq", "ioredis"),
        (),
        "concurrency 100; removeOnComplete; lockDuration and stalledInterval 10 s; addBulk of 500;"
        " 3 attempts, no backoff",
        failing=3_000,
        runtime="node",
    ),
    "dramatiq": Peer(
        ("dramatiq[redis]", "hiredis"),
        ("-m", "dramatiq", "dramatiq_peer", "-p", "1", "-t", "1"),
        "1 thread, dramatiq_queue_prefetch=1000; heartbeat_timeout 10 s, maintenance at 5 % of the"
        " commands; no bulk publish; min_backoff 0",
    ),
    "taskiq": Peer(
        ("taskiq", "taskiq-redis", *_FAST),
        _TASKIQ,
        "RedisStreamBroker; ack when executed; 100 tasks at once; idle_timeout 10 s;"
        " SimpleRetryMiddleware, which retries at once",
        failing=1_200,
    ),
    "repid": Peer(
        ("repid[redis]", "typing_extensions", *_FAST),
        (),
        "RedisServer (streams); batch_size 100; claim_interval 5 s, min_idle 10 s; failures are"
        " rejected, which puts them back at once",
        failing=4_000,
    ),
    "huey": Peer(
        ("huey", "redis", "hiredis"),
        ("huey_worker.py",),
        "RedisHuey, blocking; 1 thread worker; no results; it has no redelivery; 3 retries without"
        " delay",
        at_most_once=True,
    ),
    "sidekiq": Peer(
        ("ruby-sidekiq", "ruby-hiredis"),
        _SIDEKIQ,
        "25 threads, hiredis; push_bulk of 500; BRPOP, since super_fetch is not in the open source"
        " edition; sidekiq_retry_in 1 s, to which it adds up to 9 s at random, polled every 0.1 s",
        failing=3_000,
        runtime="ruby",
        at_most_once=True,
    ),
    "celery": Peer(
        ("celery[redis]", "hiredis"),
        _CELERY,
        "prefork, 1 process; acks_late, reject_on_worker_lost; prefetch 100; visibility 10 s;"
        " autoretry_for, default_retry_delay 0",
        messages=5_000,
        failing=200,
    ),
    "rq": Peer(
        ("rq", "hiredis"),
        (),
        "SimpleWorker; no results kept; enqueue_many of 500; Retry(3) without interval;"
        " maintenance every 5 s",
        messages=2_000,
        failing=120,
    ),
    "arq": Peer(
        ("arq", *_FAST),
        (),
        "max_jobs 100; poll_delay 10 ms; keep_result 0; job_timeout 10 s; Retry(defer=0)",
        messages=10_000,
        failing=800,
    ),
    "saq": Peer(
        ("saq[redis]", "typing_extensions", *_FAST),
        (),
        "concurrency 100; ttl -1 (no results); sweep every 5 s, heartbeat 10 s; 3 retries without"
        " delay",
        messages=10_000,
    ),
    "streaq": Peer(
        ("streaq", *_FAST),
        (),
        "concurrency 100; idle_timeout 10 s; result ttl 0; enqueue_many of 500;"
        " StreaqRetry(delay=0)",
        messages=10_000,
    ),
}
