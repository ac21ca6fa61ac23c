"""What an editor offers behind a dot is what users need, and nothing else."""

import pytest

from rqretry import Message, RetryPolicy

OFFERED: list[tuple[type, str]] = [
    (
        RetryPolicy,
        "exponential fixed ladder parse rocketmq form jitter max_retries multiplier steps_ms",
    ),
    (
        Message,
        (
            "attempt body cancelled deadline fencing_token group headers id keys last_error"
            " max_retries message_group published_at receipt_handle reconsume_times remaining tag"
            " topic trace_id"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "names"), OFFERED, ids=[kind.__name__ for kind, _ in OFFERED])
def test_completion_offers_what_users_need(kind: type, names: str) -> None:
    assert [name for name in dir(kind) if not name.startswith("_")] == sorted(names.split())
