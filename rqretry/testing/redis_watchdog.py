"""The parent process of an embedded Redis: it ends the server when its own parent is gone.

Run by file path in an isolated interpreter (no site packages, so that it is up in
milliseconds); it therefore imports the standard library only. Requests arrive on
standard input, one per line, and each is answered by one line; the end of the input, which the
operating system delivers even after a kill -9 of the parent, ends everything.

    redis_watchdog.py PRIVATE_DIRECTORY LOG COMMAND [ARGUMENT...]

It reaps the server only on request, so a process id it gave out stays the server's.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

STOP_SECONDS = 10.0


class Keeper:
    """Starts and ends one server; `start`, `poll`, `stop` and `kill` answer one line."""

    def __init__(self, command: list[str], log: Path) -> None:
        """Nothing runs until `start`."""
        self._command = command
        self._log = log
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the server, unless it runs, and answer its process id."""
        if self._server is None or self._server.poll() is not None:
            with self._log.open("ab") as log:
                self._server = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        return str(self._server.pid)

    def poll(self) -> str:
        """Answer `running`, or `exited` once the server has ended."""
        return "exited" if self._server is None or self._server.poll() is not None else "running"

    def stop(self) -> str:
        """End the server in good order, so that it writes what it has to write."""
        if self._server is not None and self._server.poll() is None:
            self._server.terminate()
            try:
                self._server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:  # stopped by a signal, or busy in a script
                self.kill()
        return "stopped"

    def kill(self) -> str:
        """End the server at once."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        return "killed"


def main(directory: str, log: str, *command: str) -> None:
    """Serve requests until the input ends, then end the server and remove `directory`."""
    keeper = Keeper(list(command), Path(log))
    verbs = {"start": keeper.start, "poll": keeper.poll, "stop": keeper.stop, "kill": keeper.kill}
    signal.signal(signal.SIGTERM, _leave)
    try:
        for line in sys.stdin:
            print(verbs[line.strip()](), flush=True)
    finally:
        keeper.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
