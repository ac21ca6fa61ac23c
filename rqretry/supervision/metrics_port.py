"""/metrics for Prometheus: a small server, and the counts of a supervisor's processes."""

from collections.abc import Callable, Iterator

from rqretry.core.errors import RqretryError
from rqretry.observability.counters import BUCKETS_S, WAIT_BUCKETS_S, Figures
from rqretry.observability.observer import OUTCOMES
from rqretry.observability.prometheus_text import (
    CONTENT_TYPE,
    Family,
    Sample,
    build_info,
    expose,
    expose_histogram,
)
from rqretry.supervision.health import Board
from rqretry.supervision.http_port import Port, SmallHandler, SmallServer

PATH = "/metrics"


class MetricsPort(Port):
    """Answers GET /metrics with the counts of a supervisor's processes; a context manager.

    Raises:
        ConfigError: The port cannot be opened.
    """

    def __init__(self, board: Board, host: str, port: int) -> None:
        server = open_server(host, port, lambda: render(board), "--metrics-port")
        super().__init__(server, "rqretry-metrics")


def render(board: Board) -> str:
    """The metrics of all processes of this supervisor, also of those that have ended."""
    figures = board.figures()
    histograms = (
        ("rqretry_worker_attempt_seconds", "How long attempts took.", BUCKETS_S, figures.seconds),
        (
            "rqretry_worker_queue_wait_seconds",
            "How long messages waited to be leased since they were due, as far as that is known.",
            WAIT_BUCKETS_S,
            figures.queued,
        ),
        (
            "rqretry_worker_buffer_wait_seconds",
            "How long they waited for a free slot since they were leased.",
            WAIT_BUCKETS_S,
            figures.buffered,
        ),
    )
    text = expose(_families(board, figures))
    for name, about, bounds, found in histograms:
        rows = (
            ({"topic": topic, "group": group}, buckets[:-1], buckets[-1])
            for (topic, group), buckets in sorted(found.items())
        )
        text += expose_histogram(name, about, bounds, rows)
    return text


def _families(board: Board, figures: Figures) -> Iterator[Family]:
    text = "Attempts that ended, by outcome; stale: the lease had ended before the result came."
    # Also zeros: Prometheus sees no increase in a series that is new.
    pairs = sorted({(topic, group) for topic, group, _ in figures.attempts})
    rows: list[Sample] = [
        (
            {"topic": topic, "group": group, "outcome": outcome},
            figures.attempts.get((topic, group, outcome), 0),
        )
        for topic, group in pairs
        for outcome in sorted(OUTCOMES)
    ]
    yield "rqretry_worker_attempts_total", "counter", text, rows
    rows = [
        ({"topic": topic, "result": result}, count)
        for (topic, result), count in sorted(figures.published.items())
    ]
    text = "Failed attempts by the exception's type, or the cause; the rarer ones are other."
    failed: list[Sample] = [
        ({"topic": topic, "group": group, "reason": reason}, count)
        for (topic, group, reason), count in sorted(figures.failed.items())
    ]
    yield "rqretry_failed_attempts_total", "counter", text, failed
    text = "Messages that handlers published."
    yield "rqretry_worker_published_total", "counter", text, rows
    rows = [({"result": result}, count) for (result,), count in sorted(figures.spans.items())]
    text = "Spans that ended; dropped: the queue was full, refused: rejected by the collector."
    yield "rqretry_worker_spans_total", "counter", text, rows
    states = board.states()
    text = "Processes of this worker, by state."
    rows = [({"state": state}, float(count)) for state, count in states.items()]
    yield "rqretry_worker_processes", "gauge", text, rows
    text = "Attempts that a group can run at once here; busy: that it does."
    rows = [
        ({"group": group, "state": state}, float(count))
        for group, (busy, all_) in sorted(board.slots().items())
        for state, count in (("busy", busy), ("free", all_ - busy))
    ]
    yield "rqretry_worker_slots", "gauge", text, rows
    yield build_info()
    text = "1 while this worker can lease, as /readyz says."
    yield "rqretry_worker_ready", "gauge", text, [({}, float(board.ready()[0]))]
    text = "1 while this worker runs and replaces its processes, as /livez says."
    yield "rqretry_worker_live", "gauge", text, [({}, float(board.live()[0]))]


def open_server(host: str, port: int, render: Callable[[], str], option: str) -> SmallServer:
    """A server that is not serving yet. Raises ConfigError if the port cannot be opened."""
    return SmallServer(host, port, option, _Handler, render)


class _Handler(SmallHandler):
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:  # noqa: N802 - a name of http.server
        """Answer with the numbers."""
        assert isinstance(self.server, SmallServer)
        if self.path.partition("?")[0] != PATH:
            self.answer(404, f"only {PATH} is here\n")
            return
        try:
            self.answer(200, self.server.source())
        except RqretryError as error:
            self.answer(503, f"{error}\n")

    do_HEAD = do_GET  # noqa: N815 - a name of http.server

    def answer(self, status: int, text: str) -> None:
        """One answer as text."""
        self.send(status, text.encode(), {"Content-Type": CONTENT_TYPE})
