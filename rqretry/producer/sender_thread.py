"""A thread that sends what more threads publish at once than send by themselves, in shared calls.

No caller sends for others, since it may be interrupted, or wait for them in a signal handler.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from rqretry.core.errors import AmbiguousResult
from rqretry.core.message_id import MessageId
from rqretry.producer.shared_call import Answer
from rqretry.protocol.publish import Prepared, ids_of

PATIENCE_S = 1.0
"""How long a caller waits for a call to go in; then it sends by itself, as during an outage."""
_IDLE_S = 5.0
"""How long the thread waits for another caller before it ends."""
_CLOSE_S = 1.0


class Waiting:
    """A caller that waits for its answer."""

    __slots__ = ("_answered", "_taken", "answer", "messages")

    def __init__(self, messages: Sequence[Prepared]) -> None:
        self.messages = messages
        self.answer: Answer = []
        self._taken, self._answered = threading.Lock(), threading.Lock()
        self._answered.acquire()

    def take(self) -> bool:
        """Whether whoever asks may send its messages: one may."""
        return self._taken.acquire(blocking=False)

    def wake(self, answer: Answer) -> None:
        """Have it go on with its answer."""
        self.answer = answer
        self._answered.release()

    def wait(self) -> bool:
        """Wait for the answer; False where nobody has sent the messages, nor will."""
        if self._answered.acquire(timeout=PATIENCE_S):
            return True
        if self.take():
            return False
        return self._answered.acquire()


class SenderThread:
    """Sends for callers in other threads; it runs while there are any.

    Args:
        take: Takes off those who go together in the next call.
        send: Sends what they publish; what each of them is answered.
    """

    def __init__(
        self,
        take: Callable[[deque[Waiting]], list[Waiting]],
        send: Callable[[Sequence[Sequence[Prepared]]], list[Answer]],
    ) -> None:
        self._take, self._send = take, send
        self._arrived: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()

    def send(self, messages: Sequence[Prepared]) -> list[MessageId | Exception] | None:
        """Send messages together with what others publish; an id or an error for each.

        Returns:
            None where the caller has to send them by itself.
        """
        if self._thread is threading.current_thread():  # a hook of a call, or a log handler
            return None
        waiting = Waiting(messages)
        self._arrived.put(waiting)
        try:
            if self._thread is None and not self._start() and waiting.take():
                return None
            if not waiting.wait():
                return None
        except BaseException:  # interrupted: what was not sent yet will not be
            waiting.take()
            raise
        if isinstance(waiting.answer, Exception):
            raise waiting.answer
        return waiting.answer

    def close(self) -> None:
        """End when what waits is sent."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._arrived.put(None)
            thread.join(_CLOSE_S)

    def _start(self) -> bool:
        with self._starting:
            if self._thread is None:
                try:
                    thread = threading.Thread(target=self._run, name="rqretry-publish", daemon=True)
                    self._thread = thread
                    thread.start()
                except BaseException as error:  # the interpreter ends, or has enough threads
                    self._thread = None
                    if isinstance(error, RuntimeError):
                        return False
                    raise
        return True

    def _run(self) -> None:
        waiting: deque[Waiting] = deque()
        while self._collect(waiting):
            callers = [caller for caller in self._take(waiting) if caller.take()]
            answers = self._answers([caller.messages for caller in callers])
            for caller, answer in zip(callers, answers, strict=True):
                caller.wake(answer)

    def _collect(self, waiting: deque[Waiting]) -> bool:
        """Add those who have come, and wait for one if there are none; False: nobody comes."""
        with suppress(Empty):
            come = self._arrived.get(block=not waiting, timeout=_IDLE_S)
            while come is not None:
                waiting.append(come)
                come = self._arrived.get_nowait()
            if waiting:
                self._arrived.put(None)  # closed: when these are sent
        if waiting:
            return True
        self._thread = None  # whoever comes from now on starts another one
        if self._arrived.empty():
            return False
        self._thread = threading.current_thread()
        return True

    def _answers(self, parts: Sequence[Sequence[Prepared]]) -> list[Answer]:
        try:
            return self._send(parts)
        except BaseException as error:  # noqa: BLE001 - such as the SystemExit of somebody's hook
            reason = type(error).__name__
            return [AmbiguousResult("publish", ids_of(part), reason) for part in parts]
