"""Calls an HTTP server that fails at first; each call is retried until it works.

    rqretry worker workers.flaky_http:app       in one shell
    python -m workers.flaky_http                in another: starts the server, publishes 3 calls

The server answers 503 to the first two requests for a path. Each message is delivered three times;
the third delivery prints its success. Ctrl-C ends the server; calls published after that fail, are
retried, and end in the dead-letter queue (`rqretry dlq list flaky-http`).
"""

import sys
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

from rqretry import App, ConsumeResult, Message, RetryPolicy

FAILURES = 2

if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)

app = App()


@app.consumer("calls", group="flaky-http", policy=RetryPolicy.ladder("200ms 1s 2s", 5))
def call(message: Message[str]) -> ConsumeResult:
    """Call the URL in the body. A plain function: it runs in a thread and may block."""
    try:
        with urlopen(message.body, timeout=5):  # noqa: S310 - we publish only http URLs
            print(f"{message.body} answered at delivery {message.attempt}", flush=True)
    except HTTPError as error:
        with error:
            return ConsumeResult.failure(f"HTTP {error.code}")
    return ConsumeResult.SUCCESS  # any other exception is a failure too


class Flaky(BaseHTTPRequestHandler):
    """Answers 503 to the first requests for a path, and 200 to later ones."""

    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        """Answer."""
        self.requests[self.path] += 1
        self.send_response(200 if self.requests[self.path] > FAILURES else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: the worker prints what happened."""


def main(server: ThreadingHTTPServer) -> None:
    """Publish three calls to this server, and serve."""
    with server, app.client as client, suppress(KeyboardInterrupt):
        base = f"http://127.0.0.1:{server.server_port}"
        client.publish_many("calls", [f"{base}/orders/{number}" for number in range(3)])
        server.serve_forever()


if __name__ == "__main__":
    main(ThreadingHTTPServer(("127.0.0.1", 0), Flaky))
