"""Sessions: a machine without Java, a real master and worker, and secrets that stay secret."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
import redis

from rqretry import Client
from rqretry.edge.spark import java
from rqretry.embedded import EmbeddedRedis
from tests.support.servers import free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SECRET = "s3cret-canary"
PROGRAM = """
import sys
from pyspark.sql import functions as fn
from rqretry.spark import archive, ingest, session

master, url, folder, files = sys.argv[1:]
spark = session("cluster test", master, {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": folder + "/log",
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false"})
done = ingest(spark, files, "flights", url=url, job="load")
again = ingest(spark, files, "flights", url=url, job="load")
rows = spark.range(0, 100, 1, 2).select(fn.struct("id").alias("body"))
rows.write.format("rqretry").options(url=url, topic="direct").mode("append").save()
history = spark.read.format("rqretry").options(url=url, topic="*").load()
history.groupBy("event").count().explain(True)
kept = archive(spark, folder + "/archive", url=url)
counts = (done.published, again.known, history.count(), kept.events)
print("RESULT", spark.sparkContext.master, *counts)
spark.stop()
"""


@contextmanager
def daemon(*words: str) -> Iterator[None]:
    """A daemon of the pip-installed Spark, on loopback."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [str(program), *words],
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


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the daemon did not come up"
            time.sleep(0.1)
        else:
            return


@pytest.mark.campaign
def test_the_same_jobs_run_on_a_real_master_and_worker_and_keep_the_password_secret(
    tmp_path: Path,
) -> None:
    java.prepare_environment()
    port, web = free_port(), free_port()
    package = "org.apache.spark.deploy"
    (tmp_path / "log").mkdir()
    files = tmp_path / "rows.csv"
    files.write_text("n\n" + "\n".join(map(str, range(200))) + "\n")
    with EmbeddedRedis() as server:
        with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
            client.config_set("requirepass", SECRET)
        url = f"unix://:{SECRET}@{server.socket_path}"
        master = f"spark://127.0.0.1:{port}"
        where = ("--host", "127.0.0.1", "--webui-port", str(web))
        with daemon(f"{package}.master.Master", *where, "--port", str(port)):
            wait_for(port)
            size = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
            with daemon(f"{package}.worker.Worker", *where[:2], *size, master):
                words = [sys.executable, "-c", PROGRAM, master, url, str(tmp_path), str(files)]
                done = subprocess.run(
                    words, capture_output=True, text=True, timeout=350, check=False
                )
        said = done.stdout + done.stderr
        assert f"RESULT {master} 200 200 300 300" in said, said
        with Client(url) as publisher:
            assert publisher.admin.stats("flights").backlog == 200
    assert SECRET not in said
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.campaign
def test_without_java_the_one_of_the_wheel_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "from rqretry.spark import session; import os;"
        " spark = session(config={'spark.default.parallelism': '1'});"
        " print('JAVA', os.environ['JAVA_HOME'],"
        " spark.range(3).mapInArrow(lambda rows: rows, 'id long').count())"
    )
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("sh", "bash", "dirname", "ls", "cat", "ps", "env", "uname", "tr", "basename"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (bin_ / name).exists():
                (bin_ / name).symlink_to(Path(folder, name))
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PYSPARK_PYTHON", "PATH")
    }
    words = [sys.executable, "-c", program]
    done = subprocess.run(
        words,
        env={**environment, "PATH": str(bin_)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "JAVA" in done.stdout, done.stderr
    assert "rqretry-java-" in done.stdout
    assert done.stdout.split()[-1] == "3"
