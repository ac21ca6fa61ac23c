"""Every page in Chromium, wide and narrow, light and dark: axe has no findings."""

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rqretry.core.parts import parts_of
from rqretry.core.schedule import ScheduleRecord, Timetable
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.conftest import CANARY
from tests.edges.dashboard.serving import serving
from tests.support.chromium import Chromium, chromium_or_skip

PLACE: Any = {"group": "billing", "topic": "orders"}
OF_LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable")
"""The rules that depend on the window and the colours."""
RUN = """axe.run(document, RULES).then(found => found.violations.map(one =>
    [one.id, ...one.nodes.map(node => node.html.slice(0, 120))].join(" | ")))"""


def axe() -> str:
    """The script of axe, as a package for Python has it."""
    package = find_spec("axe_core_python")
    if package is None or package.origin is None:
        pytest.skip("axe-core-python is not installed")
    return Path(package.origin).with_name("axe.min.js").read_text()


def filled(bench: Bench) -> list[str]:
    """Something to show on each page; the paths of all pages."""
    bench.group("mail", "receipts", ordered=True)
    bench.publish(*range(3), topic="orders", tag="t", keys="k", headers={"h": CANARY})
    bench.fail(bench.lease(1, **PLACE), CANARY, level=4, **PLACE)
    (id_, *_) = bench.dead_letter(1, 2, reason=CANARY, **PLACE)
    bench.admin.pause("mail")
    bench.publish(1, topic="receipts")
    bench.appear("w1", **PLACE)
    nightly = ScheduleRecord("nightly", Timetable(every_s=600))
    parts_of(bench.client).store.perform(parts_of(bench.client).catalog.schedules.define(nightly))
    dead = bench.admin.dead_letters("billing")[0].fingerprint
    return [
        *("/", "/topics", "/workers", "/cron", "/search?q=k", "/search?q=none", "/none"),
        *(
            "/group/billing",
            "/messages/billing",
            "/group/mail",
            "/dead/billing",
            f"/dead/billing?fingerprint={dead}",
        ),
        *(f"/message/{id_}", "/confirm/purge/billing", "/confirm/pause/billing"),
    ]


def findings(chromium: Chromium, address: str, paths: list[str], script: str) -> list[str]:
    """What axe finds, and what sticks out, on any of these pages."""
    found = []
    for path in paths:
        chromium.look(1280)
        chromium.open(address + path)
        chromium.run(f"{script}; 0")
        for width, dark, rules in ((1280, False, {}), (390, True, {"runOnly": OF_LOOKS})):
            chromium.look(width, dark=dark)
            run = RUN.replace("RULES", json.dumps(rules))
            found += [f"{path} {width} {one}" for one in chromium.run(run)]
            out = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            found += [f"{path} {width} sticks out"] if chromium.run(out) else []
    return found


@pytest.mark.timeout(120)
async def test_axe_finds_nothing_on_any_page(bench: Bench) -> None:
    script, paths = axe(), filled(bench)
    with chromium_or_skip() as chromium:
        async with serving(bench.url) as (port, _):
            address = f"http://127.0.0.1:{port}"
            assert await asyncio.to_thread(findings, chromium, address, paths, script) == []
