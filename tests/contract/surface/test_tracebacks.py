"""The traceback of a refused publish ends at the line of the user, with the sentence below it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.servers import python_path

PROGRAM = """
import asyncio, traceback
from rqretry import App, Client

app = App("redis://user:s3cret@127.0.0.1:1", timeout="10ms")

def shown(call):
    try:
        call()
    except Exception:
        print(traceback.format_exc())
    print("====")

async def buy():
    await app.publish("orders", 1, dealy="1s")  # the user's line

async def buy_many():
    await app.publish_many("orders", [1])  # the user's line

def answer_a_failure():
    try:
        {}["what the user handles"]
    except KeyError:
        app.publish_sync("orders", 1, delay_levl=3)  # the user's line

shown(lambda: asyncio.run(buy()))
shown(lambda: asyncio.run(buy_many()))
shown(lambda: app.publish_sync("orders", 1))  # the user's line
shown(lambda: app.publish_many_sync("a/b", [1]))  # the user's line
shown(lambda: app.client.publish("orders", 1))  # the user's line
shown(answer_a_failure)
"""
HERE = 'File "<string>", '


def shown(*options: str) -> list[str]:
    command = [sys.executable, *options, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYTHONDEVMODE": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split("====\n")[:-1]


def test_the_last_frame_is_the_users_and_the_cause_is_one_line() -> None:
    texts = shown()
    assert len(texts) == 6
    for text in texts:
        assert f"{Path('rqretry') / 'producer'}" not in text
        assert f"{Path('rqretry') / 'app.py'}" not in text
        frames = [line.strip() for line in text.splitlines() if line.startswith("  File")]
        assert frames[-1].startswith(HERE)
        assert text.strip().splitlines()[-1].startswith("rqretry.core.errors.")
        assert "TryAgain" not in text
        assert "s3cret" not in text
        assert len(text.splitlines()) < 20
    assert "did you mean delay?" in texts[0]
    assert "Connection refused" in texts[4]
    assert "what the user handles" in texts[5]


def test_the_whole_of_it_is_there_for_whoever_looks_for_a_bug_of_ours() -> None:
    texts = shown("-X", "dev")
    assert "TryAgain" in texts[4]
    assert str(Path("transport") / "session.py") in texts[4]
