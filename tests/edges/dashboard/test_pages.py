"""What the pages show, and that looking changes nothing."""

import html
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from rqretry import AsyncClient, Client
from rqretry.core.parts import parts_of
from rqretry.dashboard.access import Rights
from rqretry.dashboard.charts import MOST_POINTS, draw, thinned
from rqretry.dashboard.past import Pair, Past
from rqretry.dashboard.sampler import Sampler, Seen
from rqretry.dashboard.site import make_site
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.series import Point
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.conftest import CANARY, browsing
from tests.support.servers import free_port

ROOT = Path(__file__).parents[3]
PLACE: Any = {"group": "billing", "topic": "orders"}
HEADERS = {"h": CANARY, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}


def everything(bench: Bench) -> dict[bytes, bytes]:
    """But for the numbers of the past, which whoever reads them may record."""
    series = f"{NamespaceKeys(parts_of(bench.client).settings.namespace).series}".encode()
    return {k: bench.redis.dump(k) for k in bench.redis.keys("*") if not k.startswith(series)}


def request_parts(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_the_overview_has_the_numbers_of_every_group(bench: Bench) -> None:
    bench.publish(1, 2, 3, topic="orders")
    bench.fail(bench.lease(1, **PLACE), level=4, **PLACE)
    bench.dead_letter(9, **PLACE)
    bench.admin.set_group("billing", max_inflight=7, rate_limit="5/s")
    bench.admin.pause("billing")
    async with browsing(bench.url) as browser:
        page = request_parts((await browser.get("/")).text)
    stats = bench.admin.stats("orders", group="billing")
    (group,) = stats.groups
    assert (group.ready, group.retry, group.inflight, group.waiting_count, group.dead) == (
        *(2, 0, 0, 1, 1),
    )
    row = r"billing orders 2 0 1 1 [\d.]+ \w+ \S+ \S+ 0 Group without worker Group paused"
    assert re.search(f"{row} 7 in flight 5/s", page)
    assert page.index("2 problems") < page.index("billing")


async def test_a_group_shows_its_ladder_and_when_it_fires(bench: Bench) -> None:
    bench.publish(1, 2, topic="orders")
    bench.fail(bench.lease(2, **PLACE), level=4, **PLACE)
    ((rung,),) = (group.waiting for group in bench.admin.stats("orders").groups)
    async with browsing(bench.url) as browser:
        await browser.get("/group/billing")
        text = (await browser.get("/group/billing")).text
    assert f"{rung.level} {rung.count}" in request_parts(text)
    assert rung.count == 2
    assert re.search(r"4 2 \d{4}-\d\d-\d\dT", request_parts(text))
    assert "<polyline" in text


async def test_dead_letters_are_clustered_by_fingerprint_and_listed(bench: Bench) -> None:
    bench.dead_letter(1, 2, reason="boom", **PLACE)
    bench.dead_letter(3, reason="other", **PLACE)
    (first, *_) = bench.admin.dead_letters("billing")
    async with browsing(bench.url) as browser:
        all_ = request_parts((await browser.get("/dead/billing")).text)
        one = (await browser.get(f"/dead/billing?fingerprint={first.fingerprint}")).text
        beyond = request_parts((await browser.get("/dead/billing?fingerprint=&page=9")).text)
    assert f"{first.fingerprint} 2 boom" in all_
    assert f'/message/{first.id}"' in one
    assert "other" not in one
    assert "There are no dead letters" in beyond


async def test_a_message_shows_state_explanation_history_and_trace(bench: Bench) -> None:
    id_ = bench.publish({"n": 1}, topic="orders", headers=HEADERS)[0]
    bench.fail(bench.lease(1, **PLACE), level=-1, **PLACE)
    (explained,) = bench.admin.explain(id_).values()
    link = "http://jaeger:16686/trace/{trace_id}"
    async with browsing(bench.url, trace_url=link) as browser:
        answer = await browser.get(f"/message/{id_}")
        found = await browser.get("/message", params={"id": str(id_)})
    assert explained in request_parts(answer.text)
    assert "dead" in request_parts(answer.text)
    assert '{"n": 1}' in request_parts(answer.text)
    assert f"http://jaeger:16686/trace/{'a' * 32}" in answer.text
    assert found.text == answer.text


async def test_nothing_foreign_is_ever_markup(bench: Bench) -> None:
    id_ = bench.publish({"x": CANARY}, topic="orders", headers=HEADERS, keys="k")[0]
    bench.fail(bench.lease(1, **PLACE), CANARY, level=-1, **PLACE)
    (dead_record,) = bench.admin.dead_letters("billing")
    paths = [
        "/",
        "/group/billing",
        "/dead/billing",
        f"/dead/billing?fingerprint={dead_record.fingerprint}",
        f"/message/{id_}",
        f"/message/{CANARY}",
        f"/group/{CANARY}",
        f"/dead/billing?fingerprint={CANARY}",
        f"/{CANARY}",
        f"/confirm/{CANARY}/billing",
    ]
    seen = 0
    async with browsing(bench.url, operator=True) as browser:
        for path in paths:
            text = (await browser.get(path)).text
            assert text.count("<script") == text.count('<script src="/site.js" defer>') == 1, path
            seen += "&lt;script&gt;" in text
    assert seen >= 4  # it is shown, as text


async def test_looking_changes_nothing(bench: Bench) -> None:
    (id_,) = bench.dead_letter(1, **PLACE)
    before = everything(bench)
    async with browsing(bench.url, operator=True) as browser:
        for path in ("/", "/group/billing", "/dead/billing", f"/message/{id_}"):
            assert (await browser.get(path)).status_code == 200
        for verb in ("pause", "resume", "redrive", "purge"):
            assert (await browser.get(f"/confirm/{verb}/billing")).status_code == 200
            assert (await browser.get(f"/act/{verb}/billing")).status_code == 405
    assert everything(bench) == before


async def no_past(_pair: Pair | None, _minutes: int) -> list[Point]:
    return []


async def test_rates_are_what_was_counted_between_two_samples(bench: Bench) -> None:
    async def read() -> Seen:
        return await client.admin.stats(), (), None

    async with AsyncClient(bench.url) as client:
        sampler = Sampler(read, Past(no_past), fresh_s=0.0)
        await sampler.latest()
        assert sampler.rates_now() == {}
        bench.publish(1, 2, 3, topic="orders")
        bench.succeed(bench.lease(**PLACE), **PLACE)
        await sampler.latest()
    ((_, rate),) = sampler.rates("orders", "billing", "succeed")
    first, second = sampler.samples
    assert rate == pytest.approx(3 / (second.at - first.at))
    assert sampler.rates_now() == {("orders", "billing"): (rate, 0.0)}
    assert sampler.total_rates("succeed") == [(second.at, rate)]


def test_a_chart_fits_its_frame() -> None:
    chart = draw("t", {"a": [(10.0, 0.0), (20.0, 4.0)], "b": [(15.0, 2.0)]})
    assert chart.lines == (("a", "0.0,120.0 600.0,0.0"), ("b", "300.0,60.0"))
    assert (chart.top, chart.seconds) == (4.0, 10)


def test_a_chart_has_its_peaks_and_a_point_for_each_stretch_of_time() -> None:
    coarse = [(600.0 * n, 1.0) for n in range(860)]
    fine = [(516_000.0 + 60 * n, 9.0 if n == 777 else 1.0) for n in range(1440)]
    drawn = thinned([*coarse, *fine])
    assert (516_000.0 + 60 * 777, 9.0) in drawn
    assert MOST_POINTS <= len(drawn) <= MOST_POINTS + 1
    assert sum(at < 516_000 for at, _ in drawn) > MOST_POINTS * 0.8  # six of seven days


def test_the_command_serves_pages_and_ends_quietly(server: EmbeddedRedis, client: Client) -> None:
    client.publish("orders", 1)
    port = free_port()
    run = [sys.executable, "-m", "rqretry", "dashboard", "--port", str(port), "--url", server.url]
    program = subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        stated = program.stdout.readline()
        assert stated == f"dashboard of namespace default (read-only) at http://127.0.0.1:{port}/\n"
        answer = httpx.get(f"http://127.0.0.1:{port}/", timeout=20)
        assert (answer.status_code, "orders" in answer.text) == (200, True)
        assert "server" not in answer.headers
    finally:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=30)
    assert program.returncode == 0


async def test_without_redis_a_page_says_so_and_no_more(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/none.sock"
    async with AsyncClient(url) as client:
        parts_of(client).store.repeat_seconds = 0.01
        transport = httpx.ASGITransport(make_site(client, Rights()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            answer = await browser.get("/")
    assert answer.status_code == 503
    assert "none.sock" not in answer.text
