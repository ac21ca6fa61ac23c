"""`make bench-peers`: an environment for each system, under a folder that git ignores.

Those of Ruby are packages of Debian, for the whole machine; apt-get needs root for that.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalog import PEERS, Peer

ROOT = Path(__file__).resolve().parents[2] / ".peers"
ADAPTERS = Path(__file__).resolve().parent / "adapters"


def install(name: str) -> str | None:
    """Make the environment of a system; why it could not be made, or None."""
    peer, place = PEERS[name], ROOT / name
    if peer.runtime == "ruby" and program(name):
        return None
    place.mkdir(parents=True, exist_ok=True)
    try:
        for command in _commands(peer, place):
            _run(command)
    except (OSError, subprocess.CalledProcessError) as error:
        text = getattr(error, "stderr", "") or str(error)
        return str(text).strip().splitlines()[-1]
    return None


def _commands(peer: Peer, place: Path) -> list[tuple[str, ...]]:
    if peer.runtime == "node":
        return [
            ("npm", "install", "--no-fund", "--no-audit", "--prefix", str(place), *peer.packages)
        ]
    if peer.runtime == "ruby":
        install = ("apt-get", "-qq", "install", "--yes", "--no-install-recommends", *peer.packages)
        return [("apt-get", "-qq", "update"), install]
    pip = (str(place / "bin" / "python"), "-m", "pip", "--quiet", "install", *peer.packages)
    return [(sys.executable, "-m", "venv", str(place)), pip]


def program(name: str) -> tuple[str, ...] | None:
    """What runs an adapter of this system; None if it is not installed."""
    place = ROOT / name
    runtime = PEERS[name].runtime
    if runtime == "node":
        node = shutil.which("node")
        return (node,) if node and (place / "node_modules").is_dir() else None
    if runtime == "ruby":
        ruby = shutil.which("ruby")
        return (ruby,) if ruby and all(map(_is_installed, PEERS[name].packages)) else None
    python = place / "bin" / "python"
    return (str(python),) if python.is_file() else None


def version(name: str) -> str:
    """What is installed."""
    peer: Peer = PEERS[name]
    if peer.runtime == "node":
        command: tuple[str, ...] = ("npm", "ls", "--prefix", str(ROOT / name), "--depth=0", name)
        return _run(command).rpartition("@")[2].strip()
    if peer.runtime == "ruby":
        return _run((*(program(name) or ()), "-S", name, "--version")).split()[-1]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return _run((*(program(name) or ()), "-c", code)).strip()


def _is_installed(package: str) -> bool:
    """Whether a package of Debian is; a version that is left of a removed one is none."""
    try:
        status = _run(("dpkg-query", "--show", "--showformat=${db:Status-Status}", package))
    except (OSError, subprocess.CalledProcessError):
        return False
    return status == "installed"


def _run(command: tuple[str, ...]) -> str:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return done.stdout


def main() -> int:
    """Install all, or those that are named."""
    for name in sys.argv[1:] or PEERS:
        reason = install(name)
        print(f"{name}: {version(name) if reason is None else f'skipped: {reason}'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
