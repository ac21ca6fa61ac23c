"""The programs of docs/examples, as modules and as processes."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.servers import python_path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
PATIENCE_S = 30.0


@contextmanager
def example(name: str) -> Iterator[ModuleType]:
    """A program of one file, imported; annotations are resolved in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]


def environment(url: str, **more: str) -> dict[str, str]:
    """Of a process on this server; rqretry is that of this tree."""
    known = {"RQRETRY_REDIS_URL": url, "PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **known, **more}


@contextmanager
def running(
    *command: str, folder: Path, env: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that is ended by its pid, with all its processes."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
        assert process.poll() is None, log.read_text()
        process.terminate()
        assert process.wait(PATIENCE_S) in {0, -signal.SIGTERM}, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(condition: Callable[[], Any], say: Callable[[], str] = str) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, say()
        time.sleep(0.02)
