"""The README is done as it stands: its files are written, its commands typed, its test run."""

import re
from pathlib import Path

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell
from tests.edges.docs.terminal import BLOCK, Reader

README = Path(__file__).parents[3] / "README.md"
WORKER = "rqretry worker shop:app"
LEFT_OVER = "1 delayed message not due yet"


def test_the_readme_works_as_it_stands(tmp_path: Path) -> None:
    assert f"With `{WORKER}` in another terminal" in README.read_text()
    with EmbeddedRedis() as server, Reader(tmp_path, server.url) as reader:
        reader.write(README)
        reader.type("Terminal 2", WORKER, "...\n<time> INFO ready: 1 process\n")
        assert reader.read(README) == 5
        reader.type("", "python publish.py", "a receipt for here and now\n")
        reader.type("", "rqretry status", f"...\ntopic orders has {LEFT_OVER}\n...\n")
        (tmp_path / "bank-is-open").unlink()
        reader.type("", "pytest -q", ". [100%]\n1 passed in 0.31s\n")


def test_the_transcript_has_twelve_lines() -> None:
    (transcript,) = [
        text for kind, _, text in BLOCK.findall(README.read_text()) if kind == "console"
    ]
    assert len(transcript.splitlines()) <= 12


def test_every_command_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"(?<!from )rqretry ((?:dlq )?[a-z]+)(?=[ `\n])", README.read_text()))
    assert len(named) > 8
    for command in named:
        assert "Usage:" in Shell("redis://localhost").ok(*command.split(), "--help")


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text().splitlines()) <= 150
