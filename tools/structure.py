"""The structure of the package in figures, and a failure where one is past its bound.

Layers of the import contract, import cycles, the longest chain of imports, files at the top of
`rqretry/`, and names that one package takes from the private parts of another.

    python tools/structure.py            the figures; exit status 1 past a bound
    python tools/structure.py --chain    the longest chain of imports, module by module
    python tools/structure.py --edges    which package imports which, with counts
"""

import argparse
import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rqretry"
ALONE = {"app", "client"}
"""The only layers that may be a single file."""
BOUNDS = {
    "layers": 12,
    "layers of a single file": 0,
    "modules in import cycles": 0,
    "modules in the longest import chain": 14,
    "files at the top of rqretry/": 12,
    "private names taken from another package": 0,
}

Imports = Mapping[str, frozenset[str]]


def main() -> int:
    """Print the figures; 1 if one is past its bound."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--chain", action="store_true", help="the longest chain of imports")
    parser.add_argument("--edges", action="store_true", help="which package imports which")
    options = parser.parse_args()
    imports = imports_of_modules()
    if options.edges:
        for (importer, imported), count in sorted(edges(imports).items()):
            print(f"{importer} -> {imported}: {count}")
        return 0
    chain = longest_chain(imports)
    if options.chain:
        print("\n".join(f"{depth:3} {name}" for depth, name in enumerate(chain, 1)))
        return 0
    layers = layers_of_contract()
    single = [name for name in layers if is_single_file(name)]
    private = list(private_imports())
    figures = {
        "layers": (len(layers), ""),
        "layers of a single file": (len(single), ", ".join(single)),
        "modules in import cycles": (len(in_cycles(imports)), ""),
        "modules in the longest import chain": (len(chain), ""),
        "files at the top of rqretry/": (sum(p.is_file() for p in PACKAGE.iterdir()), ""),
        "private names taken from another package": (len(private), "; ".join(private)),
    }
    past = False
    for name, (value, remark) in figures.items():
        bound = BOUNDS[name]
        past |= value > bound
        verdict = "ok" if value <= bound else "PAST THE BOUND"
        print(f"{name:42} {value:4}  (at most {bound})  {verdict}  {remark}".rstrip())
    return 1 if past else 0


def imports_of_modules() -> Imports:
    """Each module of the package with the modules that it imports, wherever the import stands."""
    graph = grimp.build_graph("rqretry", cache_dir=None)
    found = graph.find_modules_directly_imported_by
    return {name: frozenset(found(name)) for name in graph.modules}


def longest_chain(imports: Imports) -> list[str]:
    """The longest path through the imports. Cycles are cut where they close."""
    under_way: set[str] = set()

    @cache
    def below(name: str) -> tuple[str, ...]:
        under_way.add(name)
        chains = [below(other) for other in sorted(imports[name]) if other not in under_way]
        under_way.discard(name)
        return (name, *longest(chains))

    return list(longest([below(name) for name in sorted(imports)]))


def longest(chains: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The first of the longest; empty where there is none."""
    return max(chains, key=len, default=())


def in_cycles(imports: Imports) -> set[str]:
    """The modules that import themselves through others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for other in imports[waiting.pop()] - found:
                found.add(other)
                waiting.append(other)
        return found

    return {name for name in imports if name in reached(name)}


def edges(imports: Imports) -> Counter[tuple[str, str]]:
    """How many modules of one top-level package import modules of another."""
    found: Counter[tuple[str, str]] = Counter()
    for importer, others in imports.items():
        for other in others:
            pair = (part_of(importer), part_of(other))
            found[pair] += pair[0] != pair[1]
    return +found


def part_of(module: str) -> str:
    """The package or file directly below the root: `core` of `rqretry.core.errors`."""
    return [*module.split("."), "__init__"][1]


def layers_of_contract() -> list[str]:
    """The layers of the first contract of import-linter, top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return [str(layer) for layer in contracts[0]["layers"]]


def is_single_file(layer: str) -> bool:
    """Whether a layer holds nothing but one file, and none of those that may stand alone."""
    names = [name.strip(" ()") for part in layer.split("|") for name in part.split(":")]
    return len(names) == 1 and names[0] not in ALONE and not (PACKAGE / names[0]).is_dir()


def private_imports() -> Iterator[str]:
    """Imports of a name with a leading underscore out of another top-level package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            if not (node.module or "").startswith("rqretry."):
                continue
            own = "rqretry." + path.relative_to(PACKAGE).parts[0]
            if f"{node.module}.".startswith(f"{own}."):
                continue
            for alias in node.names:
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    yield f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"


if __name__ == "__main__":
    sys.exit(main())
