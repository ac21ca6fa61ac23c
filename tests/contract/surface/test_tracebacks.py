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

numbers = app.topic("numbers", body=int)

@app.task
def greet(name: str) -> None: ...

async def in_a_transaction():
    async with app.transaction("orders") as tx:  # the user's line
        await tx.publish(1)  # the user's line

def commit():
    with app.client.transaction("orders") as tx:  # the user's line
        tx.publish(1, dealy=1)  # the user's line

async def receive():
    consumer = app.async_client.simple_consumer("orders", group="g")
    await consumer.receive()  # the user's line

async def send():
    await greet.send()  # the user's line

async def publish_numbers():
    await numbers.publish_many(["one"])  # the user's line

async def publish_a_number():
    await numbers.publish(1)  # the user's line

async def look():
    await app.admin.stats()  # the user's line

shown(lambda: asyncio.run(in_a_transaction()))
shown(commit)
shown(lambda: asyncio.run(receive()))
shown(lambda: app.client.simple_consumer("orders", group="g"))  # the user's line
shown(lambda: asyncio.run(send()))
shown(lambda: greet.send_sync(nmae="Ada"))  # the user's line
shown(lambda: asyncio.run(publish_numbers()))
shown(lambda: numbers.publish_sync("one"))  # the user's line
shown(lambda: asyncio.run(publish_a_number()))
shown(lambda: app.consumer("t", group="g")(lambda: None))  # the user's line
shown(lambda: app.client.recall("a" * 16))  # the user's line
shown(lambda: app.client.admin.stats())  # the user's line
shown(lambda: asyncio.run(look()))
"""
HERE = 'File "<string>", '


def shown(*options: str) -> list[str]:
    command = [sys.executable, *options, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYTHONDEVMODE": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split("====\n")[:-1]


def test_the_last_frame_is_the_users_and_the_cause_is_one_line() -> None:
    texts = shown()
    assert len(texts) == 19
    for text in texts:
        frames = [line.strip() for line in text.splitlines() if line.startswith("  File")]
        assert frames[-1].startswith(HERE), text
        assert not [frame for frame in frames if f"{Path('rqretry') / ''}" in frame], text
        assert text.strip().splitlines()[-1].startswith("rqretry.core.")
        assert "TryAgain" not in text
        assert "s3cret" not in text
        assert len([line for line in text.splitlines() if set(line) - set(" ~^")]) < 20
    assert "did you mean delay?" in texts[0]
    assert "Connection refused" in texts[4]
    assert "what the user handles" in texts[5]


def test_the_whole_of_it_is_there_for_whoever_looks_for_a_bug_of_ours() -> None:
    texts = shown("-X", "dev")
    assert "TryAgain" in texts[4]
    assert str(Path("transport") / "session.py") in texts[4]
