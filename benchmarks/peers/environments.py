"""`make bench-peers`: an environment for each system, under a folder that git ignores."""

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
    place.mkdir(parents=True, exist_ok=True)
    try:
        if peer.node:
            _run(
                (
                    "npm",
                    "install",
                    "--no-fund",
                    "--no-audit",
                    "--prefix",
                    str(place),
                    *peer.packages,
                )
            )
        else:
            _run((sys.executable, "-m", "venv", str(place)))
            pip = (str(place / "bin" / "python"), "-m", "pip", "--quiet", "install")
            _run((*pip, *peer.packages))
    except (OSError, subprocess.CalledProcessError) as error:
        text = getattr(error, "stderr", "") or str(error)
        return str(text).strip().splitlines()[-1]
    return None


def program(name: str) -> tuple[str, ...] | None:
    """What runs an adapter of this system; None if it is not installed."""
    place = ROOT / name
    if PEERS[name].node:
        node = shutil.which("node")
        return (node,) if node and (place / "node_modules").is_dir() else None
    python = place / "bin" / "python"
    return (str(python),) if python.is_file() else None


def version(name: str) -> str:
    """What is installed."""
    peer: Peer = PEERS[name]
    if peer.node:
        command: tuple[str, ...] = ("npm", "ls", "--prefix", str(ROOT / name), "--depth=0", name)
        return _run(command).rpartition("@")[2].strip()
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return _run((*(program(name) or ()), "-c", code)).strip()


def _run(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    """Install all, or those that are named."""
    for name in sys.argv[1:] or PEERS:
        reason = install(name)
        print(f"{name}: {version(name) if reason is None else f'skipped: {reason}'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
