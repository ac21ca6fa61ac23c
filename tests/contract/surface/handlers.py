"""Handlers that run in processes of their own; a process finds them here by name."""

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

from rqretry import App, ConsumeResult, DeadLetter, Message
from rqretry.consumer.task import Task
from tests.contract.surface.models import Flight, Picky, Stubborn

_app = App("redis://localhost:1/0")


def describe(message: Message[Any]) -> ConsumeResult:
    """Succeeds where the message arrived as it is."""
    assert isinstance(message, Message)
    return ConsumeResult.SUCCESS


def fly(flight: Flight, message: Message[Any]) -> ConsumeResult:
    """Dead-letters with what it saw."""
    parts = (type(flight).__name__, flight.number, message.attempt, message.group, message.tag)
    raise DeadLetter(" ".join(map(str, parts)))


def fail_badly(message: Message[Any]) -> None:
    """Raises what the body names."""
    if message.body == "stubborn":
        raise Stubborn("it holds a lock")
    if message.body == "picky":
        raise Picky("it wants a code", code=3)
    if message.body == "local":
        raise _local("nobody can import it")
    if message.body == "exit":
        raise SystemExit(3)
    raise ValueError(message.body)


def other_place(message: Message[Any]) -> None:
    """Fails like fail_badly, elsewhere."""
    raise ValueError(message.body)


def die(message: Message[Any]) -> None:
    """Takes its process down in its first attempts."""
    if message.body == "die":
        os._exit(7)
    if message.body == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def hang(message: Message[Any]) -> None:
    """Computes for ever where it is asked to."""
    while message.body == "hang":
        pass


def answer(message: Message[Any]) -> Any:
    """Returns what cannot travel."""
    return {"generator": (n for n in range(3)), "module": math, "false": False}[message.body]


def promised(message: Message[Any]) -> bool:
    """False is a failure."""
    return bool(message.body == "yes")


def record(name: str, path: str) -> bool:
    """A task: proves in which process it ran; what it returns means nothing."""
    with Path(path).open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
    return False


def slow(message: Message[Any]) -> None:
    """Is not done when the worker stops."""
    time.sleep(60)


def _local(text: str) -> Exception:
    class Local(Exception):
        pass

    return Local(text)


task: Task[[str, str], bool] = _app.task("record", process=True)(record)


def fork_once(message: Message[Any]) -> None:
    """The first message leaves a copy of the process, which returns while the second one runs."""
    if message.body != "fork":
        time.sleep(1)
        raise ValueError("the second fails")
    if os.fork() == 0:
        time.sleep(0.3)
