"""A task whose failures become Sentry issues."""

import logging

import sentry_sdk

from rqretry import App
from rqretry.contrib.sentry import capture_failures

sentry_sdk.init()  # by SENTRY_DSN, SENTRY_ENVIRONMENT and SENTRY_RELEASE
app = App()
capture_failures(app)
log = logging.getLogger("shop")


@app.task(max_retries=2)
def charge(card: str, amount: int) -> None:
    log.info("charging %d", amount)  # a breadcrumb of the issue
    raise ConnectionError("the bank does not answer")
