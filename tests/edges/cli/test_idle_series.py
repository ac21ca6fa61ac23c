"""Which groups the exporter leaves out, and that nothing is missed of those that come back."""

from typing import Any

import pytest

from rqretry.admin.views import GroupStats, Stats, TopicStats
from rqretry.cli.idle_series import HELD_S, QUIET_S, IdleGroups
from rqretry.cli.metrics import render


class Scrapes:
    """One exporter, scraped when the test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._idle = IdleGroups(lambda: self.now_s)

    def __call__(self, stored: int = 0, **groups: Any) -> dict[str, dict[str, int]]:
        """The counters of each group that is shown, whatever `groups` says of them."""
        rows = tuple(
            GroupStats(name, "push", given.pop("ready", 0), 0, 0, (), 0, None,
                       paused=given.pop("paused", False), workers=1, counters=given)
            for name, given in groups.items()
        )  # fmt: skip
        shown, self.idle = self._idle.left_out(
            Stats("default", (TopicStats("t", 1, stored, 0, 0, rows),))
        )
        self.topics = [topic.topic for topic in shown.topics]
        return {group.group: group.counters for group in shown.groups}


@pytest.fixture
def scraped() -> Scrapes:
    """An exporter."""
    return Scrapes()


def test_what_has_nothing_and_did_nothing_is_left_out_and_counted(scraped: Scrapes) -> None:
    assert scraped(g={"lease": 5}, h={"ready": 1}, p={"paused": True}) == {"h": {}, "p": {}}
    assert (scraped.idle, scraped.topics) == (1, ["t"])
    assert (scraped(g={"lease": 5}), scraped.topics) == ({}, [])
    assert (scraped(1, g={"lease": 5}), scraped.topics) == ({}, ["t"]), "it stores a message"
    assert 'rqretry_idle_groups{namespace="default"} 7' in render(
        Stats("default", ()), evicts=False, idle=7
    )


def test_the_counters_of_a_group_that_comes_back_grow_from_what_they_were(scraped: Scrapes) -> None:
    scraped(g={"dead": 5})
    scraped.now_s += 3600
    assert scraped(g={"dead": 6}) == {"g": {"dead": 5}}, "so that the increase is seen"
    scraped.now_s += HELD_S - 1
    assert scraped(g={"dead": 7}) == {"g": {"dead": 5}}, "by a second Prometheus, too"
    scraped.now_s += 1
    assert scraped(g={"dead": 7}) == {"g": {"dead": 7}}
    scraped.now_s += QUIET_S - 2
    assert scraped(g={"dead": 7}) == {"g": {"dead": 7}}
    scraped.now_s += 1
    assert scraped(g={"dead": 7}) == {}


def test_a_group_that_is_new_grows_from_nothing(scraped: Scrapes) -> None:
    scraped()
    assert scraped(g={"dead": 1}) == {"g": {}}
    scraped.now_s += HELD_S
    assert scraped(g={"dead": 1}) == {"g": {"dead": 1}}


def test_what_is_busy_at_the_first_scrape_is_as_it_is(scraped: Scrapes) -> None:
    assert scraped(g={"ready": 1, "lease": 7}) == {"g": {"lease": 7}}
    scraped.now_s += 15
    assert scraped(g={"ready": 1, "lease": 9}) == {"g": {"lease": 9}}
