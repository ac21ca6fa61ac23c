"""`--otlp` and the OTEL_* variables, through the program as users run it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import NAMESPACE, Lab, until
from tests.edges.otel.collector import Collector

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def environment(server: EmbeddedRedis, **variables: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    ours = {"RQRETRY_REDIS_URL": server.url, "RQRETRY_NAMESPACE": NAMESPACE}
    return kept | ours | {"PYTHONPATH": str(ROOT)} | variables


def run(
    server: EmbeddedRedis, *request_parts: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rqretry", *request_parts],
        env=environment(server, **variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("how", ["option", "variable", "traces variable", "grpc by its port"])
async def test_publish_is_traced_when_it_is_reported_where_to(
    lab: Lab, collector: Collector, how: str
) -> None:
    url = collector.http
    options, variables = list[str](), dict[str, str]()
    match how:
        case "option":
            options = ["--otlp", url]
        case "variable":
            variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        case "traces variable":
            variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces"}
        case _:
            variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SERVICE_NAME": "shop"}
            options = ["--otlp", collector.grpc]
    stated = run(lab.server, "publish", "t", "--body", "1", *options, **variables)
    assert (stated.returncode, stated.stderr) == (0, "")
    (span,) = collector.wait(1)
    assert span.name == "publish t"
    assert span.service == ("shop" if how == "grpc by its port" else "rqretry")
    with Client(lab.url, namespace=NAMESPACE) as client:
        headers = client.admin.message(stated.stdout.strip()).headers
    assert headers["traceparent"].split("-")[1:3] == [span.trace_id, span.span_id]


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}],
)
async def test_nothing_is_traced_when_nobody_asks_or_it_is_disabled(
    lab: Lab, variables: dict[str, str]
) -> None:
    stated = run(lab.server, "publish", "t", "--body", "1", **variables)
    assert (stated.returncode, stated.stderr) == (0, "")
    with Client(lab.url, namespace=NAMESPACE) as client:
        assert client.admin.message(stated.stdout.strip()).headers == {}


@pytest.mark.parametrize(
    ("request_parts", "variables", "shown"),
    [
        (["--otlp", "localhost:4318"], {}, "--otlp 'localhost:4318' must be a URL"),
        (
            ["--otlp", "http://localhost:4318"],
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "'http/json' must be one of",
        ),
        (["--otlp", "http://localhost:4318"], {"OTEL_TRACES_EXPORTER": "zipkin"}, "'zipkin'"),
    ],
)
async def test_what_cannot_work_is_one_sentence_before_anything_is_published(
    lab: Lab, request_parts: list[str], variables: dict[str, str], shown: str
) -> None:
    stated = run(lab.server, "publish", "t", "--body", "1", *request_parts, **variables)
    assert stated.returncode == 1
    assert shown in stated.stderr
    assert len(stated.stderr.splitlines()) == 1
    assert not lab.redis.keys("*")


def test_without_the_sdk_a_sentence_names_the_extra(redis_server: EmbeddedRedis) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None;from rqretry.cli.main import main; main()"
    )
    stated = subprocess.run(
        [sys.executable, "-c", code, "publish", "t", "--body", "1", "--otlp", "http://localhost:1"],
        env=environment(redis_server),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert stated.returncode == 1
    assert stated.stderr.endswith("needs OpenTelemetry: pip install 'rqretry[otel]'\n")


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=pytest.mark.campaign)])
async def test_processes_lose_no_span_at_a_normal_stop(
    lab: Lab, collector: Collector, tmp_path: Path, processes: int
) -> None:
    messages = 400
    with Client(lab.url, namespace=NAMESPACE) as client, (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [
                sys.executable, "-m", "rqretry", "worker", "tests.edges.otel.shop:app",
                "--processes", str(processes), "--concurrency", "4", "--app-dir", str(ROOT),
                "--otlp",
                collector.http,
            ],
            env=environment(lab.server, OTEL_BSP_SCHEDULE_DELAY="60000"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )  # fmt: skip
        try:
            await until(lambda: len(client.admin.workers()) == processes, 60)
            client.publish_many("many", range(messages))

            def done() -> bool:
                return lab.stats("many").counters.get("succeed", 0) == messages

            await until(done, 30)
        finally:
            worker.send_signal(signal.SIGTERM)
            status = worker.wait(30)
    assert status == 0, (tmp_path / "log").read_text()
    failed = len(range(0, messages, 5))
    spans = collector.wait(messages + failed)
    outcomes = [span["rqretry.outcome"] for span in spans]
    assert outcomes.count("failure") == failed
    assert len({span["messaging.message.id"] for span in spans}) == messages
    assert {span.service for span in spans} == {"tests.edges.otel.shop"}
    assert processes == 1 or len({span["rqretry.worker"] for span in spans}) > 1
