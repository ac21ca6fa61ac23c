"""A master and a worker of the pip-installed Spark, on loopback."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.servers import free_port

SPARK = Path(pyspark.__file__).parent
_LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def standalone(work: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """A master and a worker for two executors; the master's URL."""
    port, web = free_port(), free_port()
    package, where = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--webui-port")
    master = f"spark://127.0.0.1:{port}"
    size = ("--cores", "2", "--memory", "1g", "--work-dir", str(work))
    given = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": _LEAN}
    given |= environment or {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with _daemon(given, f"{package}.master.Master", *where, str(web), "--port", str(port)):
        _wait_for(port)
        worker = f"{package}.worker.Worker"
        with _daemon(given, worker, *where, str(free_port()), *size, master):
            yield master


@contextmanager
def _daemon(environment: Mapping[str, str], *request_parts: str) -> Iterator[None]:
    process = subprocess.Popen(
        [str(SPARK / "bin" / "spark-class"), *request_parts],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the daemon did not come up"
            time.sleep(0.1)
        else:
            return
