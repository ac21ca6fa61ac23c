"""Standard streams as a user's script leaves them: closed, full, or of a narrow encoding."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

import rqretry.__main__ as program_module
from rqretry import Client
from tests.edges.cli.conftest import Program
from tests.edges.cli.shell import dead_letter

TEXT = "Zürich \N{HIGH VOLTAGE SIGN} \N{PILE OF POO}"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_stream_is_no_error(program: Program, client: Client, number: int) -> None:
    (id_,) = dead_letter(client, "t", "g", 1)

    close = partial(os.close, number)
    process = program("dlq", "redrive", "g", "--ids", id_, preexec_fn=close)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (0, "")
    assert ("sent back" in out) == (number != 1)
    assert client.admin.stats("t", "g").dead == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_sentence(program: Program, client: Client) -> None:
    client.admin.create_topic("t")
    with Path("/dev/full").open("w") as full:
        process = program("status", stdout=full)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 1
    assert err == "Error: No space left on device\n"


def test_what_an_encoding_lacks_is_escaped(program: Program, client: Client) -> None:
    (id_,) = dead_letter(client, "t", "g", TEXT)
    latin = partial(program, env={"PYTHONIOENCODING": "latin-1"}, encoding="latin-1")

    shown, err = latin("dlq", "show", "g", id_).communicate(timeout=30)
    stated, _ = latin("dlq", "export", "g").communicate(timeout=30)

    assert err.strip() == ""
    assert "Zürich \\u26a1" in shown
    assert json.loads(stated)["body"] == TEXT


def test_ctrl_c_while_the_program_loads_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program_module, "import_module", pressed)

    with pytest.raises(SystemExit) as ended:
        program_module.main()

    assert ended.value.code == 1
