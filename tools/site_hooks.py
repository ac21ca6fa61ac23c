"""What mkdocs is taught for this site: pages of the repository outside of docs/, and one error.

CONTRIBUTING.md and the like stay where readers of a repository expect them, and are shown by the
site below `repository/`; links between them and the pages of docs/ work in both. A page that names
a file or a page that is not there ends the build.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
OUTSIDE = "repository"
SHOWN = ("C*.md", "SECURITY.md", "lua/*.md", "benchmarks/results/*.json")
"""The files outside of docs/ that a page may link to."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
NAMED = re.compile(r"`([\w.-]+/[\w./-]*\.(?:py|lua|toml|json|md))(?=`|::)")
SNIPPET = re.compile(r"^ *--8<-- \"([^\"]+)\"", re.MULTILINE)
BUILT = "build/"
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and check what all of them name.

    Raises:
        PluginError: A page names a file that is not there.
    """
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            uri = f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for file in files.documentation_pages():
        check_names(path_of(file), Path(file.abs_src_path or "").parent, file.content_string)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where the site has the files."""
    del config, files
    path, uri = path_of(page.file), page.file.src_uri
    return LINK.sub(lambda link: relative(path, uri, link[1]), markdown)


def path_of(file: File) -> str:
    """Where a page is in the repository."""
    uri = file.src_uri
    shown = uri.startswith(f"{OUTSIDE}/")
    return uri.removeprefix(f"{OUTSIDE}/") if shown else f"{DOCS}/{uri}"


def check_names(path: str, folder: Path, markdown: str) -> None:
    """Refuse a link to, a name in code of, or a snippet from a file that is not there."""
    text = FENCE.sub("", markdown)
    named = [(folder, name) for name in LINK.findall(text)]
    named += [(ROOT, name) for name in SNIPPET.findall(markdown)]
    named += [(place_of(name), name) for name in NAMED.findall(text) if not name.startswith(BUILT)]
    for place, name in named:
        if not (place / name).exists():
            raise PluginError(
                f"{path} names {name}, which is not there: mend the name, or add the file"
            )


def place_of(name: str) -> Path:
    """The folder that a name in code begins in: the repository, or its package."""
    package = ROOT / "rqretry"
    return package if (package / name).exists() else ROOT


def relative(path: str, uri: str, link: str) -> str:
    """The link of a file of the repository, as the site's page of that file has to spell it."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    inside = target.removeprefix(f"{DOCS}/")
    shown = inside if inside != target else f"{OUTSIDE}/{target}"
    return posixpath.relpath(shown, posixpath.dirname(uri) or ".")
