"""A cluster whose Pythons, the driver's too, have nothing of ours but what it is sent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rqretry import Client
from rqretry.spark import java, package
from rqretry.spark.python_package import FILE
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.spark.archives import archived
from tests.edges.spark.cluster import SPARK, standalone
from tests.edges.spark.pipeline import QUICK

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]

PROGRAM = """
import json, sys
from rqretry.spark import archive, session
spark = session()
done = archive(spark, sys.argv[1], url=sys.argv[2])
spark.stop()
print("RESULT", json.dumps(done.events))
"""


def test_an_archive_runs_where_no_python_has_the_package(tmp_path: Path) -> None:
    """spark-submit, a master and two executors; the same file is the Python of all."""
    java.prepare_environment()
    made = package(str(tmp_path / FILE))
    assert {"pyarrow", "hiredis"} <= {name.partition(" ")[0] for name in made.packages}
    (tmp_path / "job.py").write_text(PROGRAM)
    bare = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    bare |= {"PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    assert not importable(bare)
    with EmbeddedRedis() as server, standalone(tmp_path / "work", bare) as master:
        with Client(server.url) as client:
            client.admin.create_topic("t", 2)
            client.publish_many("t", list(range(50)))
        events = submitted(master, tmp_path, bare, str(tmp_path / "out"), server.url)
    assert (events, len(archived(tmp_path / "out"))) == (50, 50)
    assert len(list((tmp_path / "work").glob("app-*/*/.rqretry-*/rqretry"))) == 2


def importable(environment: dict[str, str]) -> bool:
    """Whether the bare Python has something of ours."""
    python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    tried = subprocess.run(
        [python, "-c", "import rqretry"], env=environment, cwd="/", capture_output=True, check=False
    )
    return tried.returncode == 0


def submitted(master: str, folder: Path, environment: dict[str, str], *given: str) -> Any:
    """What a job answers that is sent with the file."""
    settings = QUICK | {
        "spark.executor.defaultJavaOptions": QUICK["spark.driver.defaultJavaOptions"],
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "500m",
        "spark.files": FILE,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [str(SPARK / "bin" / "spark-submit"), "--master", master, *options, "job.py", *given],
        env={**environment, "PYSPARK_PYTHON": f"./{FILE}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.rpartition("RESULT ")[2])
