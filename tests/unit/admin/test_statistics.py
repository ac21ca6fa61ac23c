"""What statistics ask of the workers that live."""

import json

import pytest

from rqretry.admin.statistics import Live
from rqretry.core.worker_info import About


def test_whether_a_group_is_served_is_asked_of_its_own_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, serves = list[str](), About.serves

    def noted(about: About, group: str, topic: str) -> bool:
        asked.append(group)
        return serves(about, group, topic)

    monkeypatch.setattr(About, "serves", noted)
    names = [f"g{number}" for number in range(50)]
    live = Live([json.dumps({"groups": [name], "topics": ["t"]}) for name in names])
    assert all(live.serves(name, "t") for name in names)
    assert not live.serves("g1", "other")
    assert not live.serves("other", "t")
    assert len(asked) == len(names) + 1
