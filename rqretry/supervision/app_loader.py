"""Finding the App that the command line names as MODULE:APP, such as shop.billing:app."""

import importlib
import importlib.util
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from rqretry.app import App
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.parts import parts_of

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
log = logging.getLogger("rqretry")

SLOW_IMPORT_S = 10.0
_PATH_LIKE = ("/", "\\", "..")
_MOST_NAMED = 5


def load_app(target: str, app_dir: str = ".") -> App:
    """Import a module and find the App in it.

    Args:
        target: MODULE:APP; APP may be dotted, as in shop:settings.app.
        app_dir: Where modules are looked for first; default the current folder.

    Raises:
        InvalidArgument: The target is not written as MODULE:APP.
        ConfigError: There is no such folder, module or attribute, importing it failed, or it is
            not an App.
    """
    folder = _enter(app_dir)
    if ":" not in target:
        raise InvalidArgument(_without_colon(target, folder))
    name, _, path = target.partition(":")
    _check_module_name(name, target)
    _check_attribute(path, target)
    app = _find(_import(name, folder), path)
    for module in parts_of(app).include:
        _check_module_name(module, module)
        _import(module, folder)
    return app


def load_worker_app(target: str, app_dir: str, url: str | None, namespace: str | None) -> App:
    """Load an app and choose its server. Raises ConfigError if it fails or has no consumers.

    Args:
        target: MODULE:APP.
        app_dir: Where modules are looked for first.
        url: The server; None for the app's own.
        namespace: None for the app's own.
    """
    app = load_app(target, app_dir)
    app.configure(url, namespace)
    if not parts_of(app).consumers:
        raise ConfigError(
            f"{target} has no consumers: register one with @app.consumer in a module that"
            f" {target.partition(':')[0]} imports"
        )
    return app


def require_consumers(app: App, target: str, app_dir: str = ".") -> None:
    """Raise ConfigError, naming where it looked, if nothing was registered on the app."""
    if parts_of(app).consumers or parts_of(app).checkers.specs:
        return
    name, _, path = target.partition(":")
    module = sys.modules.get(name)
    location = getattr(module, "__file__", None) or name
    others = [other for other, its_app in _apps_in(module).items() if parts_of(its_app).consumers]
    hint = f"; {name}:{others[0]} has some" if others else ""
    raise ConfigError(
        f"{path} in {show(location)} has no consumers{hint}: register one with @{path}.consumer in"
        f" a module that {name} imports (modules are searched in"
        f" {show(str(Path(app_dir)))} first)"
    )


def _enter(app_dir: str) -> Path:
    folder = Path(app_dir)
    if "\0" in app_dir or not folder.is_dir():
        raise ConfigError(f"--app-dir {show(app_dir)} is not a folder")
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.insert(0, path)
    importlib.invalidate_caches()
    return folder.resolve()


def _without_colon(target: str, folder: Path) -> str:
    """What is wrong with a target without a colon, with the apps that it may mean."""
    wrong = f"{show(target)} names no app: write MODULE:APP"
    if not _MODULE.fullmatch(target):
        return f"{wrong}, such as shop.billing:app"
    names: Iterable[str] = ()
    with suppress(ConfigError):
        names = _apps_in(_import(target, folder))
    if names:
        return f"{wrong}; did you mean {' or '.join(f'{target}:{name}' for name in names)}?"
    return f"{wrong}, such as {target}:app"


def _check_module_name(name: str, target: str) -> None:
    if _MODULE.fullmatch(name):
        return
    if name.endswith(".py") or any(part in name for part in _PATH_LIKE):
        raise InvalidArgument(
            f"{show(target)} names a file, not a module: write it as Python imports it, such as"
            " shop.billing:app, and name its folder with --app-dir"
        )
    raise InvalidArgument(
        f"{show(target)} holds no module name before the colon: write MODULE:APP, such as"
        " shop.billing:app"
    )


def _check_attribute(path: str, target: str) -> None:
    if "(" in path:
        raise InvalidArgument(
            f"{show(target)} is a call, which is not supported: put the App into a variable of the"
            " module and name that"
        )
    if not _MODULE.fullmatch(path):
        raise InvalidArgument(
            f"{show(target)} names no variable after the colon: write MODULE:APP, such as"
            " shop.billing:app"
        )
    if any(part.startswith("__") for part in path.split(".")):
        raise InvalidArgument(f"{show(target)} names a dunder attribute: name an App")


def _import(name: str, folder: Path) -> ModuleType:
    try:
        with _logged_if_slow(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigError(_not_found(name, missing, folder)) from None
        raise ConfigError(_failed(name, error)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(_failed(name, error)) from error


@contextmanager
def _logged_if_slow(name: str) -> Iterator[None]:
    """Log one warning where an import takes long, with the line that it is at."""
    thread = threading.get_ident()

    def warn() -> None:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - as faulthandler looks
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "its end"
        text = "module %s is still importing after %g s, and no message is processed: it is at %s"
        log.warning(text, name, SLOW_IMPORT_S, at)

    timer = threading.Timer(SLOW_IMPORT_S, warn)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _not_found(name: str, missing: str, folder: Path) -> str:
    inside = f" (there is no {show(missing)})" if missing != name else ""
    near = get_close_matches(name, _modules_in(folder), 1)
    hint = f"; did you mean {near[0]}?" if near else "; name its folder with --app-dir"
    return f"there is no module {show(name)}{inside}; looked in {show(str(folder))} first{hint}"


def _modules_in(folder: Path) -> list[str]:
    try:
        children = list(folder.iterdir())
    except OSError:
        return []
    return [child.stem for child in children if child.suffix == ".py" or child.is_dir()]


def _failed(name: str, error: BaseException) -> str:
    """One sentence for a module that failed, with the line of the user's code."""
    return f"module {name} failed on import: {_description(error)} ({_location(error)})"


def _description(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({show(error.code) if error.code is not None else ''})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide where it was raised
        text = show(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _location(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    # Frames of importlib and of this file are not where the user's mistake is.
    own = [f for f in frames if f.filename != __file__ and not _is_machinery(f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "no line is known"


def _is_machinery(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or filename == importlib.__file__


def _find(module: ModuleType, path: str) -> App:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(_missing(module, path)) from None
    if isinstance(found, App):
        return found
    others = _named(_apps_in(module), module.__name__)
    what = "the class App, not an instance of it" if found is App else type(found).__name__
    raise ConfigError(f"{module.__name__}:{path} is not an App but {what}{others}")


def _missing(module: ModuleType, path: str) -> str:
    near = get_close_matches(path, dir(module), 1)
    hint = f"; did you mean {module.__name__}:{near[0]}?" if near else ""
    return f"module {module.__name__} has no {show(path)}{hint or _named(_apps_in(module), '')}"


def _named(names: Iterable[str], module: str) -> str:
    listed = [f"{module}:{name}" if module else name for name in names][:_MOST_NAMED]
    return f"; its apps are {', '.join(listed)}" if listed else ""


def _apps_in(module: ModuleType | None) -> dict[str, App]:
    values = vars(module) if module else {}
    return {name: value for name, value in values.items() if isinstance(value, App)}
