"""Publishing again: what was removed by hand, and what may have been stored."""

from datetime import UTC, datetime, timedelta

from rqretry import App, Message
from rqretry.core.consume_result import ConsumeResult
from tests.contract.integration.harness import Lab, Seen, counted


def later(hours: int) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


async def test_what_was_recalled_or_purged_is_published_again_under_its_id(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    await reminded(app, seen)
    await app.publish("t", "at nine", id="reminder", deliver_at=later(9))
    assert lab.client().recall("reminder")
    again = await app.publish("t", "at ten", id="reminder", deliver_at=later(-1))
    assert not again.duplicate
    async with lab.working(app):
        await counted(lab, "g", fail=1)
        assert await app.admin.purge("g", all=True) == 1
        again = await app.publish("t", "at eleven", id="reminder")
        assert not again.duplicate
        await counted(lab, "g", fail=1, succeed=1)
    assert seen.bodies == ["at ten", "at eleven"]
    first, second = seen.messages
    assert second.fencing_token > first.fencing_token


async def reminded(app: App, seen: Seen) -> None:
    @app.consumer("t", group="g", max_retries=0)
    async def remind(message: Message[str]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE if message.body == "at ten" else ConsumeResult.SUCCESS
