"""docs/cli.md is what the commands say, and what docs/operations.md tells to type works."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from rqretry import Client
from tests.edges.cli.conftest import ROOT
from tests.edges.cli.shell import Shell, dead_letter

DOCS = ROOT / "docs"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def test_the_page_about_the_commands_is_not_stale() -> None:
    place = ROOT / "tools" / "make_cli_docs.py"
    spec = importlib.util.spec_from_file_location("make_cli_docs", place)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    shown = (DOCS / "cli.md").read_text()
    assert shown == tool.render(), "run: python tools/make_cli_docs.py"


def test_every_command_of_the_operations_page_works_in_its_order(
    shell: Shell, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = dead_letter(client, "flights", "claims", *range(6))
    delayed = client.publish("flights", 7, delay="1h")
    (cluster,) = shell.json("dlq", "list", "claims")["clusters"]
    tx = client.transaction("flights")
    tx.publish(8)
    known = {"$ID": ids[0], "$FINGERPRINT": cluster["fingerprint"], "$DELAYED": delayed}
    known["$TRANSACTION"] = tx.id
    lines = "".join(BLOCK.findall((DOCS / "operations.md").read_text())).splitlines()
    assert len(lines) > 30
    for line in lines:
        program, *request_parts = [known.get(word, word) for word in shlex.split(line)]
        assert program == "rqretry"
        if "--canary" in request_parts:  # it would wait for a worker; another test has one
            request_parts.append("--dry-run")
        shell.ok(*request_parts)
    assert client.admin.topics() == []
    assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == 6


def test_the_links_of_the_operations_page_lead_somewhere() -> None:
    text = (DOCS / "operations.md").read_text()
    titles = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= titles
