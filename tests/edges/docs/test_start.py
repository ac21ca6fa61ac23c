"""The tutorial is typed from an empty folder, beside an empty server, as it stands."""

import time
from pathlib import Path

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.terminal import Reader

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs" / "start" / "tutorial.md"
BAR_S = 300


def test_the_tutorial_works_as_it_stands_in_the_page(tmp_path: Path) -> None:
    begun = time.monotonic()
    with EmbeddedRedis() as server, Reader(tmp_path, server.url) as reader:
        assert reader.read(TUTORIAL) >= 8
    assert time.monotonic() - begun < BAR_S
