"""Tracing of what tasks publish: each row has a producer span, as a publish has anywhere."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rqretry.core.envelope import decode, encode
from rqretry.core.history_notes import noted
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import MessageId
from rqretry.observability import observer
from rqretry.observability.observer import Publication
from rqretry.observability.trace_settings import ENDPOINTS, start_tracing, trace_settings
from rqretry.protocol.publish import Prepared

_SERVICE = "rqretry-spark"


def tracing_of_tasks(otlp: str | None) -> dict[str, str]:
    """The settings of Spark that trace its tasks; {} without --otlp.

    Raises:
        ConfigError: The URL cannot work, or the SDK is not installed.
    """
    if otlp is None or trace_settings(otlp, service=_SERVICE) is None:
        return {}
    return {f"spark.executorEnv.{ENDPOINTS[1]}": otlp}


@contextmanager
def traced_task() -> Iterator[None]:
    """Trace a task where the environment of its process asks for it, and export all at its end.

    Raises:
        ConfigError: One of the OTEL_* variables cannot work as it is written.
    """
    if observer.installed is not None:  # the program set it up, and will stop it
        yield
        return
    start_tracing(trace_settings(None, service=_SERVICE))
    try:
        yield
    finally:
        observer.stop()


@contextmanager
def traced(
    namespace: str, topic: str, chunk: Sequence[Prepared]
) -> Iterator[tuple[Sequence[Prepared], Callable[[Iterable[MessageId | Exception]], None]]]:
    """Around one call: the messages with their spans' contexts, and a function for the answers.

    Without tracing, the messages unchanged, and a function that does nothing.
    """
    if observer.installed is None:
        yield chunk, lambda _answers: None
        return
    spans: list[Publication] = []
    answers: list[MessageId | Exception] = []
    try:
        yield [_begun(spans, namespace, topic, message) for message in chunk], answers.extend
    except BaseException as error:
        for span in spans:
            span.failed(error)
        raise
    for span, answer in zip(spans, answers, strict=True):
        if isinstance(answer, Exception):
            span.failed(answer)
        else:
            span.done([answer])


def _begun(spans: list[Publication], namespace: str, topic: str, message: Prepared) -> Prepared:
    assert observer.installed is not None
    body, tag, keys, headers, group, born_ms, due_ms = decode(message.data)
    item = OutgoingMessage(body=body, headers=headers or None)
    span = observer.installed.publishing(namespace, topic, [item], batch=False)
    spans.append(span)
    carried = span.items[0].headers
    data = encode(
        body, tag=tag, keys=keys, headers=carried, message_group=group, born_ms=born_ms,
        due_ms=due_ms,
    )  # fmt: skip
    return message._replace(data=data, noted=noted(tag, keys, carried, group))
