"""What a user installs: sdist, then the wheel made from it, then an empty environment."""

import ast
import json
import os
import subprocess
import sys
import time
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.terminal import Reader

ROOT = Path(__file__).parents[3]
REPORT_SCRIPTS = """
import json
from rqretry.protocol.scripts import Dialect, ScriptLibrary, script_directory
library = ScriptLibrary()
print(json.dumps({
    "directory": str(script_directory()),
    "shas": {name: [library.get(name).sha(dialect) for dialect in Dialect]
             for name in library.names()},
}))
"""
EMBEDDED = """
import json, redis
from rqretry.testing.embedded_redis import EmbeddedRedis
with EmbeddedRedis() as server:
    with redis.from_url(server.url) as client:
        print(json.dumps({"version": server.version, "served": "PONG" if client.ping() else ""}))
"""
READING_S = 300
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: str | Path, cwd: Path) -> str:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(
        command, cwd=cwd, env=alone, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def built(folder: Path, *options: str) -> Path:
    """A wheel, with the build backend of the developers' environment."""
    run(
        sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", folder, ROOT,
        cwd=folder,
    )  # fmt: skip
    (wheel,) = folder.glob("rqretry-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the sdist."""
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    install(folder, wheel)
    return folder


def install(environment: Path, what: Path | str) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "--python", environment / "bin" / "python", "install", what, cwd=environment)


def sources(wheel: Path) -> dict[str, ast.Module]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        return {name: ast.parse(archive.read(name), name) for name in names}


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def test_the_wheel_from_the_sdist_is_the_one_from_the_tree(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(built(tmp_path, "--wheel")) as other:
        assert one.namelist() == other.namelist()
        differ = [name for name in one.namelist() if one.read(name) != other.read(name)]
    assert differ == []


def test_the_metadata_say_who_what_and_where(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    links = dict(text.split(", ") for text in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Source", "Changelog"} <= set(links)
    assert all(url.startswith("https://pypi.org/project/rqretry/") for url in links.values())
    assert metadata["Author"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_first_page_works_with_what_is_installed(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(environment, f"{wheel}[testing]")
    with (
        EmbeddedRedis() as server,
        Reader(tmp_path, server.url, environment / "bin") as reader,
    ):
        readme = ROOT / "README.md"
        reader.write(readme)
        reader.type("Terminal 2", "rqretry worker shop:app", "...\n<time> INFO ready: 1 process\n")
        assert reader.read(readme)
        reader.type("", "which rqretry", f"{environment / 'bin' / 'rqretry'}\n")
        (tmp_path / "bank-is-open").unlink()
        reader.type("", "pytest -q", ". [100%]\n1 passed in 0.31s\n")


def test_the_tutorial_works_with_what_is_installed(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(environment, f"{wheel}[testing]")
    begun = time.monotonic()
    with (
        EmbeddedRedis() as server,
        Reader(tmp_path, server.url, environment / "bin") as reader,
    ):
        assert reader.read(ROOT / "docs" / "start" / "tutorial.md") >= 8
    assert time.monotonic() - begun < READING_S


def test_the_command_runs_in_an_empty_environment(environment: Path) -> None:
    shown = run(environment / "bin" / "rqretry", "--version", cwd=environment)
    expected = run(sys.executable, "-c", "import rqretry; print(rqretry.__version__)", cwd=ROOT)
    assert expected.strip() in shown


def test_the_embedded_server_is_new_and_hides_none_of_the_machine(
    wheel: Path, environment: Path
) -> None:
    install(environment, f"{wheel}[embedded]")
    answer = json.loads(run(environment / "bin" / "python", "-c", EMBEDDED, cwd=environment))
    assert answer["served"] == "PONG"
    assert [int(part) for part in answer["version"].split(".")] >= [9, 1]
    assert not [*(environment / "bin").glob("*-server")]


def test_the_installed_scripts_are_the_ones_of_the_checkout(environment: Path) -> None:
    report = json.loads(run(environment / "bin" / "python", "-c", REPORT_SCRIPTS, cwd=environment))
    library = ScriptLibrary()
    assert Path(report["directory"]).is_relative_to(environment)
    assert library.names()
    assert report["shas"] == {
        name: [library.get(name).sha(dialect) for dialect in Dialect] for name in library.names()
    }


def test_the_wheel_has_the_types_marker_the_licence_and_nothing_beside_the_package(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "rqretry/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rqretry"}


def test_nothing_in_the_wheel_can_run_data_as_code(wheel: Path) -> None:
    found = []
    for name, tree in sources(wheel).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in BANNED_CALLS:
                    found.append(f"{name}:{node.lineno} {node.func.id}")
            elif BANNED_MODULES & {module.split(".")[0] for module in modules_of(node)}:
                found.append(f"{name}: {ast.unparse(node)}")
    assert sources(wheel)
    assert found == []
