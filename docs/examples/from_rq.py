"""What an RQ job becomes."""

from rqretry import App, MessageId, RetryPolicy

app = App()


@app.task(policy=RetryPolicy.ladder("10s 1m 10m", max_retries=3), consume_timeout="3m")
def send_email(to: str, *, subject: str) -> None:
    print("to", to, subject)


def publish() -> list[MessageId]:
    return [
        send_email.send_sync("ada@example.org", subject="Hello"),
        send_email.options(delay="1m").send_sync("grace@example.org", subject="Hello"),
        send_email.options(id="mail-17").send_sync("alan@example.org", subject="Hello"),
    ]
