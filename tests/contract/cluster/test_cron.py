"""`@app.cron` in workers on a cluster, whose schedules and topics lie on different primaries."""

from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import Seen

NAMES = ("tick", "tock", "chime")


async def test_two_workers_on_a_cluster_publish_each_slot_once(lab: ClusterLab) -> None:
    seen = Seen()
    apps = [lab.app(), lab.app()]
    for app in apps:
        for name in NAMES:
            app.cron(every="1s", name=name)(seen.add)
    async with lab.working(apps[0]), lab.working(apps[1]):
        await seen.count(3 * len(NAMES))
    slots = [(message.topic, message.scheduled_for) for message in seen.messages]
    assert {topic for topic, _ in slots} == set(NAMES)
    assert len(slots) == len(set(slots))
