"""What a load needs follows from what messages were measured to cost."""

from dataclasses import replace

import pytest

from rqretry.admin.capacity import COSTS, Load, Range, plan, read_costs
from rqretry.core.errors import InvalidArgument
from rqretry.core.limits import UNLIMITED
from rqretry.core.retry_policy import CompiledPolicy

POLICY = CompiledPolicy((10_000, 30_000))
LOAD = Load(rate=1000, body_bytes=1000, failing=0.5, policy=POLICY, max_retries=2, outage_s=10)
ONE = dict.fromkeys(COSTS, Range(1.0, 0.5, 2.0))


def test_retries_and_deaths_follow_from_the_share_of_attempts_that_fail() -> None:
    assert LOAD.retries() == (0.75, 0.5 * 10 + 0.25 * 30)
    assert LOAD.dying == 0.125
    assert replace(LOAD, failing=0.0).retries() == (0.0, 0.0)
    endless = replace(LOAD, max_retries=UNLIMITED)
    count, waits_s = endless.retries()
    assert (round(count, 6), endless.dying) == (1.0, 0.0)
    assert waits_s == pytest.approx(0.5 * 10 + 0.5 * 30)


def test_every_figure_is_its_parts() -> None:
    made = plan(LOAD, ONE)
    kib = 1000 / 1024
    server_us = 1000 * (1 + kib) * (1 + 1.75)
    assert made["server_busy"].expected == pytest.approx(server_us / 1e6)
    assert made["worker_busy"].expected == pytest.approx(1000 * 1.75 / 1e6)
    assert made["waiting"].expected == pytest.approx(1000 * 12.5 * 1002)
    assert made["backlog"].expected == 1000 * 10 * 1001
    assert made["kept"].expected == 0
    assert made["dead_per_day"].expected == pytest.approx(1000 * 0.125 * 86_400 * 1002)
    assert made["network_in"].expected == 1000 * 1001 + 1000 * 1.75
    assert made["network_out"].expected == 1000 * 1001 + 1000 * 0.75 * 1001
    assert all(figure.low <= figure.expected <= figure.high for figure in made.values())


def test_groups_a_handler_and_a_replay_take_their_own() -> None:
    made = plan(replace(LOAD, groups=3, handler_s=0.1, keep_s=60), ONE)
    assert made["slots"].expected == 3 * 1.75 * 100
    assert made["kept"].expected == 1000 * 60 * 1001
    assert made["worker_busy"].expected == pytest.approx(3 * 1000 * 1.75 / 1e6)


def test_what_cannot_be_is_refused_with_its_name() -> None:
    for size in (0, 5_000_000):
        with pytest.raises(InvalidArgument, match=f"body {size} must be"):
            replace(LOAD, body_bytes=size)
    with pytest.raises(InvalidArgument, match=r"failing 1\.2 must be"):
        replace(LOAD, failing=1.2)
    with pytest.raises(InvalidArgument, match="never end"):
        replace(LOAD, failing=1.0, max_retries=UNLIMITED)


def test_the_package_has_every_cost_as_it_was_measured() -> None:
    costs, about = read_costs()
    assert {"measured", "redis_server", "python", "cores"} <= about.keys()
    assert all(0 <= cost.low <= cost.expected <= cost.high for cost in costs.values())
    assert 0 < costs["publish_bulk_us"].expected < costs["publish_one_us"].expected
    assert plan(LOAD, costs)["primaries"].expected == 1
