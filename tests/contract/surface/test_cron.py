"""`@app.cron` in real workers."""

from tests.contract.integration.harness import Lab, Seen


async def test_two_workers_publish_one_message_a_second(lab: Lab) -> None:
    seen = Seen()
    apps = [lab.app(), lab.app()]
    for app in apps:
        app.cron(every="1s", name="tick")(seen.add)
    async with lab.working(apps[0]), lab.working(apps[1]):
        first, second = await seen.count(2)
    assert first.scheduled_for is not None
    assert second.scheduled_for is not None
    assert (second.scheduled_for - first.scheduled_for).total_seconds() == 1
