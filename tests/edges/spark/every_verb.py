"""Every job of the pipeline on the master that is named; run by test_session.py, as a program.

The pages of Spark's UI are kept in FOLDER/ui, so that the test can look for the password in them.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from rqretry.spark import archive, ingest, redrive, report, session, simulate

DEAD = "error_type = 'TimeoutError'"


def main(master: str, url: str, namespace: str, folder: str) -> None:
    spark = session("every verb", master, settings(folder))
    spark.sparkContext.setLogLevel("INFO")
    where: dict[str, Any] = {"url": url, "namespace": namespace}
    rows = f"{folder}/rows.csv"
    done = ingest(spark, rows, "flights", **where, job="load")
    again = ingest(spark, rows, "flights", **where, job="load")
    direct = spark.range(0, 100, 1, 2).select(fn.struct("id").alias("body"))
    direct.write.format("rqretry").options(**where, topic="direct").mode("append").save()
    history = read(spark, **where, topic="*")
    history.groupBy("event").count().explain("extended")
    read(spark, **where, topic="*", kind="dead_letters", group="g").where(DEAD).explain("extended")
    kept = archive(spark, f"{folder}/archive", **where)
    live = report(spark, f"{folder}/live", topics="orders", **where)
    found = report(spark, f"{folder}/report", f"{folder}/archive", "orders")
    given = {**where, "state": f"{folder}/state"}
    tried = redrive(spark, "g", DEAD, **given, dry_run=True)
    sent = redrive(spark, "g", DEAD, **given, rate="50/s")
    replayed = simulate(spark, f"{folder}/archive", ["fixed:1s", "rocketmq"], "orders")
    keep_pages(spark, Path(folder) / "ui")
    answer = {
        "master": spark.sparkContext.master,
        "published": done.published,
        "known": again.known,
        "history": history.count(),
        "archived": kept.events,
        "live": live.groups,
        "report": found.groups,
        "chosen": tried.chosen,
        "sent": asdict(sent),
        "policies": [(row["policy"], row["scenario"]) for row in replayed.rows],
    }
    spark.stop()
    sys.stdout.write(f"RESULT {json.dumps(answer)}\n")


def settings(folder: str) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"{folder}/log",
        "spark.eventLog.compress": "false",  # the test reads it
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }


def read(spark: SparkSession, **options: str) -> Any:
    return spark.read.format("rqretry").options(**options).load()


def keep_pages(spark: SparkSession, folder: Path) -> None:
    """What the UI shows, and what its interface for programs answers."""
    base, name = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    look = build_opener(ProxyHandler({}))  # nothing between us and the loopback interface

    def get(path: str) -> bytes:
        with look.open(f"{base}{path}", timeout=60) as answer:
            body: bytes = answer.read()
        return body

    rest = f"/api/v1/applications/{name}"
    listed = json.loads(get(f"{rest}/sql?details=true&planDescription=true&length=1000"))
    paths = ["/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/"]
    paths += [f"/SQL/execution/?id={one['id']}" for one in listed]
    paths += ["/StreamingQuery/"]
    paths += [f"{rest}/{part}" for part in ("environment", "jobs", "stages", "executors")]
    paths += [f"{rest}/sql?details=true&planDescription=true&length=1000"]
    folder.mkdir()
    for number, path in enumerate(paths):
        (folder / f"{number}.txt").write_bytes(path.encode() + b"\n" + get(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
