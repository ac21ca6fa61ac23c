"""The page of periodic messages, and its actions."""

import re

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.core.schedule import ScheduleRecord, Timetable
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.dashboard.conftest import browsing


async def test_schedules_are_shown_and_triggered_by_an_operator_alone(
    server: EmbeddedRedis, client: Client
) -> None:
    record = ScheduleRecord("nightly", Timetable(every_s=600))
    parts_of(client).store.perform(parts_of(client).catalog.schedules.define(record))
    async with browsing(server.url) as reader:
        page = (await reader.get("/cron")).text
        assert "every 10m" in page
        assert "/confirm/" not in page
        assert (await reader.get("/confirm/trigger/nightly")).status_code == 403

    async with browsing(server.url, operator=True) as browser:
        assert "/confirm/trigger/nightly" in (await browser.get("/cron")).text
        for verb in ("trigger", "pause_schedule", "resume_schedule"):
            form = (await browser.get(f"/confirm/{verb}/nightly")).text
            assert "schedule nightly?" in form
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
            answer = await browser.post(f"/act/{verb}/nightly", data=fields)
            assert (answer.status_code, answer.headers["location"]) == (303, "/cron")
        assert (await browser.get("/confirm/trigger/other")).status_code == 404

    assert client.admin.stats("nightly").topics[0].backlog == 1
    verbs = [entry.verb for entry in client.admin.audit()]
    assert sorted(verbs) == ["pause_schedule", "resume_schedule", "trigger"]
