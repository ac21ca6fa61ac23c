"""The pages in a real browser: at any width nothing sticks out, and nothing is fetched."""

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rqretry.spark.report_page import page
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.conftest import browsing

LONG = "x" * 120
WIDTHS = (360, 700, 1400)
SCRIPT = '<script src="/site.js" defer></script>'
STYLESHEET = '<link rel="stylesheet" href="/style.css">'
LOOK = """
<script>
onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const root = frame.contentDocument.documentElement;
    const fetched = frame.contentWindow.performance.getEntriesByType("resource");
    const wide = [...root.querySelectorAll("body *")].filter(one => !one.closest(".wide"))
      .filter(one => one.getBoundingClientRect().right > root.clientWidth + 1);
    return {name: frame.name, width: frame.width, out: wide.map(one => one.outerHTML.slice(0, 80)),
      scroll: root.scrollWidth - root.clientWidth, fetched: fetched.map(one => one.name)};
  });
  document.body.textContent = "SEEN" + JSON.stringify(seen) + "END";
};
</script>
"""


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium on PATH")
    return found


@pytest.mark.timeout(240)
async def test_every_page_fits_narrow_and_wide_windows_and_fetches_nothing(
    chromium: str, bench: Bench, tmp_path: Path
) -> None:
    pages = {"report": report(), **await dashboard(bench)}
    frames = [
        f'<iframe name="{name}" width="{width}" height="800" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in WIDTHS
    ]
    file = tmp_path / "all.html"
    file.write_text(f"<!doctype html>{LOOK}<body>{''.join(frames)}")
    request_parts = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
    )
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop
        (chromium, *request_parts, "--dump-dom", file.as_uri()),
        capture_output=True,
        text=True,
        check=True,
    )

    stated = html.unescape(done.stdout).partition("SEEN[")[2].partition("]END")[0]
    seen = json.loads(f"[{stated}]")
    assert len(seen) == len(frames)
    for frame in seen:
        assert (frame["out"], frame["scroll"], frame["fetched"]) == ([], 0, []), frame


def report() -> str:
    name = {"topic": f"topic-{LONG}", "group": f"group-{LONG}"}
    counts: dict[str, Any] = {"deliveries": 10, "succeeded": 3, "failed": 7}
    times = dict.fromkeys(("p50", "p90", "p95", "p99", "longest"), 123456.789)
    spent = {"messages": 5, "handler_seconds": 1e9, "wasted_seconds": 4e8}
    return page(
        {
            "groups": [{**name, **spent}],
            "attempts": [{**name, "attempt": n, **counts} for n in range(1, 18)],
            "times": [{**name, "measure": "to success", **times}],
            "dead": [{**name, "error_type": LONG, "example": LONG, "died": 9430, "ids": [LONG]}],
        },
        f"/archive/{LONG}",
    )


async def dashboard(bench: Bench) -> dict[str, str]:
    """Its pages, with long names and errors, and the stylesheet in them."""
    group = f"g{LONG[:100]}"
    bench.group(group, "orders")
    (id_, *_) = bench.dead_letter(*range(3), reason=LONG, group=group, topic="orders")
    bench.publish({"n": LONG}, topic="orders", tag="t" * 60, headers={"h": LONG})
    bench.fail(bench.lease(1, group=group, topic="orders"), level=4, group=group, topic="orders")
    bench.admin.redrive(group, ids=[id_])
    bench.appear("w" * 100, group=group, topic="orders")
    async with browsing(bench.url, operator=True) as browser:
        style = (await browser.get("/style.css")).text
        paths = ["/", f"/group/{group}", f"/dead/{group}?fingerprint=", f"/message/{id_}"]
        paths += [f"/dead/{group}", f"/confirm/purge/{group}", "/group/none"]
        paths += ["/topics", "/workers", "/cron", f"/search?q={group}"]
        texts = {path: (await browser.get(path)).text for path in paths}
    assert all(STYLESHEET in text for text in texts.values())
    return {
        path: text.replace(STYLESHEET, f"<style>{style}</style>").replace(SCRIPT, "")
        for path, text in texts.items()
    }
