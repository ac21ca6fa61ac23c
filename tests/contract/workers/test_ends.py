"""A program that is started by hand ends with one sentence where its server cannot be used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.examples import environment

ROOT = Path(__file__).parents[3]
PROGRAMS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "workers").glob("*.py"))]
RELAY = "docs/examples/outbox.py relay"
AWAY = "redis://127.0.0.1:1/0"
NO_URL = "127.0.0.1:6379"
IMPATIENT = """
import functools, json, os, runpy, sys, tempfile
import rqretry

rqretry.App = functools.partial(rqretry.App, timeout="100ms")
rqretry.Client = functools.partial(rqretry.Client, timeout="100ms")

def run(url, program, *arguments):
    os.environ["RQRETRY_REDIS_URL"] = url
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")

url, *commands = sys.argv[1:]
ends = {}
for command in commands:  # each in a process of its own, which need not import all again
    errors = tempfile.TemporaryFile("w+")
    if not (pid := os.fork()):
        os.dup2(errors.fileno(), 2)
        run(url, *command.split())
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    errors.seek(0)
    ends[command] = [status, *errors.read().splitlines()]
print(json.dumps(ends))
"""


def ends(url: str, *commands: str) -> dict[str, list[object]]:
    """The status of each program, and the lines of its errors."""
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, url, *commands],
        cwd=ROOT,
        env=environment(url),
        capture_output=True,
        check=True,
    )
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("url", "commands", "sentence"),
    [
        (AWAY, PROGRAMS, "StoreUnavailable: Redis at 127.0.0.1:1 is unreachable"),
        (NO_URL, [*PROGRAMS, RELAY], "ConfigError: the Redis URL must begin with redis://, "),
    ],
)
def test_a_program_that_cannot_use_its_server_ends_with_one_sentence(
    url: str, commands: list[str], sentence: str
) -> None:
    assert len(PROGRAMS) == 5
    for command, (status, line, *more) in ends(url, *commands).items():
        assert (status, str(line)[: len(sentence)], more) == (1, sentence, []), command


def test_a_wrong_password_is_one_sentence_that_does_not_show_it(
    redis_server: EmbeddedRedis,
) -> None:
    url = redis_server.url.replace("unix://", "unix://nobody:s3cret@")
    sentence = (
        f"ConfigError: Redis at {redis_server.socket_path} refused the user name or password;"
        " check the URL"
    )
    assert ends(url, PROGRAMS[0]) == {PROGRAMS[0]: [1, sentence]}
