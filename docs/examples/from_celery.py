"""What a Celery task becomes."""

from datetime import UTC, datetime, timedelta

from rqretry import App, DeadLetter, MessageId, Retry, RetryPolicy

app = App()


class BankIsBusyError(ConnectionError):
    """The bank asks to come back in a minute."""


@app.task(
    max_retries=5,
    policy=RetryPolicy.exponential(initial=1, max="10m", jitter=0.1),
    retry_on=ConnectionError,
    consume_timeout="30s",
    rate_limit="100/m",
)
def charge(order: int, *, amount: int) -> None:
    if amount < 0:
        raise DeadLetter("a negative amount will never be right")
    try:
        call_the_bank(order, amount)
    except BankIsBusyError as error:
        raise Retry(after="1m", reason="the bank is busy") from error


def call_the_bank(order: int, amount: int) -> None:
    print("charged", amount, "for order", order)


def publish() -> list[MessageId]:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    return [
        charge.send_sync(17, amount=12),
        charge.options(delay="1m").send_sync(18, amount=12),
        charge.options(deliver_at=tomorrow, id="charge-19").send_sync(19, amount=12),
    ]
