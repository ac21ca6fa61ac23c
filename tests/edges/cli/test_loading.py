"""MODULE:APP: what is found, and one sentence for everything that is not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry.core.errors import ConfigError, InvalidArgument
from rqretry.core.parts import parts_of
from rqretry.supervision.app_loader import load_app, require_consumers

APP = "from rqretry import App\napp = App('redis://h/0')\n"
CONSUMER = "@app.consumer('t', group='g')\ndef handle(message): ...\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of modules that are forgotten after the test."""
    known, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_an_app_is_found_in_the_app_dir(folder: Path) -> None:
    (folder / "shop.py").write_text(APP + CONSUMER)
    app = load_app("shop:app", str(folder))
    require_consumers(app, "shop:app", str(folder))
    assert [spec.group for spec in parts_of(app).consumers] == ["g"]


def test_an_app_is_found_in_a_package_and_under_a_dotted_name(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "inner.py").write_text(f"{APP}class Settings: pass\nSettings.app = app\n")
    assert load_app("pack.inner:Settings.app", str(folder)) is load_app(
        "pack.inner:app", str(folder)
    )


FAILING = [
    ("m", "", "m:app", "has no 'app'"),
    ("m", "application = 1\n", "m:aplication", "did you mean m:application?"),
    ("m", APP, "m:ap", "did you mean m:app?"),
    ("m", f"{APP}other = App('redis://h/0')\n", "m:zzz", "its apps are app, other"),
    ("m", "app = 1\n", "m:app", "is not an App but int"),
    ("m", "from rqretry import App\n", "m:App", "the class App"),
    ("m", "1 / 0\n", "m:app", "failed on import: ZeroDivisionError: division by zero"),
    ("m", "\n\nimport nothing_here\n", "m:app", "m.py:3"),
    ("m", "import sys\nsys.exit(3)\n", "m:app", "it called sys.exit(3)"),
    ("m", "def f(:\n", "m:app", "SyntaxError"),
    ("m", "raise ValueError\n", "m:app", "ValueError ("),
    ("shop", "", "shpo:app", "did you mean shop?"),
    ("m", "", "absent:app", "name its folder with --app-dir"),
    ("m", "", "m.sub:app", "there is no module 'm.sub'"),
]


@pytest.mark.parametrize(("module", "text", "target", "shown"), FAILING)
def test_what_cannot_be_loaded_is_one_sentence(
    folder: Path, module: str, text: str, target: str, shown: str
) -> None:
    (folder / f"{module}.py").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_app(target, str(folder))
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_line_of_a_failing_import_is_that_of_the_user(folder: Path) -> None:
    (folder / "deep.py").write_text("def f():\n    raise KeyError('x')\nf()\n")
    (folder / "m.py").write_text("import deep\n")
    with pytest.raises(ConfigError, match=r"KeyError: 'x' \(.*deep\.py:2\)"):
        load_app("m:app", str(folder))


WAITS_FOR_THE_WARNING = """
import logging, threading
told = threading.Event()
handler = logging.Handler()
handler.emit = lambda record: told.set()
logging.getLogger("rqretry").addHandler(handler)
assert told.wait(30)
logging.getLogger("rqretry").removeHandler(handler)
"""


def test_a_slow_import_is_logged_with_the_line_it_is_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rqretry.supervision.app_loader.SLOW_IMPORT_S", 0.05)
    (folder / "m.py").write_text(WAITS_FOR_THE_WARNING + APP)
    load_app("m:app", str(folder))
    (line,) = [r.getMessage() for r in caplog.records if "still importing" in r.getMessage()]
    assert line.startswith("module m is still importing after 0.05 s")
    assert ".py:" in line


def test_a_target_without_a_colon_suggests_the_apps_of_the_module(folder: Path) -> None:
    (folder / "m.py").write_text(f"{APP}other = App('redis://h/0')\n")
    with pytest.raises(InvalidArgument, match="did you mean m:app or m:other"):
        load_app("m", str(folder))


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="'/no/such/folder' is not a folder"):
        load_app("m:app", "/no/such/folder")


def test_an_app_without_consumers_says_where_it_looked(folder: Path) -> None:
    (folder / "m.py").write_text(APP)
    app = load_app("m:app", str(folder))
    with pytest.raises(ConfigError) as caught:
        require_consumers(app, "m:app", str(folder))
    assert str(folder / "m.py") in str(caught.value)
    assert "@app.consumer" in str(caught.value)


def test_the_other_app_of_a_module_is_named_if_it_has_the_consumers(folder: Path) -> None:
    text = f"{APP}empty = App('redis://h/0')\n{CONSUMER}"
    (folder / "m.py").write_text(text)
    app = load_app("m:empty", str(folder))
    with pytest.raises(ConfigError, match="m:app has some"):
        require_consumers(app, "m:empty", str(folder))
