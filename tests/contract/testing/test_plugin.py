"""The plugin as users have it: pytest in another process, and the examples of docs/testing.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
BLOCK = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)
PLUGIN = ("-p", "rqretry.testing.plugin", "-p", "no:rqretry", "-p", "no:cacheprovider")

SETTINGS = """
[pytest]
addopts = --strict-markers
asyncio_default_fixture_loop_scope = function
"""


def run_pytest(folder: Path, *options: str) -> str:
    """The last line that pytest printed."""
    (folder / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *PLUGIN, *options]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout if done.returncode else done.stdout.strip().splitlines()[-1]


def passed(shown: str) -> int:
    found = re.fullmatch(r"(\d+) passed in .*s", shown)
    assert found, shown
    return int(found[1])


def test_every_python_block_of_the_page_is_a_file_of_its_example() -> None:
    assert len(BLOCK.findall(PAGE.read_text())) == PAGE.read_text().count("```python")


@pytest.mark.parametrize("server", ["redis", "fakeredis"])
def test_the_examples_of_the_page_run(tmp_path: Path, server: str) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    tests = sum(text.count("def test_") for _, text in blocks)
    assert passed(run_pytest(tmp_path, f"--rqretry-lab={server}")) == tests + 1  # one runs twice


TWENTY_LINES = """
from rqretry import App, Message

app = App("redis://prod.example.org/0")


@app.consumer("orders", group="billing")
async def bill(message: Message[dict]) -> None:
    raise ValueError("no money")


def test_seventeen_deliveries(lab):
    lab.app(app)
    order = lab.publish("orders", {"amount": 12})
    assert lab.advance("4h46m") == 17
    lab.assert_path(order, "ready inflight waiting_retry ... dead")
    assert lab.attempts(order)[-1].at == 17140
"""


@pytest.mark.parametrize("server", ["redis", "fakeredis"])
def test_twenty_lines_of_a_user_prove_a_ladder(tmp_path: Path, server: str) -> None:
    assert len(TWENTY_LINES.splitlines()) <= 20
    (tmp_path / "test_shop.py").write_text(TWENTY_LINES)
    assert passed(run_pytest(tmp_path, f"--rqretry-lab={server}")) == 1


def test_a_failing_assertion_shows_the_path_to_the_user(tmp_path: Path) -> None:
    wrong = TWENTY_LINES.replace("waiting_retry ... dead", "committed")
    (tmp_path / "test_shop.py").write_text(wrong)
    shown = run_pytest(tmp_path, "--rqretry-lab=fakeredis")
    assert "expected the path 'ready inflight committed'" in shown
    assert "4 h 45 m 40 s  dead           fail, attempt 17: ValueError: no money" in shown


def test_an_unknown_server_is_refused_by_the_option(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", *PLUGIN, "--rqretry-lab=valkey"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "argument --rqretry-lab: invalid choice: 'valkey'" in done.stderr


def test_without_the_fixture_nothing_of_a_server_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    servers = {'fakeredis', 'lupa', 'rqretry.testing.fakeredis_store'}\n"
        "    assert not servers & set(sys.modules)\n"
    )
    assert passed(run_pytest(tmp_path)) == 1
