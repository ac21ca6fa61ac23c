"""Other systems: one that is not installed is skipped with the reason, and the table is there."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import environments
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.side_by_side import markdown


@pytest.mark.parametrize("killed", [pytest.param(True, marks=pytest.mark.campaign), False])
def test_systems_that_are_not_installed_are_skipped_and_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    killed: bool,
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    file = tmp_path / "peers.json"

    words = ["peers", "--only", "bullmq", "rq", "--messages", "200", "--out", str(file)]
    assert main(words if killed else [*words, "--no-kill"]) == 0

    printed = capsys.readouterr()
    assert "bullmq: skipped, not installed (make bench-peers)" in printed.err
    assert "rq: skipped, not installed (make bench-peers)" in printed.err
    (row,) = [line for line in printed.out.splitlines() if line.startswith("| rqretry")]
    assert "not in" not in row
    assert ('"survives_kill": true' in file.read_text()) == killed


def test_every_system_says_how_it_is_set_up_and_has_its_adapter() -> None:
    for name, peer in PEERS.items():
        ending = "mjs" if peer.node else "py"
        assert (environments.ADAPTERS / f"{name}_peer.{ending}").is_file()
        assert peer.settings
        assert peer.packages


def test_the_table_says_who_loses_messages() -> None:
    found: dict[str, dict[str, Any]] = {
        "careful": {"rate": 10.0, "survives_kill": True, "recovery_s": 3.0, "version": "1.2"},
        "careless": {"rate": 2000.0, "survives_kill": False, "recovery_s": None},
    }

    careful, careless = markdown(found).splitlines()[2:]

    assert careful.startswith("| careful 1.2 |")
    assert careful.endswith("| 3.00 |")
    assert careless.endswith("| not in 120 s |")
    assert "2,000" in careless


def test_results_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "found.json", tmp_path / "found.svg"
    file.write_text('{"w1": {"rate": 10, "spread": {"rate": [9, 11]}}, "w2": {"rate": 5}}')

    assert main(["plot", str(file), "--out", str(picture)]) == 0

    assert picture.read_text().startswith("<?xml")
