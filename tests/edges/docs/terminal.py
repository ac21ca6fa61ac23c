"""Types what a page says, as it stands there, and compares what comes with what the page shows.

A block of Python whose first line is `# name.py` is a file. A block of `console` is typed: lines
that begin with `$ ` are commands, and what follows is what they print; `...` stands for any text,
or any lines. A block with the title of another terminal is typed there: its command goes on
running, and what it prints is awaited. Times, ids, workers and widths of columns may differ.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"\n]*)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FILE = re.compile(r"# ([\w/]+\.\w+)\n")
END = "--end-of-command--"
LOOKS = ("rqretry status", "rqretry message", "rqretry dlq list", "rqretry dlq show")
"""Commands that change nothing: they are typed again until they show what the page shows."""
PATIENCE_S = 30
NO_ASYNCIO = "-p no:asyncio"
"""A reader has installed `rqretry[testing]` and no other plugin, which would warn."""
ANY = "..."
DIFFER = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}Z?", "<time>"),
    (r"\b[0-9A-Za-z_-]{16}\b(?=[ .,]|$)", "<id>"),
    (r"\S+:\d+:\d+(?=\s|$)", "<worker>"),
    (r"\bin \d+\.\d\ds\b", "in <seconds>"),
    (r"\b\d+ bytes", "<size>"),
    (r"[\d.]+ m?s in the (queue|buffer|handler)", r"<time> in the \1"),
    (r"(?<=failure) +\d\.\d+", " <seconds>"),
    (r" [2-4]  <time>(?=  waits)", " <next>  <time>"),
    (r"\blevel [12],", "<level>"),
    (r"\b[12]:1(?=\s*$)", "<levels>"),
    (r"\b\d+ s(?= +1 +<levels>)", "<age>"),
    (r"next in (1 s|\d+ ms)", "next in <1 s>"),
    (r"\s+", " "),
)


def alike(line: str) -> str:
    """A line without what differs from one run to the next."""
    for pattern, name in DIFFER:
        line = re.sub(pattern, name, line)
    return line.strip()


def shows(shown: str, expected: str) -> bool:
    """Whether a terminal shows what a page says."""
    lines = [alike(line) for line in expected.strip().splitlines()]
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == ANY else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in lines
    )
    return bool(re.fullmatch(pattern, "".join(f"{alike(line)}\n" for line in shown.splitlines())))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a block, and what the page shows below it; "" if it only awaits text."""
    if not text.startswith("$ "):
        yield "", text
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


class Terminal(AbstractContextManager["Terminal"]):
    """A shell in a folder: for looking at what it prints, or at a terminal of its own."""

    def __init__(self, folder: Path, variables: Mapping[str, str], *, tty: bool) -> None:
        self._master, slave = pty.openpty() if tty else os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder, env=dict(variables), stdin=subprocess.PIPE, stdout=slave, stderr=slave,
            text=True, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._printed = ""
        self._read_until = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            text = data.decode(errors="replace").replace("\r\n", "\n")
            self._printed += STYLE.sub("", text)

    def type(self, line: str) -> None:
        """Type one line, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def run(self, command: str) -> str:
        """Type a command and wait for its end; what it printed."""
        self.type(f"{command}\nprintf '%s\\n' {END}")
        return self.awaited(f"{END}\n").removesuffix(f"{END}\n")

    def awaited(self, text: str) -> str:
        """What was printed since the last call, when this text was."""
        end = time.monotonic() + PATIENCE_S
        while text not in (new := self._printed[self._read_until :]):
            assert time.monotonic() < end, f"not printed: {text}\n{new}"
            time.sleep(0.01)
        self._read_until += new.index(text) + len(text)
        return new[: new.index(text) + len(text)]

    def shown(self, expected: str) -> None:
        """Wait until what was printed since the last call is what the page shows."""
        end = time.monotonic() + PATIENCE_S
        while not shows(new := self._printed[self._read_until :], expected):
            assert time.monotonic() < end, f"the page shows\n{expected}\nprinted was\n{new}"
            time.sleep(0.01)
        self._read_until += len(new)


class Reader(AbstractContextManager["Reader"]):
    """Somebody who does what a page says."""

    def __init__(self, folder: Path, url: str, installed: Path | None = None) -> None:
        """`installed`: the programs of an environment that has rqretry; default this tree's."""
        names = {k: v for k, v in os.environ.items() if not k.startswith(("RQRETRY_", "PYTEST_"))}
        path = f"{installed or Path(sys.executable).parent}{os.pathsep}{names['PATH']}"
        tree = "" if installed else str(ROOT)
        named = {"RQRETRY_REDIS_URL": url, "PYTHONPATH": tree, "COLUMNS": "200", "PATH": path}
        self._variables = {**names, **named, "TERM": "xterm", "PYTEST_ADDOPTS": NO_ASYNCIO}
        self._folder = folder
        self._terminals: dict[str, Terminal] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._terminals.values():
            terminal.__exit__()

    def write(self, page: Path) -> None:
        """Write the files of a page."""
        for language, _, text in BLOCK.findall(page.read_text()):
            if language == "python" and (name := FILE.match(text)):
                (self._folder / name[1]).write_text(text)

    def read(self, page: Path) -> int:
        """Do all of it; how many commands were typed."""
        self.write(page)
        typed = 0
        for language, title, text in BLOCK.findall(page.read_text()):
            for command, expected in commands(text) if language == "console" else ():
                self.type(title, command, expected)
                typed += bool(command)
        return typed

    def type(self, title: str, command: str, expected: str) -> None:
        """Type a command into the terminal of this title, "" for the first, and compare."""
        if title not in self._terminals:
            self._terminals[title] = Terminal(self._folder, self._variables, tty=bool(title))
        terminal = self._terminals[title]
        if title:
            if command:
                terminal.type(command)
            terminal.shown(expected)
            return
        end = time.monotonic() + PATIENCE_S
        while not shows(printed := terminal.run(command), expected):
            again = command.startswith(LOOKS) and time.monotonic() < end
            assert again, f"$ {command}\nthe page shows\n{expected}\nprinted was\n{printed}"
