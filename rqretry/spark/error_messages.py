"""Errors as one sentence: without a Python traceback from workers, and without a Java stack."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rqretry.core import errors
from rqretry.core.errors import ConfigError, RqretryError

_OURS = re.compile(r"rqretry\.(?:core\.errors|spark\.\w+)\.(\w+): (.+)")
_CODES = re.compile(r"^\[[A-Z0-9_.]+\] | SQLSTATE: .*$")
_REASON = re.compile(r"\[[A-Z][A-Z0-9_.]{3,}\] .+")
_CAUSE = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
_STORAGE = re.compile(
    "No space left on device|Disk quota exceeded|File too large|Read-only file system"
)
_MEMORY = re.compile(r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY")
_BUGS = ("ScriptError",)

Hook = Callable[[type[BaseException], BaseException, Any], Any]
"""As `sys.excepthook`."""


class DataLoss(ConfigError):
    """Raised when a part of the history was gone before it was read."""


@contextmanager
def plain_in_worker() -> Iterator[None]:
    """Where Spark runs us in a worker process: send home the sentence of our errors alone.

    Spark reads the variable when it sends an error home, and the process ends after that.
    """
    try:
        yield
    except RqretryError as error:
        if type(error).__name__ not in _BUGS:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@contextmanager
def plain_on_driver() -> Iterator[None]:
    """Around what runs on Spark: an error of ours that came through Spark is raised as itself."""
    try:
        yield
    except PySparkException as error:
        found = sentence_in(with_stack(error))
        if found is None:
            raise
        raise found from None


@contextmanager
def plain_failures() -> Iterator[None]:
    """Around a whole job: an error of Spark becomes one sentence, in Spark's words.

    Raises:
        ConfigError: Spark failed in a way that is not known here.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        known = sentence_in(with_stack(error))
        raise known or ConfigError(f"Spark failed: {cause_of(str(error))}") from None


def first_line(hook: Hook) -> Hook:
    """Shows what a program did not catch, after one sentence of ours where it carries one."""

    def show_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        of_spark = isinstance(error, PySparkException | Py4JError)
        found = sentence_in(with_stack(error)) if of_spark else None
        if found is not None:
            sys.stderr.write(f"Error: {found}\n")
        hook(kind, error, trace)

    return show_error


def with_stack(error: BaseException) -> str:
    """What an error of Spark says, and the stack of Java, which it keeps to itself."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def cause_of(text: str) -> str:
    """The reason in an error of Spark, which may be a whole stack of Java."""
    refused = _STORAGE.search(text)
    if refused is not None:
        return refused[0]
    reason = _REASON.search(text)
    if reason is not None:
        return _CODES.sub("", reason[0]).strip()
    causes = _CAUSE.findall(text)
    first = text.strip().partition("\n")[0]
    return str(causes[-1] if causes else first).strip()


def gist(error: Exception) -> str:
    """The first line of an error of Spark, without its code."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _CODES.sub("", lines[0]).strip()


def sentence_in(text: str) -> RqretryError | None:
    """The error of ours that a message of Spark carries, or that a full disk or heap is."""
    match = _OURS.search(text)
    if match is None:
        return _of_resources(text)
    own = {DataLoss.__name__: DataLoss}
    error_type: Any = own.get(match[1]) or getattr(errors, match[1], RqretryError)
    # Some errors are made of parts; of those only the sentence is known here.
    return (RqretryError if "__str__" in vars(error_type) else error_type)(match[2].strip())


def _of_resources(text: str) -> ConfigError | None:
    refused = _STORAGE.search(text)
    if refused is not None:
        return ConfigError(
            f"Spark cannot write: {refused[0]}: make room where the output, the checkpoint and"
            " spark.local.dir are, or name other folders"
        )
    if _MEMORY.search(text) is not None:
        return ConfigError(
            "Java has too little memory for this job: raise spark.driver.memory, for example to 4g"
            " (on a cluster also spark.executor.memory)"
        )
    return None
