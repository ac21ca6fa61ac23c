"""Handlers with `process=True`: CPU-bound work, each slot in a process of its own.

A process, unlike a thread, can be killed: an attempt that times out or loses its lease ends at
once, and a handler that takes its process down fails its own attempt and nobody else's.
"""

import importlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import parent_process
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn

from rqretry.consumer.handler_binding import address
from rqretry.consumer.task import Task
from rqretry.core.consume_result import (
    ConsumeResult,
    HandlerSignal,
    classify_task_return,
    signal_of,
)
from rqretry.core.errors import show
from rqretry.core.failure_record import carry_fingerprint, fingerprint_of
from rqretry.observability import observer as observing
from rqretry.observability.log_format import (
    LogSettings,
    attempt_facts,
    set_up_logging,
    settings_elsewhere,
    within_attempt,
)

log = logging.getLogger("rqretry")

_context = multiprocessing.get_context("spawn")
_REAP_S = 5.0
_FLUSH_S = 2.0


class ProcessDied(Exception):
    """Raised when the process of an attempt ended before the handler did."""


class RemoteError(Exception):
    """What a handler raised in its process, where the exception itself cannot be pickled."""


class Answer(NamedTuple):
    """What comes back from the process.

    Attributes:
        value: What was returned, if it is a ConsumeResult, None or False; True for anything else.
            Of a batch also a dict of message id to Answer, and [] for a list.
        raised: The value is the result that the handler raised, or that it did not run at all.
        error: What was raised, pickled; b"" for nothing.
        type_name: The exception's type.
        text: Its text.
        trace: Its traceback.
        fingerprint: See rqretry.core.failure_record.
    """

    value: Any
    raised: bool = False
    error: bytes = b""
    type_name: str = ""
    text: str = ""
    trace: str = ""
    fingerprint: str = ""


