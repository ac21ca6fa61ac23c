"""`make chaos SECONDS=600 SEED=1` runs a campaign, `make chaos RUN=redis-kill:17` one run again.

Exit status: 0 nothing found, 1 a finding, 2 wrong usage. The runs of a campaign are processes of
their own, one more at a time than there are cores: a part of a run is waiting.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.campaigns.campaign import FULL_SECONDS, Campaign, once
from tests.chaos.campaigns.nursery import ROOT
from tests.chaos.campaigns.plan import Kind
from tests.support.servers import SERVERS

FOLDER = ROOT / "build" / "chaos"


def main(request_parts: Sequence[str]) -> int:
    """Do what the command line says."""
    options = _options(request_parts)
    if options.run:
        return once(options.run, options.folder, options.server)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 10_000)
    campaign = Campaign(
        seed, options.seconds, options.folder,
        only=options.only, size=options.size, lanes=options.lanes, server=options.server,
    )  # fmt: skip
    return campaign.execute(options.json)


def _options(request_parts: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=FULL_SECONDS)
    parser.add_argument("--seed", type=int, help="of the campaign; default any, and it is printed")
    parser.add_argument(
        "--lanes", type=int, default=(os.cpu_count() or 1) + 1,
        help="runs at a time; default one more than there are cores",
    )  # fmt: skip
    parser.add_argument("--only", type=Kind, nargs="*", default=(), choices=list(Kind))
    parser.add_argument("--server", choices=list(SERVERS), help="default: the one on PATH")
    parser.add_argument("--run", help="KIND:SEED[@SIZE], one run of a campaign")
    parser.add_argument(
        "--size", type=float, default=1.0, help="of runs at most; 1 is what campaigns do"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the evidence")
    parser.add_argument("--json", type=Path, default=FOLDER / "report.json")
    return parser.parse_args(request_parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
