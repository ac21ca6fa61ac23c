"""What the clients of a run say they did, and what its handlers did: two of the three records.

A run has a directory. Every process appends whole lines to files there, each with one write to a
file that is open for appending, so that a `kill -9` loses no line that was written:

`history-<process>.jsonl`: an `invoke` per operation and at most one completion: `ok`, `fail` (it
knows that nothing happened) or `info` (it does not know). A process that dies leaves an open
invoke, which is read as `info`. A `fault` is what the harness did to somebody.

`effects.jsonl`: a `start` and an `end` of every attempt, written by the handlers themselves.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"
EFFECTS = "effects.jsonl"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def process_name() -> str:
    """How a process calls itself in the records; `fault` names processes by the same number."""
    return str(os.getpid())


class LineFile:
    """A file of JSON lines that many processes may append to; safe to fork and to share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] = (0, -1)
        self._lock = threading.Lock()

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines with one write."""
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        with self._lock:
            pid, descriptor = self._opened
            if pid != os.getpid():
                descriptor = os.open(self.path, _APPEND, 0o600)
                self._opened = (os.getpid(), descriptor)
            os.write(descriptor, text.encode())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; the last one may have been cut off by the end of its process."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


class HistoryWriter:
    """Appends the operations of this process to the history of a run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._number = 0
        self._pid = 0
        self._file = LineFile(directory)

    def invoke(self, op: str, operations: Sequence[Mapping[str, Any]]) -> list[int]:
        """Operations are about to be tried; answers their numbers.

        Args:
            op: "publish", "ack", "change", ….
            operations: The fields of each: topic, id, token, receipt, tier_wanted, ….
        """
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._number = os.getpid(), 0
                self._file = LineFile(self._directory / f"history-{process_name()}.jsonl")
            numbers = [self._number + i + 1 for i in range(len(operations))]
            self._number += len(operations)
        pairs = zip(numbers, operations, strict=True)
        self._write({"type": "invoke", "op": op, "n": n, **fields} for n, fields in pairs)
        return numbers

    def complete(self, outcome: str, fields_by_number: Mapping[int, Mapping[str, Any]]) -> None:
        """Operations have ended: `ok`, `fail` or `info`."""
        lines = fields_by_number.items()
        self._write({"type": outcome, "n": n, **fields} for n, fields in lines)

    def fault(self, what: str, **fields: Any) -> None:
        """The harness does something to somebody, such as what="kill", pid=123."""
        (number,) = self.invoke("fault", [{"what": what, **fields}])
        self.complete(OK, {number: {}})

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        stamp = {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}
        self._file.append({**line, **stamp} for line in lines)


@dataclass(slots=True)
class Operation:
    """One operation of the history: its invoke and its end.

    Attributes:
        proc, number: Who, and which of its operations.
        op: What it was.
        outcome: "ok", "fail" or "info".
        fields: Of the invoke, with those of the completion over them.
        began_ns, ended_ns: By the clock of the machine; 0 where it never ended.
    """

    proc: str
    number: int
    op: str
    outcome: str = INFO
    fields: dict[str, Any] = field(default_factory=dict)
    began_ns: int = 0
    ended_ns: int = 0

    @property
    def id(self) -> str:
        """The message, "" where the client never learned its id."""
        return str(self.fields.get("id", ""))

    @property
    def topic(self) -> str:
        """The topic."""
        return str(self.fields.get("topic", ""))


def read_history(directory: Path) -> list[Operation]:
    """Every operation of every process of a run, in the order in which they began."""
    found: dict[tuple[str, int], Operation] = {}
    for path in sorted(directory.glob("history-*.jsonl")):
        proc = path.stem.removeprefix("history-")
        for line in read_lines(path):
            kind, number = line.pop("type"), line.pop("n")
            wall_ns = line.pop("wall_ns")
            if kind == "invoke":
                found[proc, number] = Operation(proc, number, line.pop("op"), began_ns=wall_ns)
            operation = found[proc, number]
            operation.fields.update(line)
            if kind != "invoke":
                if operation.ended_ns:
                    raise ValueError(f"operation {number} of process {proc} ended twice")
                operation.outcome, operation.ended_ns = kind, wall_ns
    return sorted(found.values(), key=lambda o: (o.began_ns, o.proc, o.number))


@dataclass(slots=True)
class Effect:
    """One attempt as its handler saw it.

    Attributes:
        topic, group, id, attempt: Of the message it was given.
        lease_no: The number of its lease (the fencing token).
        proc: The process that ran it.
        began_ns: By the clock of the machine.
        ended_ns: 0 where it never ended.
        outcome: "success", "failure", "postpone", "dead_letter" or "raised"; "" if it never ended.
        chosen: The handler chose the wait or the level itself.
    """

    topic: str
    group: str
    id: str
    attempt: int
    lease_no: int
    proc: str
    began_ns: int
    ended_ns: int = 0
    outcome: str = ""
    chosen: bool = False


def read_effects(directory: Path) -> list[Effect]:
    """Every attempt that a handler of the run began, in the order in which they did."""
    path, found = directory / EFFECTS, []
    running: dict[tuple[str, ...], Effect] = {}
    for line in read_lines(path) if path.exists() else ():
        key = tuple(str(line[name]) for name in ("topic", "group", "id", "lease_no", "proc"))
        if line["e"] == "start":
            effect = Effect(
                line["topic"], line["group"], line["id"], line["attempt"], line["lease_no"],
                line["proc"], line["at_ns"],
            )  # fmt: skip
            running[key] = effect
            found.append(effect)
        else:
            effect = running[key]
            effect.ended_ns, effect.outcome = line["at_ns"], line["outcome"]
            effect.chosen = line["chosen"]
    return found
