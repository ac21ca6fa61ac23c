"""A failing run made small: which of the things that happened by chance does it take?

Delta debugging (Zeller) over the names of choices; what is left is kept as a file that replays.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.model.simulation import actors
from tests.model.simulation.server import Server
from tests.model.simulation.world import Outcome, World

FOLDER = Path(__file__).parent / "seeds"
MOST_RUNS = 300


def run(
    server: Server, seed: int, kept: Sequence[str] | None = None, *, traced: bool = False
) -> Outcome:
    """One run of a seed, with only these choices; None: with all that the seed has."""
    world = World(server, seed, None if kept is None else frozenset(kept), traced=traced)
    return actors.run(world)


def kind_of(failure: str) -> str:
    """What broke, without the ids and numbers."""
    request_parts = [word for word in failure.split() if word.isalpha()]
    return " ".join(request_parts[:4])


def shrink(server: Server, outcome: Outcome) -> tuple[list[str], Outcome]:
    """The fewest choices that were found to break the same promise, and that run."""
    last, wanted, runs = outcome, kind_of(outcome.failure), 0

    def fails(kept: Sequence[str]) -> bool:
        nonlocal last, runs
        runs += 1
        found = run(server, outcome.seed, kept)
        if kind_of(found.failure) != wanted:
            return False
        last = found
        return True

    kept = minimal(outcome.taken, fails, lambda: runs < MOST_RUNS)
    return kept, last


def minimal(
    names: Sequence[str], fails: Callable[[Sequence[str]], bool], go_on: Callable[[], bool]
) -> list[str]:
    """Leave out parts, smaller and smaller ones, as long as it fails without them."""
    kept, parts = list(names), 2
    while len(kept) > 1 and go_on():
        size = -(-len(kept) // parts)
        for at in range(0, len(kept), size):
            rest = kept[:at] + kept[at + size :]
            if go_on() and fails(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(kept):
                break
            parts = min(len(kept), 2 * parts)
    return kept


def write(kept: Sequence[str], outcome: Outcome, folder: Path = FOLDER) -> Path:
    """Keep a run as a file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{outcome.seed:06}.json"
    content = {"seed": outcome.seed, "failure": outcome.failure, "kept": list(kept)}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def replay(server: Server, path: Path, *, traced: bool = False) -> Outcome:
    """Run what a file keeps."""
    content = json.loads(path.read_text())
    return run(server, content["seed"], content["kept"], traced=traced)