class ProcessSlot:
    """One process that runs one attempt at a time; started when it is first needed."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._busy = False

    def call(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a handler in the process; blocks, so it is called in a thread.

        Returns:
            A ConsumeResult, None or False: what decides the outcome, and nothing else; of a batch
            also a mapping of those, and of exceptions.

        Raises:
            ProcessDied: The process was killed, or took itself down.
            Exception: What the handler raised.
        """
        observer = observing.installed
        carrier = {} if observer is None else observer.carrier()
        facts = attempt_facts()
        request = _pickled((*address(handler), args, kwargs, carrier, facts))
        process, pipe = self._running()
        self._busy = True
        try:
            pipe.send_bytes(request)
            data = pipe.recv_bytes()
            self._busy = False
        except (EOFError, OSError) as broken:
            process.join(_REAP_S)
            pipe.close()
            how = how_ended(process.exitcode)
            raise ProcessDied(f"the handler's process ended with {how}") from broken
        answer: Answer = ForkingPickler.loads(data)
        if answer.error:
            raise _raised(answer) from RemoteError(answer.trace)
        if isinstance(answer.value, ConsumeResult) and answer.raised:
            raise signal_of(answer.value)
        if isinstance(answer.value, dict):
            return {k: _raised(a) if a.error else a.value for k, a in answer.value.items()}
        return answer.value

    def kill(self) -> None:
        """End the process, whatever it is doing; the next attempt gets a new one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
            self._process = self._pipe = None

    def close(self) -> None:
        """End the process for good; one that is observed may first send what it holds."""
        with self._lock:
            self._closed = True
            process, pipe = self._process, self._pipe
        if process is not None and pipe is not None and observing.installed and not self._busy:
            pipe.close()
            process.join(_FLUSH_S)
        self.kill()

    def _running(self) -> tuple[SpawnProcess, Connection]:
        with self._lock:
            if self._closed:
                raise ProcessDied("the worker is stopping")
            if self._process is None or self._pipe is None or not self._process.is_alive():
                self._process, self._pipe = _start()
            return self._process, self._pipe


def _start() -> tuple[SpawnProcess, Connection]:
    ours, theirs = _context.Pipe()
    observer = observing.installed
    start = None if observer is None else observer.elsewhere()
    process = _context.Process(
        target=serve, args=(theirs, start, settings_elsewhere()), daemon=True
    )
    process.start()
    theirs.close()
    return process, ours


def _pickled(value: object) -> bytes:
    # Not the view that `dumps` answers: where a traceback keeps it in a cycle, the collector of
    # Python 3.12 frees the buffer below it first, and the process ends with SIGSEGV.
    return bytes(ForkingPickler.dumps(value))


def how_ended(code: int | None) -> str:
    """How a process ended, by its exit code: a signal, or an exit status."""
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:  # a real-time signal has no name
            return f"signal {-code}"
    return f"exit status {code}"


def _raised(answer: Answer) -> BaseException:
    """The exception of the handler, or one of the same name with the same text."""
    try:
        error: BaseException = ForkingPickler.loads(answer.error)
    except Exception:  # noqa: BLE001 - anything can go wrong with somebody's exception
        error = type(answer.type_name, (RemoteError,), {})(answer.text)
    carry_fingerprint(error, answer.fingerprint)
    return error


# -- in the process --------------------------------------------------------------------------------


def serve(
    pipe: Connection,
    observe: Callable[[], None] | None = None,
    logs: LogSettings | None = None,
) -> None:
    """The main function of the process: run what is sent until the pipe closes.

    `observe` has this process observed as the worker is (observing.py); with `logs` it logs as the
    worker does.
    """
    if logs is not None:
        set_up_logging(logs)
    # A signal for the whole process group is the worker's to handle: it drains, then ends us.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if observe is not None:
        observe()
    own = os.getpid()
    while True:
        try:
            request = pipe.recv_bytes()
            answer = _answer(request)
            if os.getpid() != own:  # its answer would be taken for that of the next attempt
                _end_copy()
            pipe.send_bytes(_pickled(answer))
        except (EOFError, OSError):
            observing.stop()
            os._exit(0)


def _end_copy() -> NoReturn:
    """End a copy of the process, which a handler forked, once it comes back from the handler."""
    log.warning(
        "process %d, which a handler forked, came back from the handler: it ends; "
        "end such a process inside of the handler, with os._exit()",
        os.getpid(),
    )
    os._exit(0)


def _die_with_parent() -> None:
    """Nobody waits any more for what a handler computes after its worker was killed."""
    parent = parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _answer(request: bytes) -> Answer:
    try:
        module, name, args, kwargs, carrier, facts = ForkingPickler.loads(request)
        handler = _find(module, name)
        with within_attempt(facts), observing.within(carrier):
            value = handler(*args, **kwargs)
    except HandlerSignal as signal_:
        return Answer(signal_.result, raised=True)
    except BaseException as error:  # noqa: BLE001 - it is raised again in the worker
        return _failed(error)
    completed = classify_task_return(value)
    if completed is not ConsumeResult.SUCCESS:
        return Answer(completed, raised=True)
    of_batch = bool(args) and type(args[0]) is list
    return Answer(_answers(value) if of_batch else _decisive(value))


def _decisive(value: object) -> ConsumeResult | bool | None:
    """What the worker must know of a returned value."""
    if value is None or value is False or type(value) is ConsumeResult:
        return value
    return True


def _answers(value: object) -> object:
    """The same of what a batch handler returned; of a mapping, an Answer for each id."""
    if isinstance(value, list | tuple | set | frozenset):
        return []  # which is no outcome, whatever is in it
    if not isinstance(value, Mapping):
        return _decisive(value)
    return {k if type(k) is str else show(k): _answer_of(each) for k, each in value.items()}


def _answer_of(value: object) -> Answer:
    if isinstance(value, HandlerSignal):
        return Answer(value.result)
    if isinstance(value, BaseException):
        return _failed(value)
    completed = classify_task_return(value)
    return Answer(_decisive(value) if completed is ConsumeResult.SUCCESS else completed)


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.function if isinstance(found, Task) else found


def _failed(error: BaseException) -> Answer:
    type_ = type(error)
    text = "".join(traceback.format_exception_only(error)).strip()
    text = text.removeprefix(f"{type_.__module__}.").removeprefix(f"{type_.__qualname__}: ")
    trace, fingerprint = "".join(traceback.format_exception(error)), fingerprint_of(error)
    data, name = _portable(error, text), type_.__qualname__
    return Answer(None, error=data, type_name=name, text=text, trace=trace, fingerprint=fingerprint)


def _portable(error: BaseException, text: str) -> bytes:
    """The exception pickled, or else a bare one of its type."""
    for candidate in (error, _Bare(type(error), text)):
        try:
            data = _pickled(candidate)
            ForkingPickler.loads(data)  # many exceptions can be pickled and not be read again
        except Exception:  # noqa: BLE001, S112 - as above
            continue
        return data
    return b"?"


class _Bare:
    """Is read as an exception of a type, with a text and nothing else."""

    def __init__(self, type_: type[BaseException], text: str) -> None:
        self._parts = (type_, text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, self._parts


def _bare(type_: type[BaseException], text: str) -> BaseException:
    error = type_.__new__(type_, text)
    error.args = (text,)
    return error
