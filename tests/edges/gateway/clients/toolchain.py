"""Official clients of other languages, from their registries: installed once, below build/.

What only a registry can give is kept by npm, Go and Maven themselves; a machine without them, or
without a network at the first time, skips the tests.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[4]
HERE = Path(__file__).parent
EXAMPLES = ROOT / "docs" / "examples"
CACHE = ROOT / "build" / "gateway-clients"
_INSTALL_S = 600
_QUICK_JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class NotHereError(Exception):
    """Why programs of a language cannot be run on this machine."""


@dataclass(frozen=True)
class Language:
    """How programs of a language are installed and run.

    Attributes:
        needs: The tools that must be there.
        sources: What the installation depends on.
        install: Does it, in this folder.
        run: The command of a program: the test's own, or the one of the documentation.
    """

    name: str
    needs: tuple[str, ...]
    sources: tuple[Path, ...]
    install: Callable[[Path], None]
    run: Callable[[Path, Path], list[str]]

    @property
    def program(self) -> Path:
        """The program of the tests."""
        return self.sources[0]

    @property
    def example(self) -> Path:
        """The program of the documentation."""
        return self.sources[1]

    def prepare(self) -> Path:
        """The folder with all that is needed to run the programs. Raises NotHereError."""
        absent = [tool for tool in self.needs if shutil.which(tool) is None]
        if absent:
            raise NotHereError(f"{self.name}: there is no {absent[0]} here")
        text = b"".join(source.read_bytes() for source in self.sources)
        folder = CACHE / f"{self.name}-{hashlib.sha256(text).hexdigest()[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / ".complete").exists():
                for older in set(CACHE.glob(f"{self.name}-*")) - {folder}:
                    shutil.rmtree(older)
                self.install(folder)
                (folder / ".complete").touch()
        return folder

    def command(self, program: Path) -> list[str]:
        """How to run a program of this language."""
        return self.run(self.prepare(), program)


def _do(command: Iterable[str | Path], folder: Path) -> None:
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(
            arguments, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotHereError(f"{arguments[0]} took longer than {_INSTALL_S} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise NotHereError(f"{' '.join(arguments[:3])} failed: {' '.join(said)}")


def _install_node(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, folder)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retry-maxtimeout=2000"]
    _do(["npm", "ci", *options, "--fetch-retry-mintimeout=500"], folder)


def _run_node(folder: Path, program: Path) -> list[str]:
    return ["env", f"NODE_PATH={folder / 'node_modules'}", "node", str(program)]


def _install_go(folder: Path) -> None:
    quickly = "-gcflags=all=-N -l"  # of 65 s on a new machine 48 are left
    for name, program in (("client", "."), ("rocketmq_client", EXAMPLES / "rocketmq_client.go")):
        _do(["go", "build", quickly, "-o", folder / name, program], HERE / "go")


def _run_go(folder: Path, program: Path) -> list[str]:
    return [str(folder / program.stem)]


def _install_java(folder: Path) -> None:
    copy = "dependency:copy-dependencies"
    _do(["mvn", "-q", "-B", "-f", HERE / "java" / "pom.xml", copy, f"-DoutputDirectory={folder}"],
        folder)  # fmt: skip
    programs = [*(HERE / "java").glob("*.java"), EXAMPLES / "RocketmqClient.java"]
    _do(["javac", "-cp", f"{folder}/*", "-d", folder, *programs], folder)


def _run_java(folder: Path, program: Path) -> list[str]:
    return ["java", *_QUICK_JVM, "-cp", f"{folder}{os.pathsep}{folder}/*", program.stem]


NODE = Language(
    "node",
    ("node", "npm"),
    (HERE / "node" / "client.js", EXAMPLES / "rocketmq_client.js",
     HERE / "node" / "package-lock.json"),
    _install_node,
    _run_node,
)  # fmt: skip
GO = Language(
    "go",
    ("go",),
    (HERE / "go" / "client.go", EXAMPLES / "rocketmq_client.go", HERE / "go" / "orders.go",
     HERE / "go" / "go.mod", HERE / "go" / "go.sum"),
    _install_go,
    _run_go,
)  # fmt: skip
JAVA = Language(
    "java",
    ("java", "javac", "mvn"),
    (
        HERE / "java" / "Client.java",
        EXAMPLES / "RocketmqClient.java",
        HERE / "java" / "Orders.java",
        HERE / "java" / "pom.xml",
    ),
    _install_java,
    _run_java,
)
LANGUAGES = {language.name: language for language in (NODE, GO, JAVA)}
