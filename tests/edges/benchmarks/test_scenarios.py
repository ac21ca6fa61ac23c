"""Every scenario runs to its end with a handful of messages, and its own check holds."""

import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.__main__ import main
from benchmarks.figures import NAMES, Figures, percentile, summary, table
from benchmarks.scenarios import GROUPS, SCENARIOS, callers, tracing
from benchmarks.workload import check

FEW = {"w4": 50, "punctuality": 50, "idle": 5, "cpu_bound": 2, "limits": 12, "scale": 2}
"""Messages, where 200 are not the right number."""


SLOW = {
    "spark_read": [pytest.mark.campaign, pytest.mark.spark],
    "spark_ingest": [pytest.mark.campaign, pytest.mark.spark],
    "cpu_bound": [pytest.mark.campaign],
    "mass_expiry": [pytest.mark.campaign],
    "punctuality": [pytest.mark.campaign],
    "gateway_polls": [pytest.mark.campaign],
}


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the runs that are made in pairs, not twenty; and not 512 threads."""
    monkeypatch.setattr(tracing, "PAIRS", 2)
    monkeypatch.setattr(callers, "AT_ONCE", (1, 64))


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW.get(n, [])) for n in SCENARIOS])
def test_a_scenario_runs_and_checks_every_message(name: str) -> None:
    figures = SCENARIOS[name](FEW.get(name, 200))

    assert figures.checked
    assert figures.rate >= 0
    assert set(NAMES) <= set(summary([figures]))


def test_the_command_prints_json_and_writes_a_file_that_compare_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"

    assert main(["run", "w1", "--messages", "100", "--json", "--out", str(file)]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed == results.read(str(file))
    assert set(NAMES) <= set(printed["w1"])
    assert printed["w1"]["checked"] is True
    written = file.read_text()
    assert str(Path.home()) not in written
    assert main(["compare", str(file), str(file)]) == 0
    assert "x 1.00" in capsys.readouterr().out


def test_publish_stands_for_one_by_one_and_bulk() -> None:
    assert GROUPS["publish"] == ("publish", "publish_bulk")
    assert "backlog_10m" not in GROUPS["all"]


def test_a_summary_has_medians_and_spread() -> None:
    runs = [Figures(rate=rate, checked=True, more={"ratio": rate / 10}) for rate in (3, 1, 2)]

    found = summary(runs)

    assert (found["rate"], found["ratio"], found["checked"]) == (2, 0.2, True)
    assert found["spread"]["rate"] == [1, 3]
    assert found["p50_ms"] is None
    assert "(1.00 to 3.00)" in table({"w1": found})


def test_one_failed_check_fails_the_summary() -> None:
    assert summary([Figures(1, True), Figures(1, False)])["checked"] is False


@pytest.mark.parametrize(
    ("handled", "complaint"),
    [
        (["a"], "1 were not handled"),
        (["a", "b", "b"], "1 not 1 times"),
        (["a", "b", "c"], "1 that were never published"),
    ],
)
def test_the_check_notices(handled: list[str], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(["a", "b"], handled)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile(range(100), 50) == 50
    assert percentile([5.0], 99) == 5.0
