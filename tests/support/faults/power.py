"""A server whose machine can lose its power: what was not synced is gone, and only that.

A C shim around fsync notes how much of each file is safe. A power loss is kill -9, and then the
append-only file is cut somewhere between what was synced and what was written: the kernel may have
written any part of the rest. The order of renames and of directory entries is not modelled.
"""

import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from rqretry.testing.embedded_redis import EmbeddedRedis, find_server

SOURCE = Path(__file__).with_name("fsyncs.c")


class NoCompiler(Exception):
    """There is no C compiler here to build the shim with."""


class PoweredRedis:
    """A server with an append-only file, on a machine that can lose its power.

    Args:
        appendfsync: "always", "everysec" or "no".
        extra: More arguments of the server.
        binary: The server; default the one of this machine.
        data: Where it keeps its files, made anew; default a folder that ends with it.

    Raises:
        NoCompiler: The shim cannot be built here.
    """

    def __init__(
        self,
        appendfsync: str,
        *extra: str,
        binary: Path | None = None,
        data: Path | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rqretry-power-")
        folder = Path(self._folder.name)
        self.data, self._log = data or folder / "data", folder / "fsyncs"
        self.data.mkdir()
        shim = _build(folder)
        self._binary = binary or find_server()
        wrapper = folder / "redis-server"
        wrapper.write_text(
            f"#!/bin/sh\nFSYNC_LOG='{self._log}' LD_PRELOAD='{shim}' exec '{self._binary}' \"$@\"\n"
        )
        wrapper.chmod(0o700)
        self.embedded = EmbeddedRedis(
            wrapper, appendonly=True, appendfsync=appendfsync, directory=self.data,
            extra=("--auto-aof-rewrite-percentage", "0", *extra),
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.embedded.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.embedded.stop()
        self._folder.cleanup()

    def lose_power(self, chance: random.Random | None = None) -> int:
        """Kill the server and cut what was not synced; how many bytes are gone.

        Args:
            chance: Where to cut between the synced and the written end; None: all of it.
        """
        self.embedded.kill()
        gone = 0
        for path in self.journals():
            size, synced = path.stat().st_size, self.synced(path)
            kept = synced if chance is None else chance.randint(synced, size)
            with path.open("r+b") as file:
                file.truncate(kept)
            gone += size - kept
        return gone

    def repair(self) -> None:
        """Cut off the half of a script that the power loss left, as redis-check-aof does.

        Redis (7.0 and others) does it when it loads the file, but in memory only: in the file the
        half stays, and is executed with the next script when the file is loaded again. The server
        is that program, too, where it is called by its name.
        """
        (path,) = self.journals()
        request_parts = ("redis-check-aof", "--fix", str(path))
        subprocess.run(
            request_parts, executable=self._binary, input=b"y\n", capture_output=True, check=True
        )

    def journals(self) -> list[Path]:
        """The files that are appended to."""
        found = [*self.data.glob("*/*.incr.aof"), *self.data.glob("*.aof")]
        return [path for path in found if path.is_file()]

    def synced(self, path: Path) -> int:
        """How many bytes of a file were synced."""
        inode, synced = str(path.stat().st_ino), 0
        for line in self._log.read_text().splitlines() if self._log.exists() else ():
            number, size = line.split()
            if number == inode:
                synced = max(synced, int(size))
        return min(synced, path.stat().st_size)


def _build(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("there is no C compiler (cc, gcc or clang) for the fsync recorder")
    shim = folder / "fsyncs.so"
    request_parts = (compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SOURCE), "-ldl")
    built = subprocess.run(request_parts, capture_output=True, text=True, check=False)
    if built.returncode:
        recorded = built.stderr.strip()[:200]
        raise NoCompiler(f"{compiler} cannot build the fsync recorder: {recorded}")
    return shim
